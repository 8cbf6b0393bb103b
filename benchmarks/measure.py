# SPDX-License-Identifier: MIT
"""Time calls in turn, on the same arrays, and only if they compute the same."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks.workloads import Array, Problem

MIN_ROUNDS, MAX_ROUNDS, SECONDS = 7, 51, 0.4
"""The default number of rounds: as many as begin within these seconds, within these bounds."""


@dataclass(frozen=True)
class Call:
    """A computation that is ready to be timed.

    run: performs the computation once.
    arrays: converts the result of `run` to arrays, in the order of the operation's outputs; not timed.
    is_same: whether the outputs must equal ours; if not, only their shapes must.
    timer: performs the computation and returns the seconds that another process measured; None to measure them here.
    """

    run: Callable[[], Any]
    arrays: Callable[[Any], list[Array]] = list
    is_same: bool = True
    timer: Callable[[], float] | None = None

    def seconds(self) -> float:
        """Perform the computation, and return the seconds that it took."""
        if self.timer:
            return self.timer()
        began = time.perf_counter()
        self.run()
        return time.perf_counter() - began


Peer = Callable[[Problem, int], Call | None]
"""Takes a problem and a number of threads, and returns a call that computes it; None if the peer does not support it."""


@dataclass(frozen=True)
class Cell:
    """The times of an operation on a workload: a row of the table of a comparison (`benchmarks.peers.COMPARISONS`).

    times: the seconds of each call, by the name of the peer. The report gives the others as multiples of the first.
    refused: a message for each peer that computes different values.
    """

    comparison: str
    operation: str
    workload: str
    threads: int
    times: Mapping[str, list[float]]
    refused: Sequence[str] = ()

    def ms(self, name: str) -> float:
        """Return the median of a peer's milliseconds."""
        return median(self.times[name]) * 1e3

    def ratio(self, name: str) -> float:
        """Return the ratio of a peer's time to the first peer's: the median over the rounds."""
        first = next(iter(self.times.values()))
        return median(a / b for a, b in zip(self.times[name], first, strict=True))


def measure(
    comparison: str, problem: Problem, threads: int, peers: Mapping[str, Peer], rounds: int | None = None
) -> list[Cell]:
    """Check that all peers compute the same as the first, then time all calls in turn, as `interleave` does.

    The check is also their first, slow call. Returns one cell, or none if the first does not support the problem.
    """
    calls = {name: call for name, peer in peers.items() if (call := peer(problem, threads))}
    if next(iter(peers)) not in calls:
        return []
    ours, refused = list[Array](), []
    for name, call in list(calls.items()):
        answer = call.arrays(call.run())
        ours = ours or answer
        if message := difference(answer, ours, problem, call.is_same):
            refused.append(f"{name} is not compared: {message}")
            del calls[name]
    del ours, answer
    operation, workload = problem.operation.name, problem.workload.name
    return [Cell(comparison, operation, workload, threads, interleave(calls, rounds), refused=refused)]


def interleave(calls: Mapping[str, Call], rounds: int | None = None) -> dict[str, list[float]]:
    """Return the seconds of every call in each of `rounds` rounds, so that other load on the machine affects all of them.

    A round makes all calls in a random order, which is the same in every run; every other round reverses the previous
    order. Each call is made twice and the second one is timed, as in a loop: measured, a call of 15 ms takes up to 25 ms
    longer after the CPU has done something else for 100 ms, even mere counting.
    """
    rng = random.Random(0)  # noqa: S311 - an order, no secret
    times: dict[str, list[float]] = {name: [] for name in calls}
    order: list[str] = []
    end, done = time.perf_counter() + SECONDS, 0
    while done < (rounds or MIN_ROUNDS) or (rounds is None and done < MAX_ROUNDS and time.perf_counter() < end):
        order = order[::-1] if done % 2 else rng.sample(list(calls), len(calls))
        for name in order:
            calls[name].seconds()
            times[name].append(calls[name].seconds())
        done += 1
    return times


def difference(theirs: Sequence[Array], ours: Sequence[Array], problem: Problem, is_same: bool = True) -> str:
    """Return a message if any output differs from ours by more than some rounding errors, else "".

    These are errors of the result and of coordinates, which are float. Coordinates are as large as the map. An error in one
    changes a sample in proportion to the difference of neighbouring pixels, which in this data is about the largest value.
    """
    allowed = 2.0**-21 * (1 + max(problem.workload.shape[2:]))
    for actual, expected in zip(theirs, ours, strict=True):
        what = f"{problem.operation.name} of {problem.workload.name} differs from ours"
        if actual.shape != expected.shape:
            return f"{what} in its shape, {actual.shape} and not {expected.shape}"
        off, largest = (float(np.abs(values).max(initial=0)) for values in (actual - expected, expected))
        if is_same and not off <= allowed * largest:
            return f"{what} by {off:.2g} where the largest value is {largest:.2g}; allowed is {allowed:.2g} of it"
    return ""


def copies(problem: Problem, threads: int) -> Call | None:
    """Return a call that copies the first input and writes as much as Y, as a peer for Y: what the memory takes."""
    if problem.operation.outputs != ("Y",):
        return None
    x, y = next(iter(problem.arrays.values())), np.zeros_like(problem.arrays["dY"])
    whole = (x.reshape(-1), np.zeros(x.size, x.dtype), y.reshape(-1))
    parts = list(zip(*(np.array_split(array, threads) for array in whole), strict=True))

    def copy(part: Sequence[Array]) -> None:
        np.copyto(part[1], part[0])
        part[2].fill(0)

    pool = ThreadPoolExecutor(threads)
    run = partial(copy, parts[0]) if threads == 1 else lambda: list(pool.map(copy, parts))
    return Call(run, lambda _: [y], is_same=False)
