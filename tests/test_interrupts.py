"""Signals while ONNX Runtime computes and makes sessions: a few of the processes of ``python -m tests.interrupted``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from interrupted.outcome import INTERRUPTED, LOST, MISSING, NOT_A_NUMBER, RAISED, RIGHT, WRONG
from interrupted.process import Job, judge, run
from interrupted.storm import AlarmError, storm
from interrupted.subject import Subject

pytestmark = pytest.mark.slow

if os.name == "nt":
    pytest.skip("Windows has no alarms", allow_module_level=True)

OURS, PLAIN = Subject("direct", "ours"), Subject("direct", "plain")
PYTHON_OPERATORS = Subject("pyop", "ours")


@pytest.mark.parametrize(
    ("program", "subject"),
    [
        ("one-interrupt", OURS),
        ("one-interrupt", PLAIN),
        ("one-interrupt", PYTHON_OPERATORS),
        ("storm-run", OURS),
        ("storm-run", PLAIN),
        ("storm-run", PYTHON_OPERATORS),
        ("storm-create", OURS),
        ("storm-create", PLAIN),
        ("storm-kernel", OURS),
        ("nested", OURS),
        ("recursion", OURS),
        ("cold-compile", OURS),
        ("exit", OURS),
    ],
    ids=lambda value: f"{value.engine}-{value.session}" if isinstance(value, Subject) else value,
)
def test_a_call_gives_the_right_answer_or_the_exception_of_the_handler(program: str, subject: Subject) -> None:
    ended = run(Job(program, subject, seed=1, seconds=0.3))
    assert not ended.faults, ended.complaint


def line(outcomes: dict[str, int]) -> str:
    return json.dumps({"outcomes": outcomes, "delay": None, "end": 100.0})


@pytest.mark.parametrize(
    ("status", "output", "end", "says"),
    [
        (-11, line({RIGHT: 1}), 101.0, "status -11: last words"),
        (0, "", 101.0, "prints ''"),
        (0, line({RIGHT: 5, LOST: 2}), 101.0, "2 x lost"),
        (0, line({RIGHT: 5, "other: RuntimeError": 1}), 101.0, "1 x other: RuntimeError"),
        (0, line({RAISED: 5}), 101.0, "No run gives the right answer"),
        (0, line({RIGHT: 5}), 161.0, "61 s after its program"),
    ],
)
def test_what_is_wrong_with_a_process_is_noticed(status: int, output: str, end: float, says: str) -> None:
    job = Job("storm-run", OURS)
    assert not judge(job, 0, line({RIGHT: 5, RAISED: 3}), "", 101.0).faults
    ended = judge(job, status, output, "last words", end)
    assert says in ended.complaint
    assert len(ended.faults) == 1


def test_what_is_right_depends_on_the_kind_of_session() -> None:
    for outcome, subjects in {
        INTERRUPTED: [PLAIN],
        NOT_A_NUMBER: [Subject("pyop", "plain")],
        RAISED: [OURS, PLAIN, PYTHON_OPERATORS, Subject("pyop", "plain")],
        WRONG: [],
        MISSING: [],
    }.items():
        for subject in (OURS, PLAIN, PYTHON_OPERATORS, Subject("pyop", "plain")):
            ended = judge(Job("storm-run", subject), 0, line({RIGHT: 1, outcome: 1}), "", 101.0)
            assert bool(ended.faults) == (subject not in subjects)


def test_a_process_that_hangs_is_noticed() -> None:
    assert "It hangs" in run(Job("storm-run", OURS, seconds=60.0), limit=0.5).complaint


@pytest.fixture
def alarms() -> Iterator[None]:
    """Alarms are as they were, afterwards."""
    handler = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, handler)


@pytest.mark.usefixtures("alarms")
def test_a_storm_tells_what_came_of_its_signals() -> None:
    def waits() -> str:
        time.sleep(1.0)
        return RIGHT

    def drops_the_exception() -> str:
        with contextlib.suppress(AlarmError):
            time.sleep(1.0)
        return RIGHT

    def raises_another() -> str:
        try:
            time.sleep(1.0)
        except AlarmError as error:
            raise RuntimeError("no answer") from error
        return RIGHT

    def says_that_it_was_interrupted() -> str:
        try:
            time.sleep(1.0)
        except AlarmError as error:
            raise RuntimeError("RoiAlign_16: interrupted") from error
        return RIGHT

    for attempt, outcome in {
        waits: RAISED,
        drops_the_exception: LOST,
        raises_another: "other: RuntimeError: no answer",
        says_that_it_was_interrupted: INTERRUPTED,
        lambda: WRONG: WRONG,
    }.items():
        assert next(storm(attempt, 0, 0.01)) == outcome
