"""DmlResample and its gradient: how errors grow into their outputs.

Both are one dense matrix A [M, N] for each axis, whose entries are not negative; the gradient has their transposes. So the
magnitude is that of the same operator on absolute values. A coordinate x = (o - O)/S - I errs by a few roundings of its
terms, and where linear interpolation reads with it, it moves each weight within a pixel of it by as much. The nearest
pixel does not depend on the last bit of a coordinate: cases whose samples stand where it changes are in the suite only
where every number on the way is exact. Its values have no drift, then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from conformance.bounds.growth import Growth, arithmetic, unit
from conformance.case import Case
from conformance.expect import Floats
from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.shapes import output_shapes
from ortops.spec import AttributeValue

ROUNDINGS = 8
"""Of the terms of a coordinate: in the scale, the quotient and the differences, in whatever order they are evaluated."""

Arguments = Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis as matrices [to, from]: the weights, and the most that each errs."""

    weights: Floats
    errors: Floats

    @property
    def transposed(self) -> _Axis:
        return _Axis(self.weights.T, self.errors.T)

    @property
    def terms(self) -> int:
        """Numbers that one result is the sum of, at most."""
        return int(np.max(np.sum((self.weights > 0) | (self.errors > 0), axis=1), initial=0))


def forward(case: Case) -> dict[str, Growth]:
    """Growth into OutputTensor [M...]."""
    arguments, x = case.definition.check_attributes(case.attributes), case.inputs["InputTensor"]
    (lengths,) = output_shapes(case.definition, {"InputTensor": x.shape}, {}, arguments)
    return {"OutputTensor": _growth(_axes(case, arguments, lengths, x.shape), x.astype(np.float64))}


def gradient(case: Case) -> dict[str, Growth]:
    """Growth into OutputGradientTensor [N...]."""
    arguments, dy = case.definition.check_attributes(case.attributes), case.inputs["InputGradientTensor"]
    axes = _axes(case, arguments, dy.shape, case.inputs["x_shape"].tolist())
    return {"OutputGradientTensor": _growth([axis.transposed for axis in axes], dy.astype(np.float64))}


def _growth(axes: Sequence[_Axis], data: Floats) -> Growth:
    # What is infinite or not a number is compared exactly.
    magnitudes = np.where(np.isfinite(data), np.abs(data), 0.0)
    weights = [axis.weights for axis in axes]
    drifts = [_along([*weights[:i], axis.errors, *weights[i + 1 :]], magnitudes) for i, axis in enumerate(axes)]
    return Growth(
        magnitude=_along(weights, magnitudes),
        terms=float(np.prod([axis.terms for axis in axes])),
        drift=reduce(np.add, drifts),
        gain=_along(weights, np.ones_like(data)),
    )


def _along(matrices: Sequence[Floats], data: Floats) -> Floats:
    """`data` with a matrix along each of its axes."""
    for i, matrix in enumerate(matrices):
        data = np.moveaxis(np.tensordot(matrix, data, (1, i)), 0, i)
    return data


def _axes(case: Case, arguments: Arguments, outputs: Sequence[int], lengths: Sequence[int]) -> list[_Axis]:
    rank = len(lengths)
    # Without scales, the ratio of the lengths; an axis without pixels has no outputs, and then none is needed.
    scales = arguments["scales"] or [many / max(few, 1) for many, few in zip(outputs, lengths, strict=True)]
    input_offsets = arguments["input_pixel_offsets"] or [INPUT_PIXEL_OFFSET] * rank
    output_offsets = arguments["output_pixel_offsets"] or [OUTPUT_PIXEL_OFFSET] * rank
    each = zip(outputs, lengths, scales, input_offsets, output_offsets, strict=True)
    return [_axis(case, arguments, *of_axis) for of_axis in each]


def _axis(
    case: Case, arguments: Arguments, outputs: int, length: int, scale: float, before: float, after: float
) -> _Axis:
    o, pixels = np.arange(float(outputs)), np.arange(float(length))
    x = (o - after) / scale - before
    if arguments["interpolation_mode"] == "nearest_neighbor":
        reads = {"half_up": np.floor(x + 0.5), "increasing": np.ceil(x), "decreasing": np.floor(x)}
        nearest = np.clip(reads[arguments["rounding_direction"]], 0, length - 1)
        return _Axis(np.equal.outer(nearest, pixels).astype(np.float64), np.zeros((outputs, length)))
    delta = ROUNDINGS * unit(arithmetic(case)) * ((o + abs(after)) / scale + abs(before))
    clamped = np.clip(x, 0, length - 1)
    # A coordinate that is clamped, and stays so whatever its error, has none.
    delta = np.where(np.abs(x - clamped) > delta, 0.0, np.minimum(delta, 1.0))
    distances = np.abs(np.subtract.outer(clamped, pixels))
    near = distances < 1 + delta[:, None]
    return _Axis(np.maximum(1 - distances, 0.0), near * delta[:, None])
