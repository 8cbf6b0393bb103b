# SPDX-License-Identifier: MIT OR Apache-2.0
"""Error bounds of DmlResample and its gradient.

Both operators multiply by one dense matrix A [M, N] for each axis, whose entries are not negative, and
the gradient by its transpose. So the magnitude is the result of the same operator on absolute values. A coordinate
x = (o - O)/S - I has the error of a few roundings of its terms, and linear interpolation changes each weight within one
pixel of it by as much. The nearest pixel does not depend on rounding, since the suite has samples where it changes only
if all intermediate numbers are exact; so `coordinate_error` is 0 with nearest_neighbor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from conformance.case import Case
from conformance.error_terms import ErrorTerms, Floats, finite, unit_roundoff
from conformance.families.dml_resample.geometry import Axis, axes_of

ROUNDINGS = 8
"""The roundings of a coordinate: in the scale, the quotient and the differences, in any order of evaluation."""


def error_terms(case: Case) -> dict[str, ErrorTerms]:
    """The error terms of OutputTensor [M...] or OutputGradientTensor [N...], by name."""
    pairs = [_weights_and_errors(case, axis) for axis in axes_of(case)]
    if "x_shape" in case.inputs:
        pairs = [(weights.T, errors.T) for weights, errors in pairs]
    data = case.inputs[case.definition.inputs[0].name].astype(np.float64)
    magnitudes = finite(np.abs(data))
    weights = [weights for weights, _ in pairs]
    coordinate_errors = [
        _along([*weights[:i], errors, *weights[i + 1 :]], magnitudes) for i, (_, errors) in enumerate(pairs)
    ]
    terms = [np.max(np.sum((weights > 0) | (errors > 0), axis=1), initial=0) for weights, errors in pairs]
    total = ErrorTerms(
        _along(weights, magnitudes),
        math.prod(map(float, terms)),
        reduce(np.add, coordinate_errors),
        _along(weights, np.ones_like(data)),
    )
    return {case.outputs[0]: total}


def _along(matrices: Sequence[Floats], data: Floats) -> Floats:
    """Multiply `data` by a matrix along each of its axes."""
    for i, matrix in enumerate(matrices):
        data = np.moveaxis(np.tensordot(matrix, data, (1, i)), 0, i)
    return data


def _weights_and_errors(case: Case, axis: Axis) -> tuple[Floats, Floats]:
    """The weight of every pixel in every output, and an upper bound of its error, [outputs, length] each."""
    arguments = case.definition.check_attributes(case.attributes)
    x, pixels = axis.coordinates, np.arange(float(axis.length))
    if arguments["interpolation_mode"] == "nearest_neighbor":
        reads = {"half_up": np.floor(x + 0.5), "increasing": np.ceil(x), "decreasing": np.floor(x)}
        nearest = np.clip(reads[arguments["rounding_direction"]], 0, axis.length - 1)
        return np.equal.outer(nearest, pixels).astype(np.float64), np.zeros((axis.outputs, axis.length))
    reach = (np.arange(axis.outputs) + abs(axis.after)) / axis.scale + abs(axis.before)
    delta = ROUNDINGS * unit_roundoff(case.compute_dtype) * reach
    clamped = np.clip(x, 0, axis.length - 1)
    # A coordinate that is clamped in spite of its error has no error after that.
    delta = np.where(np.abs(x - clamped) > delta, 0.0, np.minimum(delta, 1.0))
    distances = np.abs(np.subtract.outer(clamped, pixels))
    return np.maximum(1 - distances, 0.0), (distances < 1 + delta[:, None]) * delta[:, None]
