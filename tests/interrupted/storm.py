"""Alarms at random moments, whose handler raises an exception."""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType

from .outcome import LOST, RIGHT, of_error

SOONEST = 1e-5
"""The least number of seconds until an alarm."""

TIMED_CALLS = 20
"""The number of the latest calls whose median duration is taken: an alarm comes within one and a half times that."""


class AlarmError(Exception):
    """The exception of one handler: an ordinary error, such as that of a time limit."""


class Alarm(BaseException):
    """The exception of the other handler, which `except Exception` does not catch, like KeyboardInterrupt."""


def storm(attempt: Callable[[], str], seed: int, seconds: float) -> Iterator[str]:
    """An endless sequence of the outcomes of attempts, each of which an alarm may interrupt.

    Args:
        attempt: returns its outcome, or raises.
        seed: determines the moments of the alarms and the class of their exceptions.
        seconds: the approximate duration of the first attempt.
    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    awaited = (AlarmError, Alarm)[seed % 2]
    durations = deque([seconds], TIMED_CALLS)
    raised = 0

    def handler(_: int, __: FrameType | None) -> None:
        nonlocal raised
        raised += 1
        raise awaited

    signal.signal(signal.SIGALRM, handler)
    while True:
        before, begun = raised, time.perf_counter()
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(SOONEST, 1.5 * statistics.median(durations)))
                outcome = attempt()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is judged
            outcome = of_error(error, awaited)
        if outcome == RIGHT:
            durations.append(time.perf_counter() - begun)
        yield LOST if outcome == RIGHT and raised > before else outcome
