"""The stress programs, each for a process of its own that interrupts itself. They return the counts of their outcomes."""

from __future__ import annotations

import functools
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import FrameType
from typing import NamedTuple

import numpy as np

import onnx_models
from conformance.expected_values import reference
from ortops.operators import BY_NAME

from .outcome import LOST, RIGHT, of_answer, of_error
from .storm import storm
from .subject import FEEDS, SIZE, Subject, chain, chain_answer

Outcomes = Counter[str]


class Found(NamedTuple):
    """The result of a program.

    outcomes: the counts of its outcomes.
    delay: the seconds from a signal to the exception, or None if the program does not measure them.
    """

    outcomes: Outcomes
    delay: float | None = None


FIRST, FIRST_COMPILED = 0.2, 2.0
"""The approximate seconds of the first attempt, which loads compiled code or compiles it."""

LONG_AGO = 0.2
"""The seconds after which a signal has arrived or never will."""


class CtrlC(threading.Thread):
    """A thread that sends this process one SIGINT after some seconds.

    sent: the monotonic time of the signal, once it is sent.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(daemon=True)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.sent = 0.0
        self._seconds = seconds
        self.start()

    def run(self) -> None:
        """See `threading.Thread`."""
        time.sleep(self._seconds)
        self.sent = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    @property
    def is_long_ago(self) -> bool:
        """Whether the signal was sent at least LONG_AGO seconds ago."""
        return not self.is_alive() and time.monotonic() > self.sent + LONG_AGO


def one_interrupt(subject: Subject, seed: int) -> Outcomes:
    """Send one Ctrl-C at a random moment of a loop of runs, then run once more."""
    session, expected = subject.make(chain(8)), chain_answer(8)
    signalled = CtrlC(random.Random(seed).uniform(0.02, 0.15))  # noqa: S311 - no secret
    outcome = RIGHT
    try:
        while outcome == RIGHT and not signalled.is_long_ago:
            outcome = of_answer(session.run(None, FEEDS)[0], expected)
        outcome = LOST if outcome == RIGHT else outcome
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is judged
        outcome = of_error(error, KeyboardInterrupt)
    return Outcomes([outcome, of_answer(session.run(None, FEEDS)[0], expected)])


def storm_run(subject: Subject, seed: int, seconds: float) -> Outcomes:
    """Send alarms while a session of many small nodes runs."""
    session, expected = subject.make(chain(20)), chain_answer(20)
    return _storm(lambda: of_answer(session.run(None, FEEDS)[0], expected), seed, seconds)


def storm_create(subject: Subject, seed: int, seconds: float) -> Outcomes:
    """Send alarms while sessions are created and run, including the first of the process."""
    model, expected = chain(1), chain_answer(1)
    return _storm(lambda: of_answer(subject.make(model).run(None, FEEDS)[0], expected), seed, seconds)


def storm_kernel(subject: Subject, seed: int) -> Found:
    """Send one Ctrl-C while a node computes for about a second, and measure how much later the exception arrives."""
    session = subject.make(onnx_models.roi_align(16).SerializeToString())
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 150, (4_000, 2))
    feeds = {
        "X": rng.standard_normal((1, 256, 200, 304), np.float32),
        "rois": np.concatenate([corners, corners + rng.uniform(20, 150, corners.shape)], axis=1).astype(np.float32),
        "batch_indices": np.zeros(len(corners), np.int64),
    }
    begun = time.monotonic()
    (expected,) = session.run(None, feeds)
    signalled = CtrlC(0.4 * (time.monotonic() - begun))
    try:
        outcome = of_answer(session.run(None, feeds)[0], expected)
        while not signalled.is_long_ago:
            time.sleep(0.01)
        outcome = LOST if outcome == RIGHT else outcome
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is judged
        outcome = of_error(error, KeyboardInterrupt)
    delay = time.monotonic() - signalled.sent
    return Found(Outcomes([outcome, of_answer(session.run(None, feeds)[0], expected)]), delay)


def nested(subject: Subject, seed: int, seconds: float) -> Outcomes:
    """Send alarms whose handler runs the session that is already running."""
    session, expected = subject.make(chain(3)), chain_answer(3)
    rng, outcomes = random.Random(seed), Outcomes()  # noqa: S311 - no secret

    def run() -> None:
        try:
            outcomes[of_answer(session.run(None, FEEDS)[0], expected)] += 1
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is judged
            outcomes[of_error(error, KeyboardInterrupt)] += 1

    def handler(_: int, __: FrameType | None) -> None:
        run()
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 1e-3))

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-3)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run()
    # Ignored, not reset: a handler that is running would set the timer again.
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    return outcomes


def recursion(subject: Subject) -> Outcomes:
    """Run and create sessions at every call depth near the recursion limit."""
    model, expected = chain(1), chain_answer(1)
    session = subject.make(model)
    calls = (
        lambda: of_answer(session.run(None, FEEDS)[0], expected),
        lambda: of_answer(subject.make(model).run(None, FEEDS)[0], expected),
    )
    limit = 400
    sys.setrecursionlimit(limit)
    depths = range(limit - 150, limit)
    return Outcomes(_judged(functools.partial(_at_depth, depth, call)) for call in calls for depth in depths)


def cold_compile(subject: Subject, seed: int) -> Outcomes:
    """Send alarms until a kernel gets compiled; the process must start without any machine code on disk."""
    model = chain(1)
    # From the reference, since the functions would compile the kernel.
    expected = 2 * reference(BY_NAME["RoiAlign_16"], SIZE, FEEDS, ("Y",))["Y"]

    def attempt() -> str:
        (answer,) = subject.make(model).run(None, FEEDS)
        has_values = answer is not None and answer.shape == expected.shape
        is_close = has_values and np.allclose(answer, expected, rtol=1e-5, atol=1e-6)
        return RIGHT if is_close else of_answer(answer, expected)

    outcomes = Outcomes()
    for outcome in itertools.islice(storm(attempt, seed, FIRST_COMPILED), 6):
        outcomes[outcome] += 1
        if outcome == RIGHT:
            break
    outcomes[attempt()] += 1
    return outcomes


def exit_after_storm(subject: Subject, seed: int, seconds: float) -> Outcomes:
    """Send alarms, then exit while another thread runs a session."""
    session, expected = subject.make(chain(20)), chain_answer(20)

    def run_on() -> None:
        while True:
            session.run(None, FEEDS)

    threading.Thread(target=run_on, daemon=True).start()
    return _storm(lambda: of_answer(session.run(None, FEEDS)[0], expected), seed, seconds)


PROGRAMS: Mapping[str, Callable[[Subject, int, float], Found]] = {
    "one-interrupt": lambda subject, seed, _: Found(one_interrupt(subject, seed)),
    "storm-run": lambda subject, seed, seconds: Found(storm_run(subject, seed, seconds)),
    "storm-create": lambda subject, seed, seconds: Found(storm_create(subject, seed, seconds)),
    "storm-kernel": lambda subject, seed, _: storm_kernel(subject, seed),
    "nested": lambda subject, seed, seconds: Found(nested(subject, seed, seconds)),
    "recursion": lambda subject, *_: Found(recursion(subject)),
    "cold-compile": lambda subject, seed, _: Found(cold_compile(subject, seed)),
    "exit": lambda subject, seed, seconds: Found(exit_after_storm(subject, seed, seconds)),
}
"""The programs by name, as functions of the subject, the seed and the seconds of a storm."""


def _storm(attempt: Callable[[], str], seed: int, seconds: float) -> Outcomes:
    """The outcomes of attempts during some seconds of alarms, and of one attempt after them."""
    end = time.monotonic() + seconds
    outcomes = Outcomes(itertools.takewhile(lambda _: time.monotonic() < end, storm(attempt, seed, FIRST)))
    outcomes[attempt()] += 1
    return outcomes


def _at_depth(depth: int, call: Callable[[], str]) -> str:
    return _at_depth(depth - 1, call) if depth else call()


def _judged(call: Callable[[], str]) -> str:
    try:
        return call()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is judged
        return of_error(error, RecursionError)
