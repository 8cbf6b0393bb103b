"""Kernels that convert an array to another element type, one element or LANES at a time."""

from __future__ import annotations

from typing import Any

from ortops.jit import LANES
from ortops.jit.compile import compiled
from ortops.jit.scalar import load, store
from ortops.jit.simd import load_lanes, store_lanes


@compiled
def convert(source: Any, target: Any, count: int) -> int:
    for i in range(count):
        store(target, i, load(source, i))
    return 0


@compiled
def convert_lanes(source: Any, target: Any, count: int) -> int:
    for i in range(0, count, LANES):
        store_lanes(target, i, load_lanes(source, i))
    return 0
