"""The suite tells right from wrong: each of the faults fails a case, and the same code without a fault none."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

import wrong_backends
import wrong_dml_backends
from conformance.backends.external import External
from conformance.outcome import Outcome, Result
from conformance.run import ask, run_suite
from conformance.vectors import collect

CASES = {
    family: [case for case in collect() if case.definition.family == family]
    for family in ("roi_align", "dml_roi_align")
}
FAULTS = [
    *[pytest.param(backend, "roi_align", id=backend.__name__) for backend in wrong_backends.WRONG],
    *[pytest.param(backend, "dml_roi_align", id=backend.__name__) for backend in wrong_dml_backends.WRONG],
]
Backend = type[wrong_backends.Control] | type[wrong_dml_backends.DmlControl]


def results(backend: Backend, family: str) -> Iterator[Result]:
    return run_suite(CASES[family], functools.partial(ask, External(backend)), ())


@pytest.mark.parametrize(
    ("backend", "family"),
    [(wrong_backends.Control, "roi_align"), (wrong_dml_backends.DmlControl, "dml_roi_align")],
)
def test_a_second_implementation_passes_every_case(backend: Backend, family: str) -> None:
    found = [f"{r.case.id}: {r.message}" for r in results(backend, family) if r.outcome != Outcome.PASSED]
    assert found == []


@pytest.mark.parametrize(("backend", "family"), FAULTS)
def test_a_wrong_implementation_fails(backend: Backend, family: str) -> None:
    assert any(result.outcome is Outcome.FAILED for result in results(backend, family))


def test_every_case_is_of_a_family_that_has_a_second_implementation() -> None:
    assert sum(map(len, CASES.values())) == len(collect())


@pytest.mark.parametrize("module", [wrong_backends.WRONG, wrong_dml_backends.WRONG])
def test_there_are_twelve_faults_of_a_family_and_each_is_another(module: tuple[Backend, ...]) -> None:
    assert len({backend.fault for backend in module}) == 12
