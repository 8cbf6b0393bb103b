"""The suite tells right from wrong: each of twelve faults fails a case, and the same code without a fault none."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

import wrong_backends
from conformance.backends.external import External
from conformance.outcome import Outcome, Result
from conformance.run import ask, run_suite
from conformance.vectors import collect


def results(backend: type[wrong_backends.Control]) -> Iterator[Result]:
    return run_suite(collect(), functools.partial(ask, External(backend)), ())


def test_a_second_implementation_passes_every_case() -> None:
    assert [f"{r.case.id}: {r.message}" for r in results(wrong_backends.Control) if r.outcome != Outcome.PASSED] == []


@pytest.mark.parametrize("backend", wrong_backends.WRONG)
def test_a_wrong_implementation_fails(backend: type[wrong_backends.Control]) -> None:
    assert any(result.outcome is Outcome.FAILED for result in results(backend))


def test_there_are_twelve_faults_and_each_is_another() -> None:
    assert len({backend.fault for backend in wrong_backends.WRONG}) == 12
