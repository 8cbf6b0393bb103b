"""What a process does that is interrupted, or interrupts itself. Each returns how often what came of it."""

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
    """What a program found.

    delay: seconds from a signal to the exception, where the program measures them.
    """

    outcomes: Outcomes
    delay: float | None = None


FIRST, FIRST_COMPILED = 0.2, 2.0
"""Seconds that the first attempt takes, about, which loads compiled code or compiles it."""

LONG_AGO = 0.2
"""Seconds."""


class CtrlC(threading.Thread):
    """Sends this process one SIGINT, so many seconds from now.

    sent: the monotonic time of it, once it is sent.
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
        """Whether it was sent so long ago that it has arrived or never will."""
        return not self.is_alive() and time.monotonic() > self.sent + LONG_AGO


def one_interrupt(subject: Subject, seed: int) -> Outcomes:
    """One Ctrl-C at a random moment of a loop of runs, then one more run."""
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
    """Alarms while a session of many small nodes runs."""
    session, expected = subject.make(chain(20)), chain_answer(20)
    return _storm(lambda: of_answer(session.run(None, FEEDS)[0], expected), seed, seconds)


def storm_create(subject: Subject, seed: int, seconds: float) -> Outcomes:
    """Alarms while sessions are made and run, the first of the process among them."""
    model, expected = chain(1), chain_answer(1)
    return _storm(lambda: of_answer(subject.make(model).run(None, FEEDS)[0], expected), seed, seconds)


def storm_kernel(subject: Subject, seed: int) -> Found:
    """A Ctrl-C while one node computes for about a second; how much later the exception arrives is told."""
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
    """Alarms whose handler itself runs the session that is running."""
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
    # A handler that is running would set the timer again.
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    return outcomes


def recursion(subject: Subject) -> Outcomes:
    """Runs and sessions at every depth of calls near the limit."""
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
    """Alarms while a kernel is compiled, as often as it takes; the process must have no machine code to begin with."""
    model = chain(1)
    # The functions would compile the kernel.
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
    """Alarms, and an end while another thread is in a session."""
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
"""By name: with a kind of session, a seed, and the seconds that a storm lasts."""


def _storm(attempt: Callable[[], str], seed: int, seconds: float) -> Outcomes:
    """The outcomes of so many seconds, and of an attempt without an alarm."""
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
