# SPDX-License-Identifier: MIT
"""Fuzzing: the reference passes, and failures of wrong ones are found, shrunk and written to files that fail again."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from conformance import backends
from conformance.case import Case
from conformance.fuzz import campaign, strategy
from conformance.fuzz.campaign import Plan
from conformance.fuzz.check import BY_REFERENCE, Failure, check, read_case, with_expectation, write_failure
from conformance.fuzz.strategy import some_cases
from conformance.run import Answer, CaseRunner, ask
from conformance.schedule import WorkerPool
from ortops.operators.asked import BY_NAME
from suite_runs import run

SMALL = 100
"""Numbers in all inputs of a case that was shrunk."""


fuzz = functools.partial(run, "fuzz")


def found(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"*-{kind}-*.json"))


def size(path: Path) -> int:
    return sum(len(entry["values"]) for entry in json.loads(path.read_text("utf-8"))["inputs"].values())


def examiner_of(backend_name: str) -> CaseRunner:
    return CaseRunner(functools.partial(ask, backends.load(backend_name)))


def outcomes(backend_name: str, seed: int, count: int) -> Counter[str]:
    examiner = examiner_of(backend_name)
    checked = (check(case, examiner) for case in some_cases(seed, count))
    return Counter(outcome.message if isinstance(outcome, Failure) else outcome for outcome in checked)


def same(first: Case, second: Case) -> bool:
    arrays = zip(first.inputs.values(), second.inputs.values(), strict=True)
    return (
        (first.operator, first.outputs, list(first.inputs)) == (second.operator, second.outputs, list(second.inputs))
        and repr(first.attributes) == repr(second.attributes)
        and all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in arrays)
    )


def test_the_reference_agrees_with_itself() -> None:
    assert set(outcomes("reference", 0, 40)) == {"passed"}


def test_every_operator_is_asked_right_and_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {case.operator for case in some_cases(0, 480) if case.twin is None} == set(BY_NAME)
    assert {case.operator for case in some_cases(0, 20, ("RoiAlign_16",))} == {"RoiAlign_16"}
    monkeypatch.setattr(strategy, "CORRUPT", 1.0)
    for name in BY_NAME:
        due, batches = set[str | None](), (some_cases(seed, 16, (name,)) for seed in range(20))
        wanted = {"attribute", "data"} if BY_NAME[name].attributes else {"data"}
        while not due >= wanted:
            due |= {with_expectation(replace(case, twin=None)).expects_error for case in next(batches)}


def test_every_case_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    for case in some_cases(2, 30):
        write_failure(path, Failure(case, "values", ""), "none")
        assert same(read_case(path), case)


def test_the_failure_of_a_mutant_is_found_and_shrunk_and_fails_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend_name, operator = "conformance.families.roi_align.mutants:XAndYSwapped", "RoiAlign_16"
    monkeypatch.setattr("hypothesis.internal.conjecture.engine.MAX_SHRINKS", 60)  # seconds
    in_this_process = SimpleNamespace(check=functools.partial(check, runner=examiner_of(backend_name)))
    monkeypatch.setattr(campaign, "own_child", lambda *_: in_this_process)
    report = campaign.run_round(Plan(backend_name, 0, (operator,)), 0, 12, math.inf)
    assert report.counts["passed"] >= 1
    failure = next(failure for failure in report.failures if failure.kind == "values")
    path, examiner = tmp_path / "case.json", examiner_of(backend_name)
    write_failure(path, failure, backend_name)
    assert size(path) <= SMALL
    again = check(read_case(path), examiner)
    assert isinstance(again, Failure)
    assert (again.kind, again.case.operator) == ("values", operator)
    assert check(read_case(path), examiner_of("reference")) == "passed"


def test_a_case_that_ends_the_backend_is_found_and_the_others_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hypothesis.internal.conjecture.engine.MAX_SHRINKS", 1)  # each of them costs a process
    arguments = ("--cases", "6", "--jobs", "1", "--operator", "RoiAlign_16", "--out", str(tmp_path))
    result = fuzz("--backend", "rude_backends:ends_itself_at_max", *arguments)
    assert result.exit_code == 1
    assert "the process ended with signal 6 (Abort" in result.output
    assert " unsupported" in result.output.splitlines()[-1]
    (path, *_) = found(tmp_path, "crash")
    assert read_case(path).attributes["mode"] == "max"


def test_onnxruntime_fails_as_it_is_known_to(tmp_path: Path) -> None:
    inputs: dict[str, Any] = {
        "X": np.ones((1, 1, 3, 3), np.float32),
        "rois": np.array([[2, 1, 1, 2]], np.float32),
        "batch_indices": np.zeros(1, np.int64),
    }
    path, case = tmp_path / "case.json", Case("x/fuzz/0", BY_REFERENCE, "RoiAlign_16", {}, inputs, ("Y",), "by hand")
    write_failure(path, Failure(case, "refused", ""), "onnxruntime")
    result = fuzz("--backend", "onnxruntime", "--replay", str(path))
    assert (result.exit_code, result.output.count("refused: ")) == (1, 1)
    assert result.output.startswith("RoiAlign_16: refused: ")
    right = fuzz("--backend", "reference", "--replay", str(path))
    assert (right.exit_code, right.output) == (0, "passed\n")


def test_any_number_of_processes_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "ROUND", 3)
    plan, reports = Plan("rude_backends:supports_nothing", 0), []
    for jobs in (1, 2):
        with WorkerPool(jobs) as pool:
            reports.append([report for report in campaign.run(plan, pool, 9) if report.counts])
    assert reports[0] == reports[1]
    assert sum((report.counts for report in reports[0]), Counter()) == {"unsupported": 9}


def test_a_campaign_that_is_left_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    monkeypatch.setenv("ASKED", str(asked))
    others = psutil.Process().children(recursive=True)
    with WorkerPool(1) as pool:
        next(_ for _ in campaign.run(Plan("rude_backends:never_ends", 0), pool) if asked.exists())
        processes = [process for process in psutil.Process().children(recursive=True) if process not in others]
    assert len(processes) >= 1
    assert psutil.wait_procs(processes, timeout=20)[1] == []


FIELD = {"images": 256, "channels": 256, "side": 512, "pixels": 2**16, "rois": 256, "ratio": 16}
"""Lengths that occur in practice."""


@pytest.mark.slow
def test_sizes_are_those_of_the_field() -> None:
    met = set[str]()
    for case in itertools.chain.from_iterable(some_cases(seed, 320, ("RoiAlign_16",)) for seed in range(10)):
        if case.twin is None and {"X", "rois"} <= case.inputs.keys():
            images, channels, height, width = case.inputs["X"].shape
            sizes = {"images": images, "channels": channels, "side": max(height, width), "pixels": height * width}
            sizes |= {"rois": len(case.inputs["rois"]), "ratio": case.attributes.get("sampling_ratio", 0)}
            met |= {name for name, size in sizes.items() if size > FIELD[name]}
        if met == set(FIELD):
            break
    assert met == set(FIELD)


def test_values_are_of_both_ends_of_their_type_and_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategy, "WILD", 1.0)
    cases = some_cases(0, 256, ("RoiAlign_16",))
    maps = [x for case in cases if (x := case.inputs.get("X")) is not None and x.dtype == np.float32 and x.size]
    assert any(np.isnan(x).any() for x in maps)
    assert any(np.all(case.inputs["X"] == -np.inf) for case in cases if case.inputs.get("X", np.empty(0)).size)
    assert any(np.isfinite(x).all() and np.abs(x).max() > 2e38 for x in maps)
    assert any(0 < np.abs(x).max() < np.finfo(np.float32).tiny for x in maps)


def test_a_corrupted_case_is_proven_by_the_case_before_its_change() -> None:
    corrupted = [case for case in some_cases(0, 60) if case.twin is not None]
    expecting = [case for case in map(with_expectation, corrupted) if case.expects_error]
    assert expecting
    assert all(case.twin is not None and case.twin.expected is not None for case in expecting)
    unproven = {check(case, CaseRunner(lambda _: Answer("refusal", text="no"))) for case in expecting[:5]}
    assert unproven == {"unsupported"}
