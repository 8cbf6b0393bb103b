"""Lists of expected failures that are written from a run."""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from conformance.expected_failures import ExpectedFailure, read
from conformance.outcome import Outcome, Result
from conformance.report import failure_list
from conformance.vectors import collect
from suite_runs import run

BY_ID = {case.id: case for case in collect()}
INSIDE = "roi_align/edge/half_pixel_inside"
EDGE = [case_id for case_id in BY_ID if case_id.startswith("roi_align/edge/")]


@pytest.mark.usefixtures("no_processes")
def test_a_run_with_the_list_that_a_run_wrote_passes(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    asked = ["--backend", "wrong_backends:NoHalfPixel", "--select"]
    few = f"{INSIDE[:-7]}*/v16/float"
    result = run(*asked, few, "--write-expected-failures", file)
    assert result.exit_code == 0, result.output
    assert re.search(r"\d reasons? for \d+ failing cases written to ", result.output.splitlines()[-1])
    known = read(file, list(BY_ID)).failures
    assert any(entry.reason.startswith("answers like NoHalfPixel: ") for entry in known)
    assert re.match(r'found_with = "wrong_backends:NoHalfPixel, onnx \S+, ortops \S+"\n', file.read_text("utf-8"))
    result = run(*asked, few, "--expected-failures", file)
    assert (result.exit_code, result.output.splitlines()[-1].split(", ")[1]) == (0, "0 failed")
    # One reason by hand, and one entry too many.
    by_hand = re.sub(r'"answers like NoHalfPixel[^"]*"', '"by hand"', file.read_text("utf-8"))
    file.write_text(f'{by_hand}[[expected_failure]]\nid = "{INSIDE}/v10/float"\nreason = "no longer"\n', "utf-8")
    result = run(*asked, f"{INSIDE}/v1*/float", "--write-expected-failures", file, "--update")
    assert result.exit_code == 0, result.output
    updated = read(file, list(BY_ID)).failures
    assert "by hand" in {entry.reason for entry in updated}
    assert f"- {INSIDE}/v10/float: no longer" in result.output.splitlines()


def test_globs_match_the_cases_and_no_others() -> None:
    counted = Counter(glob for case_id in EDGE for glob in failure_list._globs_of(case_id))  # noqa: SLF001
    for wanted in (EDGE, EDGE[::7], [i for i in EDGE if "/v16/" in i], [i for i in EDGE if i.startswith(INSIDE)]):
        globs = failure_list.covering(wanted, counted)
        assert [i for i in EDGE if any(fnmatchcase(i, glob) for glob in globs)] == wanted
    assert globs == [f"{INSIDE}/*"]


def of(outcome: Outcome, message: str = "refused: E: no") -> list[ExpectedFailure]:
    """The list of one case in float, while the other types pass, from a list with all of them."""
    cases = [BY_ID[f"{INSIDE}/v16/{kind}"] for kind in ("float", "double")]
    results = [Result(cases[0], outcome, message), Result(cases[1], Outcome.PASSED)]
    return failure_list.listed(results, [], [ExpectedFailure(f"{INSIDE}/v16/[fd]*", "old")], list(BY_ID))


def test_an_older_entry_shrinks_to_what_still_fails_or_was_not_run() -> None:
    kept = [f"{INSIDE}/v16/float", f"{INSIDE}/v16/float16"]
    assert of(Outcome.FAILED) == [ExpectedFailure(case_id, "old") for case_id in kept]
    assert of(Outcome.UNSUPPORTED) == [ExpectedFailure(kept[1], "old")]
    crashed = ExpectedFailure(kept[0], "ended", crashes=True)
    assert of(Outcome.CRASHED, "ended") == [ExpectedFailure(kept[1], "old"), crashed]
