"""What a campaign hands out, to threads here or to a cluster's workers: each task asks an examiner of its own.

Starting an examiner takes seconds, so it is kept for the next task, and ended when none comes.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.fuzz.check import Failure
from conformance.fuzz.examiner import EndedError, Examiner
from conformance.fuzz.work import Found, Look, Plan, Shrink

MOST_ALIKE = 4
"""Failures with the same message that are shrunk; the others are counted."""

IDLE_SECONDS = 20.0
"""After which an examiner that no task has borrowed is ended."""

_lock = threading.Lock()
_examiners: set[Examiner] = set()
_idle: dict[Examiner, threading.Timer] = {}


@dataclass(frozen=True, slots=True)
class Part:
    """What came of the cases from `first` to `stop` - 1.

    counts: of cases by what came of them.
    found: those that fail, in order; of each signature the first few.
    """

    first: int
    stop: int
    counts: Counter[str]
    found: tuple[Found, ...]


def look(plan: Plan, first: int, stop: int, seconds: float) -> Part:
    """The part of a range that is done in so many seconds, or up to a case that ended the examiner."""
    counts, alike, kept, number = Counter[str](), Counter[tuple[str, ...]](), list[Found](), first
    with _borrowed(plan.backend) as examiner:
        for outcome in _until_the_end(examiner, Look(plan, first, stop, seconds), first):
            number += 1
            if isinstance(outcome, str):
                counts[outcome] += 1
                continue
            counts["failed"] += 1
            alike[outcome.signature] += 1
            if alike[outcome.signature] <= MOST_ALIKE:
                kept.append(outcome)
    return Part(first, number, counts, tuple(kept))


def make_small(plan: Plan, found: Found, seconds: float) -> Failure:
    """The failure of a case made small, or as it was where that ends the examiner."""
    with _borrowed(plan.backend) as examiner:
        try:
            failure: Failure
            (failure,) = examiner.answers(Shrink(plan, found, seconds))
        except EndedError:
            return found.as_it_was(plan)
        return failure


def end_all() -> None:
    """End all examiners of this process: tasks that run do not come to their end."""
    with _lock:
        for examiner in _examiners:
            examiner.kill()
        for timer in _idle.values():
            timer.cancel()
        idle = list(_idle)
        _idle.clear()
        _examiners.difference_update(idle)
    for examiner in idle:
        examiner.end()


def _until_the_end(examiner: Examiner, request: Look, first: int) -> Iterator[str | Found]:
    """The answers; the last is about the case that ended the examiner, where one did."""
    number = first
    try:
        for answer in examiner.answers(request):
            number += 1
            yield answer
    except EndedError as error:
        yield Found.end(request.plan, number, f"the process that asks the reference {error}")


@contextlib.contextmanager
def _borrowed(backend: str) -> Iterator[Examiner]:
    examiner = _taken(backend)
    try:
        yield examiner
    except BaseException:
        _end(examiner)
        raise
    if not examiner.is_alive:
        _end(examiner)
        return
    with _lock:
        timer = threading.Timer(IDLE_SECONDS, _end_idle, [examiner])
        timer.daemon = True
        _idle[examiner] = timer
        timer.start()


def _taken(backend: str) -> Examiner:
    with _lock:
        examiner = next((one for one in _idle if one.backend == backend), None)
        if examiner is None:
            examiner = Examiner(backend)
            _examiners.add(examiner)
        else:
            _idle.pop(examiner).cancel()
        return examiner


def _end_idle(examiner: Examiner) -> None:
    with _lock:
        if _idle.pop(examiner, None) is None:
            return
    _end(examiner)


def _end(examiner: Examiner) -> None:
    with _lock:
        _examiners.discard(examiner)
    examiner.end()
