"""Measure a cell: our operator, its peers and reference calls, on one problem with one number of threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from benchmarks.agreement import Difference, compare
from benchmarks.call import Call
from benchmarks.interleave import LEAST_ROUNDS, interleave
from benchmarks.memory_copy import copy_call
from benchmarks.operations import Operation
from benchmarks.peers import Peer
from benchmarks.problem import Problem
from benchmarks.sessions import our_call
from benchmarks.workloads import Pyramid, Resampling, Workload

OURS, FLOOR = "ortops", "copy"


@dataclass(frozen=True)
class Cell:
    """The times of an operation on a workload in an element type.

    times: the seconds of each call of `OURS`, of each peer that supports the operation and is not refused, of `FLOOR`
        (copying), and, where they differ, of our operator in `float` and of our `forward` operator.
    differences: the difference of each peer that supports the operation.
    """

    operation: str
    workload: Workload | Resampling | Pyramid
    element_type: str
    threads: int
    times: Mapping[str, list[float]]
    differences: Mapping[str, Difference]

    def median(self, name: str) -> float:
        """Return the median seconds of a call."""
        return median(self.times[name])

    def ratio(self, name: str, other: str) -> float:
        """Return the median of one call divided by that of another."""
        return self.median(name) / self.median(other)

    @property
    def refused(self) -> list[str]:
        """A message for each peer that computes different values."""
        return [
            f"{peer} is not compared: {self.operation} of {self.workload.name} in {self.element_type} {difference}"
            for peer, difference in self.differences.items()
            if difference.is_refused
        ]


def measure(
    problem: Problem, threads: int, peers: Mapping[str, Peer], rounds: int | None = None, single: bool = False
) -> Cell:
    """Check that the peers compute the same, then time all calls in turn, as `interleave` does.

    The check is also their first, slow call. Copying is timed in a loop, also if `single`.
    """
    own = our_call(problem, threads)
    ours = own.arrays(own.run())
    floor = copy_call([problem.arrays[name] for name in _read(problem.operation)], ours, threads)
    calls = {OURS: own, **_references(problem, threads)}
    differences = {}
    for name, peer in peers.items():
        call = peer.prepare(problem, threads)
        if call is None:
            continue
        differences[name] = compare(call.arrays(call.run()), ours, problem, call.expected_difference)
        if not differences[name].is_refused:
            calls[name] = call
    del ours
    times = interleave({name: call.run for name, call in calls.items()}, rounds, single)
    # Not among the others, since it would evict the data that they share from the caches.
    floor.run()
    times |= interleave({FLOOR: floor.run}, rounds or LEAST_ROUNDS)
    return Cell(problem.operation.name, problem.workload, problem.element_type, threads, times, differences)


def _references(problem: Problem, threads: int) -> dict[str, Call]:
    """Return our calls to compare with, each run once."""
    calls = {}
    if problem.operation.is_gradient:
        calls["forward"] = our_call(replace(problem, operation=problem.operation.forward), threads)
    if problem.element_type != "float":
        calls["float"] = our_call(replace(problem, element_type="float"), threads)
    for call in calls.values():
        call.run()
    return calls


def _read(operation: Operation) -> tuple[str, ...]:
    """Return which of X and dY the computation reads: dX of an average, or of Resize, does not need X."""
    if not operation.is_gradient:
        return ("X",)
    return ("dY",) if operation.outputs == ("dX",) and operation.family != "max_roi_pool" else ("X", "dY")
