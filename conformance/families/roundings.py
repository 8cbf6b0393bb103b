# SPDX-License-Identifier: MIT OR Apache-2.0
"""How rounding may change the inputs of a case: exact arithmetic, and perturbations by the rounding error."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from conformance.case import Array, Case
from conformance.error_terms import Floats

DENOMINATOR = 64
"""Exact coordinates and values are multiples of 1/64, so that products of two weights and a value fit in float32."""

MAX_EXACT = 1024.0
"""The largest absolute value of exact coordinates, in pixels, and of exact values."""

FACTORS = (1.0, 8.0)
"""Coordinates are perturbed by their rounding error times these."""

FEW = 4
"""Up to this many RoIs are perturbed in every direction; more only in some random directions."""

Perturbations = Iterable[tuple[str, float, Array]]
"""The name of an input, a factor, and the input perturbed by its rounding error times the factor."""


class Perturbed(NamedTuple):
    """A case, and perturbations that must change its outputs by no more than their error bounds allow."""

    case: Case
    perturbations: Perturbations = ()


def have_few_bits(numbers: Sequence[float] | Array) -> bool:
    """Whether numbers are multiples of 1/`DENOMINATOR` and at most `MAX_EXACT`, so that arithmetic on them is exact."""
    multiples = np.asarray(numbers) * DENOMINATOR
    return bool(np.all((multiples == np.round(multiples)) & (np.abs(multiples) <= MAX_EXACT * DENOMINATOR)))


def is_power_of_2(value: float) -> bool:
    """Whether a number is a power of 2."""
    return value > 0 and math.frexp(value)[0] == 0.5


def is_near_integer(numbers: Array, error: float) -> bool:
    """Whether any number is within `error` of an integer."""
    return bool(np.any(np.abs(numbers - np.round(numbers)) <= error))


def in_all_directions(name: str, rois: Floats, by: Floats, is_rigid: Array | None = None) -> Perturbations:
    """Yield the RoIs, with each number moved up or down by its error times each of `FACTORS`.

    Args:
        name: the input with the RoIs.
        rois: [R, 4], or [R, 5] for rotated RoIs.
        by: the error of each number.
        is_rigid: whether the second end of a RoI moves as the first does.
    """
    rng = np.random.default_rng(0)
    whole = itertools.product((-1.0, 1.0), repeat=rois.shape[1]) if len(rois) <= FEW else ()
    directions = [np.tile(signs, (len(rois), 1)) for signs in whole]
    directions += [rng.choice([-1.0, 1.0], rois.shape) for _ in range(4)]
    for factor, signs in itertools.product(FACTORS, directions):
        if is_rigid is not None:
            signs[:, 2:] = np.where(is_rigid[:, 2:], signs[:, :2], signs[:, 2:])
        yield name, factor, rois + factor * by * signs
