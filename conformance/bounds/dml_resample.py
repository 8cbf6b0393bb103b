"""DmlResample and its gradient: how errors grow into their outputs.

Both are one dense matrix A [M, N] for each axis, whose entries are not negative; the gradient has their transposes. So the
magnitude is that of the same operator on absolute values. A coordinate x = (o - O)/S - I errs by a few roundings of its
terms, and where linear interpolation reads with it, it moves each weight within a pixel of it by as much. The nearest
pixel does not depend on the last bit of a coordinate: cases whose samples stand where it changes are in the suite only
where every number on the way is exact. Its values have no drift, then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from conformance.bounds.growth import Growth, arithmetic, unit
from conformance.case import Case
from conformance.expect import Floats
from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.shapes import output_shapes

ROUNDINGS = 8
"""Of the terms of a coordinate: in the scale, the quotient and the differences, in whatever order they are evaluated."""


class Axis(NamedTuple):
    """One axis: lengths after and before resampling, the scale S and the pixel offsets I and O."""

    outputs: int
    length: int
    scale: float
    before: float
    after: float

    @property
    def coordinates(self) -> Floats:
        """[outputs]: where each output lies, in pixels."""
        return (np.arange(float(self.outputs)) - self.after) / self.scale - self.before


def axes_of(case: Case) -> list[Axis]:
    """The axes of a right case of the operator or of its gradient."""
    arguments = case.definition.check_attributes(case.attributes)
    if "x_shape" in case.inputs:
        lengths, outputs = case.inputs["x_shape"].tolist(), case.inputs["InputGradientTensor"].shape
    else:
        lengths = case.inputs["InputTensor"].shape
        (outputs,) = output_shapes(case.definition, {"InputTensor": lengths}, {}, arguments)
    # Without scales, the ratio of the lengths; an axis without pixels has no outputs, and then none is needed.
    scales = arguments["scales"] or [many / max(few, 1) for many, few in zip(outputs, lengths, strict=True)]
    before = arguments["input_pixel_offsets"] or [INPUT_PIXEL_OFFSET] * len(lengths)
    after = arguments["output_pixel_offsets"] or [OUTPUT_PIXEL_OFFSET] * len(lengths)
    return list(map(Axis, outputs, lengths, scales, before, after))


def growth(case: Case) -> dict[str, Growth]:
    """Growth into OutputTensor [M...], or of the gradient into OutputGradientTensor [N...]."""
    pairs = [_weights_and_errors(case, axis) for axis in axes_of(case)]
    if "x_shape" in case.inputs:
        pairs = [(weights.T, errors.T) for weights, errors in pairs]
    data = case.inputs[case.definition.inputs[0].name].astype(np.float64)
    # What is infinite or not a number is compared exactly.
    magnitudes = np.where(np.isfinite(data), np.abs(data), 0.0)
    weights = [weights for weights, _ in pairs]
    drifts = [_along([*weights[:i], errors, *weights[i + 1 :]], magnitudes) for i, (_, errors) in enumerate(pairs)]
    terms = [np.max(np.sum((weights > 0) | (errors > 0), axis=1), initial=0) for weights, errors in pairs]
    total = Growth(
        _along(weights, magnitudes),
        math.prod(map(float, terms)),
        reduce(np.add, drifts),
        _along(weights, np.ones_like(data)),
    )
    return {case.outputs[0]: total}


def _along(matrices: Sequence[Floats], data: Floats) -> Floats:
    """`data` with a matrix along each of its axes."""
    for i, matrix in enumerate(matrices):
        data = np.moveaxis(np.tensordot(matrix, data, (1, i)), 0, i)
    return data


def _weights_and_errors(case: Case, axis: Axis) -> tuple[Floats, Floats]:
    """[outputs, length] each: the weight of every pixel in every output, and the most that it errs."""
    arguments = case.definition.check_attributes(case.attributes)
    x, pixels = axis.coordinates, np.arange(float(axis.length))
    if arguments["interpolation_mode"] == "nearest_neighbor":
        reads = {"half_up": np.floor(x + 0.5), "increasing": np.ceil(x), "decreasing": np.floor(x)}
        nearest = np.clip(reads[arguments["rounding_direction"]], 0, axis.length - 1)
        return np.equal.outer(nearest, pixels).astype(np.float64), np.zeros((axis.outputs, axis.length))
    reach = (np.arange(axis.outputs) + abs(axis.after)) / axis.scale + abs(axis.before)
    delta = ROUNDINGS * unit(arithmetic(case)) * reach
    clamped = np.clip(x, 0, axis.length - 1)
    # A coordinate that is clamped, and stays so whatever its error, has none.
    delta = np.where(np.abs(x - clamped) > delta, 0.0, np.minimum(delta, 1.0))
    distances = np.abs(np.subtract.outer(clamped, pixels))
    return np.maximum(1 - distances, 0.0), (distances < 1 + delta[:, None]) * delta[:, None]
