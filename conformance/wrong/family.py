"""The families of mistakes that implementations of these operators make."""

from __future__ import annotations

from enum import Enum


class Family(str, Enum):
    """What a fault is about."""

    COORDINATES = "coordinates"
    BORDERS = "borders"
    COUNTS = "counts"
    REDUCTIONS = "reductions"
    TYPES = "types and accumulation"
    INDEXING = "batch and channel indexing"
    GRADIENTS = "gradients"
    DEFAULTS = "versions and defaults"
