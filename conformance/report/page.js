"use strict";
(() => {
  const OF_CARD = ["backend", "outcome"];
  const OF_CASE = ["family", "basis", "type"];
  const FILTERS = [...OF_CARD, ...OF_CASE];
  const form = document.getElementById("filters");
  const list = document.getElementById("cards");
  const cards = [...list.children].map((card) => ({
    card,
    text: card.firstElementChild.textContent.toLowerCase(),
    label: card.querySelector(".cases"),
    cases: [...card.querySelectorAll(".case")].map((row) => ({
      row,
      text: `${row.dataset.key} ${row.textContent}`.toLowerCase(),
    })),
  }));
  const all = cards.reduce((sum, {cases}) => sum + cases.length, 0);

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
    const fits = (names, element) =>
      names.every((name) => !parameters.get(name) || element.dataset[name] === parameters.get(name));
    let shownCases = 0;
    let shownCards = 0;
    for (const {card, text, label, cases} of cards) {
      let here = 0;
      for (const {row, text: own} of cases) {
        row.hidden =
          !fits(OF_CARD, card) || !fits(OF_CASE, row) || !words.every((word) => text.includes(word) || own.includes(word));
        here += !row.hidden;
      }
      card.hidden = here === 0;
      const plural = cases.length === 1 ? "" : "s";
      label.textContent = `${here === cases.length || here === 0 ? "" : `${here} of `}${cases.length} case${plural}`;
      shownCases += here;
      shownCards += here > 0;
    }
    document.getElementById("count").textContent =
      `${shownCases} of ${all} cases, which have ${shownCards} of ${cards.length} causes`;
    const key = parameters.get("open");
    const open = [...list.querySelectorAll(".case:not([hidden])")].find((row) => row.dataset.key === key);
    if (open && !open.open) {
      open.closest(".cause").open = true;
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
    if (target.matches(".cause")) {
      const shown = target.querySelectorAll(".case:not([hidden])");
      if (target.open && shown.length === 1) shown[0].open = true;
      return;
    }
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
