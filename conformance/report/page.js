"use strict";
(() => {
  const FILTERS = ["backend", "outcome", "family", "type"];
  const form = document.getElementById("filters");
  const list = document.getElementById("cases");
  const rows = [...list.querySelectorAll(".case")];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

  /** What is asked for, as the address has it. */
  const wanted = () => new URLSearchParams(location.hash.slice(1));

  function change(name, value) {
    const parameters = wanted();
    if (value) parameters.set(name, value);
    else parameters.delete(name);
    const text = parameters.toString().replaceAll("%2F", "/").replaceAll("%40", "@");
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }

  function show() {
    const parameters = wanted();
    for (const name of [...FILTERS, "text"]) form.elements[name].value = parameters.get(name) ?? "";
    const words = (parameters.get("text") ?? "").toLowerCase().split(/\s+/);
    const fits = (row) =>
      FILTERS.every((name) => !parameters.get(name) || row.dataset[name] === parameters.get(name)) &&
      words.every((word) => texts.get(row).includes(word));
    for (const row of rows) row.hidden = !fits(row);
    const shown = rows.filter((row) => !row.hidden);
    document.getElementById("count").textContent = `${shown.length} of ${rows.length} cases`;
    const open = shown.find((row) => row.dataset.key === parameters.get("open"));
    if (open && !open.open) {
      open.open = true;
      open.scrollIntoView();
    }
  }

  async function inflated(number) {
    const packed = atob(document.getElementById(`picture-${number}`).textContent);
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  async function draw(row) {
    const picture = row.querySelector(".picture");
    if (picture.childNodes.length) return;
    picture.textContent = "...";
    try {
      const pieces = await Promise.all(row.dataset.pictures.split(" ").filter(Boolean).map(inflated));
      picture.innerHTML = pieces.join("\n");
    } catch (error) {
      picture.textContent = `This browser cannot show the picture: ${error}`;
    }
  }

  form.addEventListener("input", (event) => {
    change(event.target.name, event.target.value);
    show();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    for (const name of [...FILTERS, "text"]) change(name, "");
    show();
  });
  list.addEventListener("toggle", ({target}) => {
    if (!target.matches(".case")) return;
    if (target.open) draw(target);
    if (target.open) change("open", target.dataset.key);
    else if (wanted().get("open") === target.dataset.key) change("open", "");
  }, true);
  document.querySelector(".matrix").addEventListener("click", (event) => {
    if (event.target.closest("a")) setTimeout(() => document.getElementById("failures").scrollIntoView());
  });
  window.addEventListener("hashchange", show);
  show();
})();
