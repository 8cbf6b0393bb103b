# SPDX-License-Identifier: MIT
"""Lists of expected failures, which a run reads and writes, and the number of cases that a run has to judge at least."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ortops
from conformance.case import Array
from conformance.cases import collect
from conformance.expected_failures import ExpectedFailure, Floor, find, read
from conformance.outcome import Outcome, Result
from conformance.report import failure_list, terminal
from suite_runs import outcomes, report, run

BY_ID = {case.id: case for case in collect()}
IDS = list(BY_ID)
SCENARIO = "roi_align/edge/half_pixel_inside"
INSIDE = f"{SCENARIO}/v16/float"
EDGE = [case_id for case_id in IDS if case_id.startswith("roi_align/edge/")]
GLOB = "roi_align/edge/half_pixel_*/v16/*"
SELECTED = run("--list", "--select", GLOB).output.split()
FLOATS = [case_id for case_id in SELECTED if case_id.endswith("/float")]

pytestmark = pytest.mark.usefixtures("no_processes")


@pytest.mark.parametrize(
    ("base", "outcome", "status", "last"),
    [
        ("NoHalfPixel", "expected_failure", 0, "0 passed, 0 failed"),
        ("Control", "failed", 1, "0 passed, 1 unexpected pass"),
    ],
)
@pytest.mark.parametrize("is_own", [True, False])
def test_an_expected_failure_is_no_failure_unless_it_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str, outcome: str, status: int, last: str, is_own: bool
) -> None:
    name = f"own_{tmp_path.name}"
    failures = "{'*_inside/*': 'half a pixel off'}" if is_own else "{}"
    text = f"import wrong_backends\nclass Own(wrong_backends.{base}):\n    EXPECTED_FAILURES = {failures}\n"
    (tmp_path / f"{name}.py").write_text(text, "utf-8")
    (tmp_path / "known.toml").write_text(f'[[expected_failure]]\nid = "{INSIDE}"\nreason = "half a pixel off"\n')
    monkeypatch.syspath_prepend(tmp_path)
    option = [] if is_own else ["--expected-failures", tmp_path / "known.toml"]
    result, data = report(tmp_path, "--backend", f"{name}:Own", "--select", INSIDE, *option)
    assert (result.exit_code, outcomes(data)) == (status, {INSIDE: outcome})
    assert "half a pixel off" in data["cases"][0]["message"]
    lines = result.output.splitlines()
    assert lines[-1] == last
    assert status == lines.count("take unexpected passes off the list, as --write-expected-failures F --update does")


def test_a_list_of_expected_failures_has_globs_and_ids(tmp_path: Path) -> None:
    text = f"""
[[expected_failure]]
id = "{INSIDE}"
reason = "one case"
[[expected_failure]]
glob = "roi_align/edge/*/v16/*"
reason = "many"
crashes = true
"""
    (tmp_path / "known.toml").write_text(text, "utf-8")
    known = read(tmp_path / "known.toml", IDS).failures
    assert find(known, INSIDE) == ExpectedFailure(INSIDE, "one case")
    assert find(known, INSIDE.replace("float", "double")) == ExpectedFailure("roi_align/edge/*/v16/*", "many", True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[", "must be TOML in UTF-8"),
        (
            "failures = 1",
            "has failures: must have tables [[expected_failure]], found_with, level, at_least, select, exclude and",
        ),
        (
            "expected_failure = 1",
            "must have tables [[expected_failure]], found_with, level, at_least, select, exclude and",
        ),
        ('[[expected_failure]]\nreason = "x"', "expected_failure 1 has reason: must have one of id, glob and cases"),
        ('[[expected_failure]]\nid = "a"\nglob = "b"', "must have one of id, glob and cases"),
        ('[[expected_failure]]\ncases = []\nreason = "x"', "cases = []: must be a list of globs that is not empty"),
        ('[[expected_failure]]\ncases = ["*", "no"]\nreason = "x"', "cases = 'no': must match a case"),
        ('[[expected_failure]]\nglob = "*"', "reason = None: must be a string that is not empty"),
        ('[[expected_failure]]\nglob = 3\nreason = "x"', "glob = 3: must be a string that is not empty"),
        ('[[expected_failure]]\nglob = "*"\nreason = "x"\ncrashes = 1', "crashes = 1: must be true or false"),
        ('[[expected_failure]]\nglob = "*"\nreason = "x"\nnote = "y"', "note = 'y': must be one of id, glob"),
        ('[[expected_failure]]\nglob = "no/such/*"\nreason = "x"', "glob = 'no/such/*': must match a case"),
        ('[[expected_failure]]\nid = "roi_align/*"\nreason = "x"', "id = 'roi_align/*': must be the id of a case"),
        ('level = "all"', "level = 'all': must be one of core, standard, strict"),
        ("at_least = true", "at_least = True: must be a number of cases, at least 1"),
        ("at_least = 0", "at_least = 0: must be a number of cases"),
        ('select = "*"', "at_least = None: must be a number of cases"),
        ("at_least = 1\nselect = 1", "select = 1: must be a glob"),
        ("at_least = 1\nexclude = ''", "exclude = '': must be a list of globs"),
    ],
)
def test_a_wrong_list_of_expected_failures_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "known.toml").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=re.escape(message)):
        read(tmp_path / "known.toml", IDS)


def test_a_run_with_the_list_that_a_run_wrote_passes(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    asked = ["--backend", "wrong_backends:NoHalfPixel", "--select"]
    few = f"{SCENARIO[:-7]}*/v16/float"
    result = run(*asked, few, "--write-expected-failures", file)
    assert result.exit_code == 0, result.output
    assert re.search(r"\d reasons? for \d+ failing cases written to ", result.output.splitlines()[-1])
    known = read(file, IDS).failures
    assert any(entry.reason.startswith("answers like NoHalfPixel: ") for entry in known)
    assert re.match(r'found_with = "wrong_backends:NoHalfPixel, onnx \S+, ortops \S+"\n', file.read_text("utf-8"))
    result = run(*asked, few, "--expected-failures", file)
    assert (result.exit_code, result.output.splitlines()[-1].split(", ")[1]) == (0, "0 failed")
    # One reason by hand, and one entry too many.
    by_hand = re.sub(r'"answers like NoHalfPixel[^"]*"', '"by hand"', file.read_text("utf-8"))
    file.write_text(f'{by_hand}[[expected_failure]]\nid = "{SCENARIO}/v10/float"\nreason = "no longer"\n', "utf-8")
    result = run(*asked, f"{SCENARIO}/v1*/float", "--write-expected-failures", file, "--update")
    assert result.exit_code == 0, result.output
    updated = read(file, IDS).failures
    assert "by hand" in {entry.reason for entry in updated}
    assert f"- no longer\n    {SCENARIO}/v10/float\n" in result.output


def test_globs_match_the_cases_and_no_others() -> None:
    counted = Counter(glob for case_id in EDGE for glob in failure_list._globs_of(case_id))  # noqa: SLF001
    for wanted in (EDGE, EDGE[::7], [i for i in EDGE if "/v16/" in i], [i for i in EDGE if i.startswith(SCENARIO)]):
        globs = failure_list.covering(wanted, counted)
        assert [i for i in EDGE if any(fnmatchcase(i, glob) for glob in globs)] == wanted
    assert globs == [f"{SCENARIO}/*"]


def of(outcome: Outcome, message: str = "refused: E: no", old: str = "old") -> list[ExpectedFailure]:
    """The list of one case in float, while the other types pass, from a list with all of them."""
    cases = [BY_ID[f"{SCENARIO}/v16/{kind}"] for kind in ("float", "double")]
    results = [Result(cases[0].id, outcome, message), Result(cases[1].id, Outcome.PASSED)]
    return failure_list.listed(results, [], [ExpectedFailure(f"{SCENARIO}/v16/[fd]*", old)], IDS)


def test_an_older_entry_shrinks_to_what_still_fails_or_was_not_run() -> None:
    kept = [f"{SCENARIO}/v16/float", f"{SCENARIO}/v16/float16"]
    assert of(Outcome.FAILED) == [ExpectedFailure(case_id, "old") for case_id in kept]
    assert of(Outcome.UNSUPPORTED) == [ExpectedFailure(kept[1], "old")]
    crashed = ExpectedFailure(kept[0], "ended", crashes=True)
    assert of(Outcome.CRASHED, "ended") == [ExpectedFailure(kept[1], "old"), crashed]
    diagnosis = "answers like NoHalfPixel: it omits half a pixel"
    stays = ExpectedFailure(kept[1], diagnosis)
    assert of(Outcome.FAILED, "refused", diagnosis) == [stays, ExpectedFailure(kept[0], "refused")]
    assert of(Outcome.FAILED, diagnosis, diagnosis) == [ExpectedFailure(kept[0], diagnosis), stays]


# How many cases a run has to judge.


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A backend of float and double, off by one in float; `_fewer` has float alone. The folder is an empty one."""
    monkeypatch.chdir(tmp_path)
    return f"{__name__}:answers"


def floor_of_list() -> Floor | None:
    return read(Path("known.toml"), IDS).floor


def answers(_op_type: str, inputs: Mapping[str, Array], attributes: Mapping[str, Any], _outputs: object) -> Array:
    kind = inputs["X"].dtype
    if kind not in (np.float32, np.float64):
        raise NotImplementedError("not this type")
    return np.asarray(ortops.roi_align(*inputs.values(), **attributes) + (kind == np.float32))


def answers_fewer(op_type: str, inputs: Mapping[str, Array], attributes: Mapping[str, Any], outputs: object) -> Array:
    if inputs["X"].dtype != np.float32:
        raise NotImplementedError("not this type")
    return answers(op_type, inputs, attributes, outputs)


@pytest.mark.parametrize(("number", "status"), [(len(FLOATS), 0), (len(FLOATS) + 1, 1)])
def test_fewer_judged_cases_than_at_least_fail_the_run(backend: str, number: int, status: int) -> None:
    Path("all.toml").write_text('[[expected_failure]]\nglob = "*"\nreason = "one off"\n', "utf-8")
    asked = ("--backend", f"{backend}_fewer", "--select", GLOB, "--expected-failures", "all.toml")
    result = run(*asked, "--at-least", number)
    assert result.exit_code == status
    told = f"{len(FLOATS)} of {len(SELECTED)} cases were judged: must be at least {number}\n"
    assert result.output.endswith(told) == bool(status)


def test_a_list_that_a_run_wrote_fails_a_run_that_judges_fewer_of_its_cases(backend: str) -> None:
    asked = ("--select", GLOB, "--exclude", "*huge*")
    assert run("--backend", f"{backend}", *asked, "--write-expected-failures", "known.toml").exit_code == 0
    floor = floor_of_list()
    assert floor is not None
    assert (floor.select, floor.exclude) == (GLOB, ("*huge*",))
    assert 0 < len([i for i in FLOATS if "huge" not in i]) < floor.at_least < len(SELECTED)
    listed = ("--expected-failures", "known.toml")
    assert run("--backend", f"{backend}", *asked, *listed).exit_code == 0
    fewer = run("--backend", f"{backend}_fewer", *asked, *listed)
    assert (fewer.exit_code, "0 failed" in fewer.output) == (1, True)
    assert f"cases were judged: must be at least {floor.at_least}" in fewer.output
    # Parts of these cases have no floor; with more cases it holds.
    for part in (("--select", GLOB, "--shard", "1/2"), ("--select", FLOATS[0])):
        assert run("--backend", f"{backend}_fewer", *part, *listed).exit_code == 0
    wider = run("--backend", f"{backend}_fewer", "--select", GLOB.replace("v16", "v*"), *listed)
    assert f"cases were judged: must be at least {floor.at_least}" in wider.output


def test_an_update_of_a_part_keeps_the_floor_and_one_of_the_whole_says_what_changes(backend: str) -> None:
    written = ("--write-expected-failures", "known.toml")
    run("--backend", f"{backend}", "--select", GLOB, *written)
    floor = floor_of_list()
    part = run("--backend", f"{backend}_fewer", "--select", FLOATS[0], *written, "--update")
    assert (floor_of_list(), "judged" in part.output) == (floor, False)
    whole = run("--backend", f"{backend}_fewer", "--select", GLOB, *written, "--update")
    assert floor_of_list() == Floor(len(FLOATS), GLOB)
    assert f"- {floor}\n+ at least {len(FLOATS)} judged cases in {GLOB}\n" in whole.output


def test_a_shard_writes_no_floor(backend: str) -> None:
    run("--backend", f"{backend}", "--select", GLOB, "--shard", "1/2", "--write-expected-failures", "known.toml")
    assert floor_of_list() is None


def test_large_cases_whose_time_decides_whether_they_are_judged_are_in_no_floor(backend: str) -> None:  # noqa: ARG001
    glob = "roi_align/sizes/rois_2[15]*/v16/*/float"
    done = run("--backend", "reference", "--select", glob, "--write-expected-failures", "known.toml")
    assert ("4 passed" in done.output, floor_of_list()) == (True, Floor(3, glob))


def test_a_list_is_written_before_the_report_is_printed(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(terminal, "write", ends)
    assert run("--backend", backend, "--select", INSIDE, "--write-expected-failures", "known.toml").exit_code == 1
    assert len(read(Path("known.toml"), IDS).failures) == 1
