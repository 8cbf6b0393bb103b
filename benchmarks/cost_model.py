"""A model of the time of a call: a sum of what the kernels do, each at a cost that is fitted to measurements.

The work is counted from the RoIs (`counts`), so the model has nothing but the costs to choose. It says what limits a call,
and how long it would take with more cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CACHED_BYTES = 32 << 20
"""The bytes from which on memory is slower. Measured on a processor with 2 MiB of cache for each core and hundreds for all:
16 to 64 MiB fit about as well."""


@dataclass(frozen=True)
class Work:
    """What a call does.

    entries: the entries of the tables of weights that are filled; those of a RoI count each time that it is done.
    visits: how often a panel of channels, or a plane, takes a RoI.
    operations: the multiply-adds of lines and then of columns, and the stores that clear; each of a vector or of one value.
    map_bytes: the bytes of the map that are packed into panels, or of dX that are unpacked, those of unused channels of a
        panel included.
    bin_bytes: likewise those of Y that are unpacked, or of dY that are packed.
    plane_bytes: the bytes of maps and bins that are read or written without panels.
    tasks: the tasks that threads share; 1 if one thread does all.
    """

    entries: int
    visits: int
    operations: int
    map_bytes: int
    bin_bytes: int
    plane_bytes: int
    tasks: int

    @property
    def bytes(self) -> int:
        """All bytes."""
        return self.map_bytes + self.bin_bytes + self.plane_bytes


class Term(NamedTuple):
    """A term of the model.

    limit: what limits a call in which such terms are the largest: one of `LIMITS`.
    unit: of its cost: "us" or "ns" for each, or "GB/s".
    """

    name: str
    limit: str
    unit: str


LIMITS = ("calls and threads", "tables of RoIs", "arithmetic", "memory")

TERMS = (
    Term("a call", "calls and threads", "us"),
    Term("an entry of a table", "tables of RoIs", "ns"),
    Term("a RoI in a panel", "tables of RoIs", "ns"),
    Term("a vector operation", "arithmetic", "ns"),
    Term("the map through panels", "memory", "GB/s"),
    Term("the bins through panels", "memory", "GB/s"),
    Term("planes without panels", "memory", "GB/s"),
    Term(f"in addition, bytes beyond {CACHED_BYTES >> 20} MiB", "memory", "GB/s"),
    Term("bytes of all threads together", "memory", "GB/s"),
    Term("another thread", "calls and threads", "us"),
)
"""The terms, in the order of `amounts`."""


def amounts(work: Work, threads: int, cores: int) -> Floats:
    """Return how much of each term a call has on a number of threads, on a machine with a number of cores.

    Threads share the tasks, and the last one to finish counts. At one thread nothing is shared. With more, they share the
    memory, too: no number of them is faster than all bytes at the bandwidth of all threads together.
    """
    threads = min(threads, work.tasks)
    share = max(-(-work.tasks // threads) / work.tasks, 1 / min(threads, cores))
    beyond = max(work.bytes - CACHED_BYTES, 0)
    parallel = [work.entries, work.visits, work.operations, work.map_bytes, work.bin_bytes, work.plane_bytes, beyond]
    return np.array([1, *(share * amount for amount in parallel), (1 - share) * work.bytes, threads - 1], np.float64)


@dataclass(frozen=True)
class Measured:
    """A measurement: the seconds of a call."""

    work: Work
    threads: int
    seconds: float


@dataclass(frozen=True)
class Model:
    """The seconds that one of each term costs, on a machine with a number of cores.

    errors: of each measurement of the fit, how far the model is off, relative to the measured time.
    """

    costs: tuple[float, ...]
    cores: int
    errors: tuple[float, ...] = ()

    @property
    def median_error(self) -> float:
        """The median of the sizes of the errors."""
        return float(np.median(np.abs(self.errors)))

    @property
    def largest_error(self) -> float:
        """The size of the largest error."""
        return float(np.max(np.abs(self.errors)))

    def seconds(self, work: Work, threads: int, cores: int | None = None) -> float:
        """Return the time of a call, also for other numbers of cores."""
        return float(amounts(work, threads, cores or self.cores) @ self.costs)

    def limit(self, work: Work, threads: int) -> str:
        """Return what takes most of the time of a call, one of `LIMITS`."""
        parts = dict.fromkeys(LIMITS, 0.0)
        for term, amount, cost in zip(TERMS, amounts(work, threads, self.cores), self.costs, strict=True):
            parts[term.limit] += float(amount) * cost
        return max(parts, key=lambda limit: parts[limit])


def fit(measured: Sequence[Measured], cores: int) -> Model:
    """Return the costs, none of them negative, with the least squares of the relative errors.

    Raises:
        ValueError: there are fewer than two measurements for each term.
    """
    if len(measured) < 2 * len(TERMS):
        raise ValueError(f"a model of {len(TERMS)} terms must have {2 * len(TERMS)} measurements, not {len(measured)}")
    seconds = np.array([one.seconds for one in measured])
    relative = np.array([amounts(one.work, one.threads, cores) for one in measured]) / seconds[:, None]
    costs = _nonnegative_least_squares(relative, np.ones(len(measured)))
    return Model(tuple(map(float, costs)), cores, tuple(map(float, relative @ costs - 1)))


def _nonnegative_least_squares(matrix: Floats, values: Floats) -> Floats:
    """Return the x >= 0 that minimises |matrix x - values|: the best of the solutions without some of the columns.

    Terms are few enough to try all. The columns are scaled alike, since amounts differ by many orders of magnitude.
    """
    scale = np.linalg.norm(matrix, axis=0)
    columns = np.flatnonzero(scale)
    best, least = np.zeros(matrix.shape[1]), float(values @ values)
    for count in range(1, columns.size + 1):
        for chosen in map(list, combinations(columns, count)):
            scaled, *_ = np.linalg.lstsq(matrix[:, chosen] / scale[chosen], values, rcond=None)
            if (scaled < 0).any():
                continue
            difference = matrix[:, chosen] @ (scaled / scale[chosen]) - values
            if difference @ difference < least:
                best, least = np.zeros(matrix.shape[1]), float(difference @ difference)
                best[chosen] = scaled / scale[chosen]
    return best


def models(report: Mapping[str, Any]) -> dict[str, Model]:
    """Return a model of each operation of a report's sweeps whose work is counted, if there are enough measurements.

    Args:
        report: what `benchmarks.report.to_json` writes, as parsed JSON.
    """
    found: dict[str, list[Measured]] = {}
    for cell in report.get("swept", []):
        if cell.get("work"):
            one = Measured(Work(**cell["work"]), cell["threads"], cell["seconds"]["ortops"]["median"])
            found.setdefault(cell["operation"], []).append(one)
    cores = report["machine"]["cpus"]
    return {operation: fit(some, cores) for operation, some in found.items() if len(some) >= 2 * len(TERMS)}
