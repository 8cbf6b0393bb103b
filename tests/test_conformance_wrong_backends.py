"""The suite tells right from wrong: each of the faults fails a case, and the same code without a fault none."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import wrong_backends
import wrong_dml_backends
import wrong_resample_backends
from conformance.backends.external import External
from conformance.outcome import Outcome, Result
from conformance.run import ask, run_suite
from conformance.vectors import collect

CASES = {
    family: [case for case in collect() if case.definition.family == family]
    for family in ("roi_align", "dml_roi_align", "dml_resample")
}
FAULTS = [
    *[pytest.param(backend, "roi_align", id=backend.__name__) for backend in wrong_backends.WRONG],
    *[pytest.param(backend, "dml_roi_align", id=backend.__name__) for backend in wrong_dml_backends.WRONG],
    *[pytest.param(backend, "dml_resample", id=backend.__name__) for backend in wrong_resample_backends.WRONG],
]
Backend = (
    type[wrong_backends.Control] | type[wrong_dml_backends.DmlControl] | type[wrong_resample_backends.ResampleControl]
)


def results(backend: Backend, family: str) -> Iterator[Result]:
    return run_suite(CASES[family], functools.partial(ask, External(backend)), ())


@pytest.mark.parametrize(
    ("backend", "family"),
    [
        (wrong_backends.Control, "roi_align"),
        (wrong_dml_backends.DmlControl, "dml_roi_align"),
        (wrong_resample_backends.ResampleControl, "dml_resample"),
    ],
)
def test_a_second_implementation_passes_every_case(backend: Backend, family: str) -> None:
    found = [f"{r.case.id}: {r.message}" for r in results(backend, family) if r.outcome != Outcome.PASSED]
    assert found == []


@pytest.mark.parametrize(("backend", "family"), FAULTS)
def test_a_wrong_implementation_fails(backend: Backend, family: str) -> None:
    assert any(result.outcome is Outcome.FAILED for result in results(backend, family))


def test_every_case_is_of_a_family_that_has_a_second_implementation() -> None:
    assert sum(map(len, CASES.values())) == len(collect())


@pytest.mark.parametrize(
    ("wrong", "count"),
    [(wrong_backends.WRONG, 35), (wrong_dml_backends.WRONG, 12), (wrong_resample_backends.WRONG, 16)],
)
def test_each_fault_of_a_family_is_another(wrong: tuple[Backend, ...], count: int) -> None:
    assert len({backend.fault for backend in wrong}) == count


def test_the_readme_says_how_few_the_official_vectors_catch() -> None:
    official = [case for case in CASES["roi_align"] if case.family == "roi_align/official"]
    caught = [
        backend
        for backend in wrong_backends.WRONG
        if any(r.outcome.is_bad for r in run_suite(official, functools.partial(ask, External(backend)), ()))
    ]
    readme = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
    said = f"{len(FAULTS)} wrong implementations; ONNX's own vectors catch {len(caught)} of the {len(wrong_backends.WRONG)}"
    assert said in " ".join(readme.split())
