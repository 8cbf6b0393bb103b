"""Timing calls in turn, so that what else the machine does falls on all of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

LEAST_ROUNDS, MOST_ROUNDS = 7, 51
SECONDS = 0.4
"""How many rounds there are where nobody says: as many as begin within this time, but within these bounds."""


def interleave(calls: Mapping[str, Callable[[], object]], rounds: int | None = None) -> dict[str, list[float]]:
    """The seconds of every call, `rounds` of each.

    Each round has all calls in a random order, the same in every run, and every other round the order of the one before
    backwards. Each is made twice and the second one timed, as in a loop: measured, a call of 15 ms takes up to 25 ms longer
    when the CPU did something else for 100 ms before, if only count, which says nothing about the call.
    """
    rng = random.Random(0)  # noqa: S311 - an order, no secret
    times: dict[str, list[float]] = {name: [] for name in calls}
    order: list[str] = []
    began = time.perf_counter()
    done = 0
    while _goes_on(done, rounds, time.perf_counter() - began):
        order = order[::-1] if done % 2 else rng.sample(list(calls), len(calls))
        for name in order:
            calls[name]()
            start = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - start)
        done += 1
    return times


def _goes_on(done: int, rounds: int | None, seconds: float) -> bool:
    if rounds is not None:
        return done < rounds
    return done < LEAST_ROUNDS or (done < MOST_ROUNDS and seconds < SECONDS)
