"""Send alarms (SIGALRM) at random moments, whose handler raises."""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType

from .outcome import LOST, RIGHT, of_error

MIN_SECONDS = 1e-5
"""The fewest seconds before an alarm."""

TYPICAL = 20
"""The number of recent attempts from which the median duration is taken; an alarm comes within 1.5 times that."""


class AlarmError(Exception):
    """An alarm that `except Exception` catches, like the error of a time limit."""


class Alarm(BaseException):
    """An alarm that `except Exception` does not catch, like KeyboardInterrupt."""


def storm(attempt: Callable[[], str], seed: int, seconds: float) -> Iterator[str]:
    """Yield endlessly the outcomes of attempts that an alarm may interrupt.

    Args:
        attempt: returns its outcome, or raises.
        seed: chooses the moments, and the class of the exception.
        seconds: the approximate duration of the first attempt.
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
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(MIN_SECONDS, 1.5 * statistics.median(durations)))
                outcome = attempt()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is judged
            outcome = of_error(error, awaited)
        if outcome == RIGHT:
            durations.append(time.perf_counter() - begun)
        yield LOST if outcome == RIGHT and raised > before else outcome
