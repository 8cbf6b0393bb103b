"""A run that judges too few cases fails: nothing becomes green because it is skipped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ortops
from conformance.case import Array
from conformance.expected_failures import read
from conformance.expected_failures.floor import Floor
from conformance.vectors import collect
from suite_runs import run, words

GLOB = "roi_align/edge/half_pixel_*/v16/*"
IDS = [case.id for case in collect()]
SELECTED = run("--list", "--select", GLOB).output.split()
FLOATS = [case_id for case_id in SELECTED if case_id.endswith("/float")]

pytestmark = pytest.mark.usefixtures("no_processes")


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
    assert f"- {floor}\n+ at least {len(FLOATS)} judged cases of {GLOB}\n" in whole.output


def test_a_shard_writes_no_floor(backend: str) -> None:
    run("--backend", f"{backend}", "--select", GLOB, "--shard", "1/2", "--write-expected-failures", "known.toml")
    assert floor_of_list() is None


def test_at_least_more_than_all_cases_is_a_wrong_call() -> None:
    result = run("--list", "--select", GLOB, "--at-least", len(SELECTED) + 1)
    assert result.exit_code == 2
    assert f"must be at most the number of cases, {len(SELECTED)}" in words(result)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("at_least = true", "at_least = True: must be a number of cases, 1 at least"),
        ("at_least = 0", "at_least = 0: must be a number of cases"),
        ('select = "*"', "at_least = None: must be a number of cases"),
        ("at_least = 1\nselect = 1", "select = 1: must be a glob"),
        ("at_least = 1\nexclude = ''", "exclude = '': must be a list of globs"),
    ],
)
def test_a_wrong_floor_is_a_wrong_call(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "known.toml").write_text(text, "utf-8")
    result = run("--list", "--expected-failures", tmp_path / "known.toml")
    assert (result.exit_code, message in words(result)) == (2, True), result.output
