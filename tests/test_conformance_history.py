# SPDX-License-Identifier: MIT
"""The page over releases: `python -m conformance history`; and that pages fit on telephones and computers."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from conformance.cases import by_id
from conformance.outcome import Outcome, Reason, Result
from conformance.report import record
from conformance.report.record import Origin, Report
from suite_runs import INSIDE, run, stored

pytestmark = pytest.mark.usefixtures("no_processes")

CASES = by_id()
NAMES = [f"roi_align/edge/{name}/v16/float" for name in ("half_pixel_inside", "one_pixel_map", "sample_at_minus_1")]
OURS = "roi_align/refusal/rois_rank_1/v16/float"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SITE = Path(__file__).parents[1] / "build/site"


def report(folder: Path, version: str, outcomes: str, backend: str = "mine", ids: list[str] = NAMES) -> Path:
    """A report with an outcome for each case by its first letter: passed, failed, departed, unsupported, or listed."""
    letters = {outcome.value[0]: outcome for outcome in Outcome} | {"l": Outcome.FAILED}
    results = {
        i: Result(i, letters[o], "why", basis=CASES[i].basis, reason=Reason.LISTED if o == "l" else None)
        for i, o in zip(ids, outcomes, strict=True)
    }
    file = folder / f"{backend}-{version}-{len(list(folder.iterdir()))}.json"
    file.write_text(record.render(Report(backend, results, Origin(version=version))), "utf-8")
    return file


def page(folder: Path, *arguments: object) -> str:
    """The text of a page with one space or line end between words, and without tags except those of pictures."""
    done = run("history", *arguments, "--html", folder / "h.html")
    assert done.exit_code == 0, done.output
    text = (folder / "h.html").read_text("utf-8")
    assert not re.search(r'<(script|link)\b|(src|href)="(?!#|data:)', text)
    return " ".join(html.unescape(re.sub(r"<(?!rect)[^>]*>", " ", text.partition("<body>")[2])).split())


def test_releases_are_in_order_of_their_numbers_and_each_says_what_passed_and_broke(tmp_path: Path) -> None:
    versions = {"1.9.0": "plf", "1.10.0": "pff", "1.10.0rc1": "fff", "1.2": "puf"}
    files = [report(tmp_path, version, outcomes) for version, outcomes in versions.items()]
    text = page(tmp_path, *files, report(tmp_path, "7", "ppp", "another"))
    assert re.findall(r"(\S+) <rect[^>]*> (\d of \d) passed <rect[^>]*> (\d of \d) rules broken", text) == [
        ("7", "3 of 3", "0 of 3"),
        ("1.10.0", "1 of 3", "2 of 3"),
        ("1.10.0rc1", "0 of 3", "3 of 3"),
        ("1.9.0", "2 of 3", "1 of 3"),
        ("1.2", "1 of 2", "1 of 2"),
    ]
    where = ["1.10.0rc1 to 1.10.0", "1.2 to 1.10.0", "1.10.0rc1"]
    for case_id, releases in zip([NAMES[1], NAMES[2], NAMES[0]], where, strict=True):
        cells = r"(?: <rect[^>]*> [\w.]+: (?:broken|kept|not judged)){4}"
        assert re.search(f"{re.escape(CASES[case_id].note)}{cells} {releases} explain", text), case_id
    assert [text.count(f": {word}") for word in ("not judged", "kept")] == [1, 4]
    assert f"conformanceexplain{INSIDE}" in text.replace(" ", "")


def test_parts_of_a_release_are_one_and_cases_and_runtimes_that_nobody_knows_are_shown(tmp_path: Path) -> None:
    parts = [report(tmp_path, "1", "p", ids=[NAMES[0]]), report(tmp_path, "1", "f", ids=[NAMES[1]])]
    old = stored(tmp_path / "old.json", "<b>old", {"gone/a/b": "failed", "gone/a/c": "passed"})
    text = page(tmp_path, *parts, old)
    for words in ("1 of 2 passed", "gone/a/b, a case of another release of the suite", "<b>old"):
        assert words in text
    assert "2 of 2 rules broken" in page(
        tmp_path, parts[1], report(tmp_path, "1", "d", ids=[OURS]), "--level", "strict"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "wrong.json is not a report of --json: Expecting"),
        ('{"backend": "b"}', "wrong.json is not a report of --json"),
    ],
)
def test_a_wrong_file_and_a_page_in_place_of_a_report_are_refused(tmp_path: Path, text: str, message: str) -> None:
    wrong, right = tmp_path / "wrong.json", report(tmp_path, "1", "ppp")
    wrong.write_text(text, "utf-8")
    for files, page, due in (([right, wrong], "h.html", message), ([right], right.name, "must not be one of REPORTS")):
        done = run("history", *files, "--html", tmp_path / page)
        assert (done.exit_code, due in " ".join(done.output.split())) == (2, True), done.output
    assert not (tmp_path / "h.html").exists()


def wide_pages(folder: Path, names: Iterable[str]) -> list[str]:
    """The pages that scroll sideways, all parts open, in a frame of 390 or 1280 pixels; in the latter, also in a block."""
    tells = """<script>onload = () => {
      const blocks = innerWidth < 1280 ? [] : document.querySelectorAll("pre code, .md-typeset__scrollwrap")
      const wide = [document.documentElement, ...blocks].some(each => each.scrollWidth > each.clientWidth)
      parent.postMessage([name, wide], "*") }</script>"""
    frames = ""
    for name in names:
        text = (folder / name).read_text("utf-8").replace("<details>", "<details open>").replace("</body>", tells)
        (folder / name).write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^\n]*', "", text), "utf-8")
        frames += "".join(
            f'<iframe name="{name}:{w}" src="{name}" width="{w}" height="30000" style="border: 0"></iframe>'
            for w in (390, 1280)
        )
    listens = "<title>-</title><script>onmessage = ({data}) => document.title += data + '-'</script>"
    (folder / "all.html").write_text(listens + frames, "utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run(  # noqa: S603
        [str(BROWSER), *options, (folder / "all.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    told = dict(re.findall("-([^-,]+),(true|false)", done.stdout))
    assert len(told) == frames.count("<iframe")
    return [frame for frame, wide in told.items() if wide == "true"]


if BROWSER:  # .ci/run installs one

    def test_no_page_scrolls_sideways_on_a_telephone_or_a_computer(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("conformance.report.files.diagnose", lambda _: [])
        asked = ("--backend", "wrong_backends:answers_one", "--select", "roi_align/edge/*_ratio*/v16/float")
        run(*asked, "--html", tmp_path / "run.html", "--json", tmp_path / "wrong.json")
        files = [report(tmp_path, f"1.{minor}.0", "pff", "a_runtime_with_a_long_name") for minor in range(13)]
        page(tmp_path, *files, tmp_path / "wrong.json")
        assert wide_pages(tmp_path, ["h.html", "run.html"]) == []


if BROWSER and (SITE / "site.css").exists():  # of the last `make site`

    def test_no_page_of_the_site_scrolls_sideways(tmp_path: Path) -> None:
        shutil.copytree(SITE, tmp_path, dirs_exist_ok=True)
        assert wide_pages(tmp_path, [str(path.relative_to(SITE)) for path in SITE.rglob("*.html")]) == []
