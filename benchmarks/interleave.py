"""Time calls in turn, so that other load on the machine affects all of them alike."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

LEAST_ROUNDS, MOST_ROUNDS = 7, 51
SECONDS = 0.4
"""The default number of rounds: as many as begin within this time, within these bounds."""


def interleave(
    calls: Mapping[str, Callable[[], object]], rounds: int | None = None, single: bool = False
) -> dict[str, list[float]]:
    """Return the seconds of every call in each of `rounds` rounds.

    A round makes all calls in a random order, which is the same in every run; every other round reverses the previous
    order. Each call is made twice and the second one is timed, as in a loop: measured, a call of 15 ms takes up to 25 ms
    longer after the CPU has done something else for 100 ms, even mere counting.

    If `single`, each call is made once, is timed and follows another one, as it would in an application that does other
    work in between. Every order is then random.
    """
    rng = random.Random(0)  # noqa: S311 - an order, no secret
    times: dict[str, list[float]] = {name: [] for name in calls}
    order: list[str] = []
    began = time.perf_counter()
    done = 0
    while _goes_on(done, rounds, time.perf_counter() - began):
        if single:
            order = _shuffled(calls, order[-1:], rng)
        elif done % 2:
            order = order[::-1]
        else:
            order = rng.sample(list(calls), len(calls))
        for name in order:
            if not single:
                calls[name]()
            start = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - start)
        done += 1
    return times


def _shuffled(calls: Mapping[str, object], last: Sequence[str], rng: random.Random) -> list[str]:
    """Return the calls in a random order that does not begin with `last`, unless that is the only one."""
    order = rng.sample(list(calls), len(calls))
    while order[:1] == last and len(order) > 1:
        order = rng.sample(order, len(order))
    return order


def _goes_on(done: int, rounds: int | None, seconds: float) -> bool:
    if rounds is not None:
        return done < rounds
    return done < LEAST_ROUNDS or (done < MOST_ROUNDS and seconds < SECONDS)
