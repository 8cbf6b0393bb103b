"""The page of a run, as a browser shows it on a phone and on a screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import browser
from conformance.report import page, record
from suite_runs import INSIDE, run, stored

pytestmark = pytest.mark.usefixtures("no_processes")

BROKEN_WORDS = r"""
(() => {
  const broken = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/[^\s\/_.:-]+[\/_.:-]*/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      if (new Set(Array.from(range.getClientRects(), (box) => box.top)).size > 1) broken.push(word[0]);
    }
  }
  return broken;
})()
"""
"""The words that stand in several lines; names may be broken behind their punctuation marks."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a runtime with a mistake, crashes, and operators that it does not have."""
    folder = tmp_path_factory.mktemp("page")
    asked = ("--select", "*/edge/[h-s]*", "--html", folder / "p.html")
    with pytest.MonkeyPatch.context() as patch:
        from suite_runs import NoProcess

        patch.setattr("conformance.worker_process.WorkerProcess", NoProcess)
        assert run("--backend", "conformance.families.roi_align.mutants:ShiftBeforeScale", *asked).exit_code == 1
    return folder / "p.html"


def test_the_page_has_totals_the_time_and_a_picture_for_each_cause(made: Path) -> None:
    text = made.read_text("utf-8")
    assert text.count("<figure>") == text.count('<img src="data:image/svg+xml;base64,') == 1
    assert len(text) < 500_000
    plain = text.replace("<wbr>", "")
    assert "answers like ShiftBeforeScale: " in plain
    assert re.search(r'<td class="failed">failed</td><td>roi_align/edge/\w+/v16/float</td>', plain)
    assert text.index('<p class="totals">') < text.index("<figure>") < text.index("<table>")


def test_what_a_report_holds_is_text_on_the_page(tmp_path: Path) -> None:
    bad = "</title><b onclick='x'>[red]|*c*\ud800\x00\n"
    file = stored(tmp_path / "a.json", bad, {f"f/{bad}/a": "failed", INSIDE: "failed", "f/no/a": "unsupported"})
    text = page.render(record.read(file), [])
    assert text.count("&lt;b onclick=&#39;x&#39;&gt;[red]|*c*\\ud800\\x00\\n") > 2
    assert not re.search("<(b onclick|script|link)\\b", text)


@pytest.mark.skipif(browser.name() is None, reason="no browser is installed")
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_whole_page(made: Path, tmp_path: Path, width: int) -> None:
    tops = "['.totals', 'figure', 'table'].map((name) => document.querySelector(name).getBoundingClientRect().top)"
    shown = {
        "document.title": "Conformance of conformance.families.roi_align.mutants:ShiftBeforeScale",
        "Array.from(document.images, (image) => image.naturalWidth)": [800],
        f"{tops}.every((top, k, all) => k == 0 || all[k - 1] <= top)": True,
        "document.querySelector('.totals').getBoundingClientRect().bottom < 500": True,
        BROKEN_WORDS: [],
        f"document.documentElement.scrollWidth <= {width}": True,
        "document.querySelectorAll('td.unsupported').length": 1,
    }
    total, whole, groups, *found = browser.values(
        made.read_text("utf-8"),
        width,
        [
            "document.querySelector('.totals').innerText",
            "document.body.innerText",
            "document.querySelector('details').innerText",
            *shown,
        ],
        tmp_path,
    )
    assert found == list(shown.values())
    assert total.split(" passed")[0].replace(" of ", "/") in whole
    assert total.endswith(" s")
    first, *names = groups.split()
    assert (first, all("/" in name for name in names)) == ("which", True)
