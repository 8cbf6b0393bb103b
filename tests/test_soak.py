"""The soak: that it finds nothing in a few calls, and that it finds what is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ortops.operators import OPERATORS
from soak.cases import middling, small
from soak.memory import LEAST_CALLS, MOST_HELD, Sample, growths, held_bytes
from soak.pool import Problem, make_pool, with_wrong_answer
from soak.soak import Plan, soak

pytestmark = pytest.mark.slow

CALLS = 400


@pytest.fixture(scope="module")
def pool() -> list[Problem]:
    return make_pool([*small(1, 16), next(middling(1))])


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.soak", "--problems", "8", *arguments]
    root = Path(__file__).parent.parent
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=300, cwd=root)  # noqa: S603


def test_the_problems_have_every_operator_type_and_choice() -> None:
    cases = [*small(0, 300), *middling(0)]
    types = {(case.operator, case.element_type) for case in cases}
    assert types == {(o.name, kind) for o in OPERATORS for kind in o.element_types(o.inputs[0])}
    values = {(case.operator, name, str(value)) for case in cases for name, value in case.attributes.items()}
    assert values >= {(o.name, a.name, choice) for o in OPERATORS for a in o.attributes for choice in a.choices}
    assert {case.outputs for case in cases if case.operator == "RoiAlignGrad"} == {("dX", "drois"), ("dX",), ("drois",)}


def test_all_is_well_in_a_few_calls(pool: list[Problem]) -> None:
    report = soak(Plan(pool, threads=3, calls=CALLS))
    assert report.is_good, report.tally.noted
    assert report.tally.calls == CALLS
    assert 0 < report.tally.refusals < CALLS
    assert 0 < report.tally.sessions < CALLS
    assert report.growths == []


def test_a_wrong_answer_ends_with_status_1() -> None:
    done = command("--calls", "1500", "--wrong")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "x wrong answer" in done.stdout
    assert "so are 1 of" in " ".join(done.stdout.split())


def test_few_calls_end_with_status_0() -> None:
    done = command("--calls", "100", "--threads", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 calls, of which" in done.stdout


def right(pool: list[Problem]) -> Problem:
    return next(problem for problem in pool if problem.expected is not None)


def refused(pool: list[Problem]) -> Problem:
    return next(problem for problem in pool if problem.rule and not problem.refused_when_made)


def not_loaded(pool: list[Problem]) -> Problem:
    return next(problem for problem in pool if problem.refused_when_made)


@pytest.mark.parametrize(
    ("kind", "spoiled"),
    [
        ("wrong answer", lambda pool: with_wrong_answer([right(pool)])),
        ("not refused", lambda pool: [replace(right(pool), expected=None, rule="must be wrong")]),
        ("unexpected error", lambda pool: [replace(refused(pool), expected={"Y": np.zeros(1)})]),
        ("refusal in other words", lambda pool: [replace(refused(pool), rule="must be something else")]),
        (
            "refusal in other words",
            lambda pool: [right(pool), replace(not_loaded(pool), rule="must be something else")],
        ),
    ],
)
def test_what_is_wrong_is_noticed(
    kind: str, spoiled: Callable[[list[Problem]], list[Problem]], pool: list[Problem]
) -> None:
    report = soak(Plan(spoiled(pool), threads=1, calls=CALLS))
    assert set(report.tally.faults) == {kind}
    assert not report.is_good


def test_an_interrupt_ends_it_with_the_report(pool: list[Problem]) -> None:
    def interrupt(sample: Sample) -> None:
        if sample.calls > 10:
            raise KeyboardInterrupt

    report = soak(Plan(pool), interrupt)
    assert report.tally.calls >= report.samples[-1].calls > 10
    assert report.is_good


def test_a_call_that_does_not_end_is_noticed(pool: list[Problem]) -> None:
    report = soak(Plan(pool, most_seconds=0.0))
    assert report.tally.faults["no end"]


def samples(
    resident: Callable[[float], float] = lambda _: 3e8,
    held: Callable[[float], float] | None = lambda _: 5e7,
    most: int = 4 * LEAST_CALLS,
) -> list[Sample]:
    """Of a soak whose memory is a function of the part of it that is over."""
    return [
        Sample(
            part, int(part * most), 0, int(5000 * part), int(500 * part), int(resident(part)), held and int(held(part))
        )
        for part in np.linspace(0, 1, 400)
    ]


def test_memory_that_rises_and_falls_is_flat() -> None:
    noise = np.random.default_rng(0)
    shapes: list[Callable[[float], float]] = [
        lambda _: 2e8,
        lambda part: 2e8 + 1e8 * min(part, 0.4),
        lambda part: 2e8 - 1e8 * part,
        lambda _: 2e8 + noise.uniform(0, 2 * MOST_HELD),
        lambda part: 2e8 + (10 * MOST_HELD if int(200 * part) % 5 == 0 else 0),
    ]
    for shape in shapes:
        resident, held = growths(samples(shape, shape))
        assert resident.is_flat
        assert held.is_flat


@pytest.mark.parametrize("bytes_a_call", [8, 1000])
def test_memory_that_is_kept_is_noticed(bytes_a_call: int) -> None:
    calls = 4 * LEAST_CALLS
    resident, held = growths(samples(held=lambda part: 5e7 + bytes_a_call * calls * part))
    assert resident.is_flat
    assert not held.is_flat
    assert held.slope == pytest.approx(1000 * bytes_a_call, rel=0.02)
    assert held.slope > held.noticeable


def test_where_the_allocator_does_not_tell_resident_memory_is_judged() -> None:
    for rise, is_flat in ((1e7, True), (3e8, False)):
        (resident,) = growths(samples(lambda part, rise=rise: 3e8 + rise * part, None))  # type: ignore[misc]
        assert resident.is_flat == is_flat


@pytest.mark.skipif(held_bytes() is None, reason="the C library does not tell")
def test_what_is_handed_out_is_counted() -> None:
    before = held_bytes()
    kept = [np.ones(1000) for _ in range(1000)]
    after = held_bytes()
    assert before is not None
    assert after is not None
    assert after - before >= sum(array.nbytes for array in kept)


def test_of_few_calls_nothing_is_said() -> None:
    assert growths([]) == []
    assert growths(samples(most=LEAST_CALLS - 1)) == []
