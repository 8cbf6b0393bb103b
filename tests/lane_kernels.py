"""Kernels that compute in vectors of LANES float64s."""

from __future__ import annotations

from typing import Any

import numpy as np

from ortops.jit import LANES
from ortops.jit.compile import compiled
from ortops.jit.scalar import load, store
from ortops.jit.simd import add, load_lanes, select_new_max, splat, store_lanes, widen


@compiled
def sums(first: Any, second: Any, target: Any, count: int) -> int:
    for i in range(0, count, LANES):
        store_lanes(target, i, add(widen(load_lanes(first, i)), widen(load_lanes(second, i))))
    return 0


@compiled
def argmax(values: Any, places: Any, count: int) -> int:
    best, found = splat(places, -np.inf), splat(places, 0.0)
    for i in range(count):
        value = widen(load_lanes(values, i * LANES))
        found = select_new_max(value, best, splat(places, float(i)), found)
        best = select_new_max(value, best, value, best)
    store_lanes(places, 0, found)
    return 0


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
