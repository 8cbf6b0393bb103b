"""Measure a problem: our operator, its peers and copying, in turn, on the same arrays."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from benchmarks.workloads import Array, Problem, Pyramid, Resampling, Workload
from conformance.error_bounds import unit_roundoff
from ortops.spec import ELEMENT_DTYPES

OURS, FLOOR, FLOAT = "ortops", "copy", "float"
"""The names of calls: our operator, copying, and our operator in float."""

MIN_ROUNDS, MAX_ROUNDS = 7, 51
SECONDS = 0.4
"""The default number of rounds: as many as begin within this time, within these bounds."""


@dataclass(frozen=True)
class Call:
    """A computation that is ready to be timed.

    run: performs the computation once.
    arrays: converts the result of `run` to arrays, in the order of the operation's outputs; not timed.
    expected_difference: the reason why the outputs differ from ours; "" if they must agree.
    """

    run: Callable[[], Any]
    arrays: Callable[[Any], list[Array]]
    expected_difference: str = ""


Peer = Callable[[Problem, int], Call | None]
"""Takes a problem and a number of threads, and returns a call that computes it; None if the peer does not support it."""


@dataclass(frozen=True)
class Cell:
    """The times of an operation on a workload in an element type.

    times: the seconds of each call of `OURS`, of each peer that computes the same, of `FLOOR` where Y is computed, and of
        `FLOAT`, our operator in float, where the element type is another one.
    refused: a message for each peer that computes different values.
    notes: the reasons of known differences.
    """

    operation: str
    workload: Workload | Resampling | Pyramid
    element_type: str
    threads: int
    times: Mapping[str, list[float]]
    refused: Sequence[str] = ()
    notes: Sequence[str] = field(default=())

    def median(self, name: str) -> float:
        """Return the median seconds of a call."""
        return median(self.times[name])


def measure(problem: Problem, threads: int, ours: Peer, peers: Mapping[str, Peer], rounds: int | None = None) -> Cell:
    """Check that the peers compute the same as our operator, then time all calls in turn, as `interleave` does.

    The check is also their first, slow call.
    """
    calls = {OURS: ours(problem, threads)}
    if problem.element_type != FLOAT:
        calls[FLOAT] = ours(replace(problem, element_type=FLOAT), threads)
    answers = {name: call.arrays(call.run()) for name, call in calls.items() if call}
    refused, notes = [], []
    for name, peer in peers.items():
        call = peer(problem, threads)
        if call is None:
            continue
        message = difference(call.arrays(call.run()), answers[OURS], problem, bool(call.expected_difference))
        if message:
            refused.append(f"{name} is not compared: {message}")
            continue
        calls[name] = call
        if call.expected_difference:
            notes.append(f"{name}, {problem.operation.name}: {call.expected_difference}")
    floor = None if problem.operation.is_gradient else copy_call([problem.arrays["X"]], answers[OURS], threads)
    del answers
    times = interleave({name: call.run for name, call in calls.items() if call}, rounds)
    if floor:
        # Not among the others, since it would evict the data that they share from the caches.
        floor()
        times |= interleave({FLOOR: floor}, rounds or MIN_ROUNDS)
    return Cell(
        problem.operation.name, problem.workload, problem.element_type, threads, times, tuple(refused), tuple(notes)
    )


def interleave(calls: Mapping[str, Callable[[], object]], rounds: int | None = None) -> dict[str, list[float]]:
    """Return the seconds of every call in each of `rounds` rounds, so that other load on the machine affects all of them.

    A round makes all calls in a random order, which is the same in every run; every other round reverses the previous
    order. Each call is made twice and the second one is timed, as in a loop: measured, a call of 15 ms takes up to 25 ms
    longer after the CPU has done something else for 100 ms, even mere counting.
    """
    rng = random.Random(0)  # noqa: S311 - an order, no secret
    times: dict[str, list[float]] = {name: [] for name in calls}
    order: list[str] = []
    began, done = time.perf_counter(), 0
    while done < (rounds or MIN_ROUNDS) or (
        rounds is None and done < MAX_ROUNDS and time.perf_counter() - began < SECONDS
    ):
        order = order[::-1] if done % 2 else rng.sample(list(calls), len(calls))
        for name in order:
            calls[name]()
            start = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - start)
        done += 1
    return times


def difference(theirs: Sequence[Array], ours: Sequence[Array], problem: Problem, is_expected: bool = False) -> str:
    """Return a message if any output differs from ours by more than some rounding errors, else "".

    These are errors of the result and of coordinates, which are float or double. Coordinates are as large as the map. An
    error in one changes a sample in proportion to the difference of neighbouring pixels, which in this data is about the
    largest value. An expected difference is at most as large as the largest value.
    """
    dtype = ELEMENT_DTYPES[problem.element_type]
    arithmetic = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    coordinates = unit_roundoff(arithmetic) * max(problem.workload.shape[2:])
    allowed = 1.0 if is_expected else 8 * (unit_roundoff(dtype) + coordinates)
    relative = max(map(_relative, theirs, ours)) if len(theirs) == len(ours) else np.inf
    if relative <= allowed:
        return ""
    what = f"{problem.operation.name} of {problem.workload.name} in {problem.element_type}"
    return f"{what} differs from ours by {relative:.2g} of the largest value, allowed is {allowed:.2g}"


def _relative(theirs: Array, ours: Array) -> float:
    if theirs.shape != ours.shape:
        return np.inf
    off = largest = 0.0
    # One image or RoI at a time, since these copies are twice as large as the arrays.
    for one, other in zip(theirs, ours, strict=True):
        exact = other.astype(np.float64)
        off = float(np.maximum(off, np.abs(one.astype(np.float64) - exact).max(initial=0)))
        largest = max(largest, float(np.abs(exact).max(initial=0)))
    return off / largest if largest else (0.0 if off == 0 else np.inf)


def copy_call(inputs: Sequence[Array], outputs: Sequence[Array], threads: int) -> Callable[[], object]:
    """Return a call that copies `inputs` once and writes arrays as large as `outputs`, split among threads.

    The memory is allocated beforehand, not by the call.
    """
    sources = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in inputs]
    pairs = [(source, np.zeros_like(source)) for source in sources]
    pairs += [(np.broadcast_to(np.uint8(0), (target.nbytes,)), np.zeros(target.nbytes, np.uint8)) for target in outputs]
    split = [zip(*(np.array_split(array, threads) for array in pair), strict=True) for pair in pairs]
    parts = list(zip(*split, strict=True))

    def copy(part: Sequence[tuple[Array, ...]]) -> None:
        for source, target in part:
            np.copyto(target, source)

    if threads == 1:
        return lambda: copy(parts[0])
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(copy, parts))
