"""Alarms at random moments, whose handler raises."""

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
"""Seconds until an alarm, at least."""

TYPICAL = 20
"""Calls of which the typical duration is the median: an alarm comes within one and a half."""


class AlarmError(Exception):
    """What a handler raises: an error, as of a time limit."""


class Alarm(BaseException):
    """What another handler raises: like KeyboardInterrupt, none that `except Exception` catches."""


def storm(attempt: Callable[[], str], seed: int, seconds: float) -> Iterator[str]:
    """Without end, what comes of an attempt that an alarm may interrupt.

    Args:
        attempt: says what came of it, or raises.
        seed: of the moments, and of the class that is raised.
        seconds: that the first attempt takes, about.
    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    awaited = (AlarmError, Alarm)[seed % 2]
    durations = deque([seconds], TYPICAL)
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
