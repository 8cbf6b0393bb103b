"""Whether a process keeps memory.

Two sizes are looked at after each round, when all threads and sessions of the round are gone. Resident memory is what a
user sees. It rises in steps, and long: an allocator returns little, and every thread takes the next of its heaps. The bytes
that the allocator has handed out and not got back are exact, but only the GNU C library tells them.

Of either, the first half of the calls is not judged, in which caches and heaps fill. In the second half the median of the
last quarter may be above that of the quarter before by no more than a bound.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

Numbers = npt.NDArray[np.float64]

MOST_RESIDENT = 0.1
"""Of resident memory, from the median of the third quarter of the calls to that of the last: heaps still fill."""

MOST_HELD = 1 << 20
"""Of what is handed out, likewise, in bytes: by chance it moves by a third of that."""

OF_OPTIONS, OF_SESSION = 1700, 100
"""Bytes that ONNX Runtime 1.31 itself keeps of all options that register the library of onnxruntime-extensions, and of all
sessions, made or refused: measured, a stock session keeps 60 and the library alone 1000, with our operators 1550."""

LEAST_CALLS = 300_000
"""Below which nothing is said: what rises in the beginning is still rising."""

WINDOWS = 10
"""Into which a quarter is cut; the line is fitted to their medians."""

_BLOCK = 64
"""Bytes of a small Python object, about. Python takes them from heaps of its own, and counts them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What there is after so many calls.

    sessions, options: that were made, refused sessions included.
    resident: bytes of the process.
    held: bytes that the allocator has handed out, or None where it does not tell.
    """

    seconds: float
    calls: int
    refusals: int
    sessions: int
    options: int
    resident: int
    held: int | None


@dataclass(frozen=True, slots=True)
class Growth:
    """Of memory, in bytes, in the second half of the calls.

    name: what is measured.
    rise: from the third quarter's median to the last one's.
    most: that it may be.
    slope: for 1000 calls, fitted to the medians of windows.
    noticeable: for 1000 calls, above which growth is not called flat.
    """

    name: str
    rise: float
    most: float
    slope: float
    noticeable: float

    @property
    def is_flat(self) -> bool:
        """Whether it is within its bound."""
        return self.rise <= self.most


def resident_bytes() -> int:
    """What this process has in memory now. The standard library knows only the most that it ever had."""
    return int(psutil.Process().memory_info().rss)


def held_bytes() -> int | None:
    """What the allocators have handed out to this process and not got back, or None where the C library does not tell."""
    tell = _mallinfo2()
    if tell is None:
        return None
    told = tell()
    return int(told.uordblks + told.hblkhd) + _BLOCK * sys.getallocatedblocks()


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """How resident memory grows, and what is handed out; nothing where the calls are too few to say."""
    if not samples or samples[-1].calls < LEAST_CALLS:
        return []
    calls = np.array([sample.calls for sample in samples], float)
    resident = np.array([sample.resident for sample in samples], float)
    middle, _ = _medians(calls, resident)
    found = [_growth("resident memory", calls, resident, MOST_RESIDENT * middle)]
    if all(sample.held is not None for sample in samples):
        held = np.array([sample.held for sample in samples], float)
        kept = np.array([OF_OPTIONS * sample.options + OF_SESSION * sample.sessions for sample in samples], float)
        before, after = _medians(calls, kept)
        found.append(_growth("memory handed out", calls, held, MOST_HELD + after - before))
    return found


def _growth(name: str, calls: Numbers, sizes: Numbers, most: float) -> Growth:
    parts = np.linspace(calls[-1] / 2, calls[-1], 2 * WINDOWS + 1)
    windows = [(calls >= low) & (calls <= high) for low, high in itertools.pairwise(parts)]
    x, y = np.transpose([(calls[window].mean(), np.median(sizes[window])) for window in windows if window.any()])
    before, after = _medians(calls, sizes)
    return Growth(name, after - before, most, 1000 * float(np.polyfit(x, y, 1)[0]), 4000 * most / float(calls[-1]))


def _medians(calls: Numbers, sizes: Numbers) -> tuple[float, float]:
    """Of the third quarter of the calls and of the last."""
    middle = calls[-1] * 3 / 4
    third, last = sizes[(calls >= calls[-1] / 2) & (calls < middle)], sizes[calls >= middle]
    return float(np.median(third)), float(np.median(last))


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


@functools.cache
def _mallinfo2() -> Any:
    """The function of the GNU C library 2.33 and later, or None."""
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return None
    function.restype = _Mallinfo2
    return function
