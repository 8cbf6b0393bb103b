"""The page of a run, as a browser shows it on a phone and on a screen."""

from __future__ import annotations

from pathlib import Path

import pytest

import browser
from suite_runs import run

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
    assert text.index('<p class="totals">') < text.index("<figure>") < text.index("<table>")


@pytest.mark.skipif(browser.name() is None, reason="no browser is installed")
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_whole_page(made: Path, tmp_path: Path, width: int) -> None:
    with browser.opened(made, tmp_path) as page:
        page.resize(width)
        assert page.value("document.title") == "Conformance of conformance.families.roi_align.mutants:ShiftBeforeScale"
        total, time = page.value("document.querySelector('.totals').innerText").split("; ")
        assert total.split(" passed")[0].replace(" of ", "/") in page.value("document.body.innerText")
        assert time.endswith(" s")
        assert page.value("Array.from(document.images, (image) => image.naturalWidth)") == [800]
        tops = "['.totals', 'figure', 'table'].map((name) => document.querySelector(name).getBoundingClientRect().top)"
        assert page.value(tops) == sorted(page.value(tops))
        assert page.value("document.querySelector('.totals').getBoundingClientRect().bottom") < 500
        assert page.value(BROKEN_WORDS) == []
        assert page.value("document.documentElement.scrollWidth") <= width
        assert page.value("document.querySelectorAll('td.unsupported').length") == 1
        groups = page.value("document.querySelector('details').innerText").split()
        assert (groups[0], all("/" in name for name in groups[1:])) == ("which", True)
