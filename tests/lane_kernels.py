"""C functions that convert arrays to the compute type and back, one element or LANES at a time."""

from __future__ import annotations

from ortops.compiler.compile import compiled
from ortops.compiler.scalar import load, store
from ortops.compiler.simd import load_lanes, store_lanes
from ortops.native.elements import LANES, Stored, Values


@compiled
def widen(source: Stored, target: Values, count: int) -> int:
    for i in range(count):
        store(target, i, load(source, i))
    return 0


@compiled
def widen_lanes(source: Stored, target: Values, count: int) -> int:
    for i in range(0, count, LANES):
        store_lanes(target, i, load_lanes(source, i))
    return 0


@compiled
def narrow(source: Values, target: Stored, count: int) -> int:
    for i in range(count):
        store(target, i, load(source, i))
    return 0


@compiled
def narrow_lanes(source: Values, target: Stored, count: int) -> int:
    for i in range(0, count, LANES):
        store_lanes(target, i, load_lanes(source, i))
    return 0
