"""DmlResample and its gradient.

Their error bounds: both operators multiply by one dense matrix A [M, N] for each axis, whose entries are not negative, and
the gradient by its transpose. So the magnitude is the result of the same operator on absolute values. A coordinate
x = (o - O)/S - I has the error of a few roundings of its terms, and linear interpolation changes each weight within one
pixel of it by as much. The nearest pixel does not depend on rounding, since the suite has samples where it changes only
if all intermediate numbers are exact; so `coordinate_error` is 0 with nearest_neighbor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from conformance.case import Case
from conformance.error_bounds import ErrorTerms, compute_dtype, unit_roundoff
from conformance.expected_values import Floats
from conformance.explain.explanation import Comparison, Explanation
from conformance.explain.resample import axis_drawings
from conformance.families import DrawnCase
from conformance.fuzz.perturbation import FACTORS, have_few_bits, is_near_integer, is_power_of_2
from conformance.fuzz.random_draw import LARGE, RandomDraw, draw_attributes
from conformance.run import AnswerFunction
from ortops.operators.dml_resample import DML_RESAMPLE, INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.shapes import output_shapes
from ortops.spec import Operator

ROUNDINGS = 8
"""The roundings of a coordinate: in the scale, the quotient and the differences, in any order of evaluation."""


class Axis(NamedTuple):
    """One axis: its lengths after and before resampling, the scale S and the pixel offsets I and O."""

    outputs: int
    length: int
    scale: float
    before: float
    after: float

    @property
    def coordinates(self) -> Floats:
        """The input coordinate of each output, in pixels, [outputs]."""
        return (np.arange(float(self.outputs)) - self.after) / self.scale - self.before


def axes_of(case: Case) -> list[Axis]:
    """The axes of a valid case."""
    arguments = case.definition.check_attributes(case.attributes)
    if "x_shape" in case.inputs:
        lengths, outputs = case.inputs["x_shape"].tolist(), case.inputs["InputGradientTensor"].shape
    else:
        lengths = case.inputs["InputTensor"].shape
        (outputs,) = output_shapes(case.definition, {"InputTensor": lengths}, {}, arguments)
    # Without scales, the ratio of the lengths. An axis without pixels has no outputs and needs no scale.
    scales = arguments["scales"] or [many / max(few, 1) for many, few in zip(outputs, lengths, strict=True)]
    before = arguments["input_pixel_offsets"] or [INPUT_PIXEL_OFFSET] * len(lengths)
    after = arguments["output_pixel_offsets"] or [OUTPUT_PIXEL_OFFSET] * len(lengths)
    return list(map(Axis, outputs, lengths, scales, before, after))


def error_terms(case: Case) -> dict[str, ErrorTerms]:
    """The error terms of OutputTensor [M...] or OutputGradientTensor [N...], by name."""
    pairs = [_weights_and_errors(case, axis) for axis in axes_of(case)]
    if "x_shape" in case.inputs:
        pairs = [(weights.T, errors.T) for weights, errors in pairs]
    data = case.inputs[case.definition.inputs[0].name].astype(np.float64)
    # Outputs that infinities or NaN reach are compared exactly.
    magnitudes = np.where(np.isfinite(data), np.abs(data), 0.0)
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
    delta = ROUNDINGS * unit_roundoff(compute_dtype(case)) * reach
    clamped = np.clip(x, 0, axis.length - 1)
    # A coordinate that is clamped in spite of its error has no error after that.
    delta = np.where(np.abs(x - clamped) > delta, 0.0, np.minimum(delta, 1.0))
    distances = np.abs(np.subtract.outer(clamped, pixels))
    return np.maximum(1 - distances, 0.0), (distances < 1 + delta[:, None]) * delta[:, None]


def samples(case: Case) -> float:
    """Return 0: the operator does not sample RoIs."""
    del case
    return 0


def work(case: Case) -> float:
    """Return 0: the reference adds only a few pixels for each output."""
    del case
    return 0


def random_case(draw: RandomDraw, operator: Operator) -> DrawnCase:
    """A random case of DmlResample or its gradient."""
    rank = draw.integer(1, 4)
    lengths = [draw.integer(1, (60, 12, 6, 4)[rank - 1]) for _ in range(rank)]
    if draw.chance(LARGE):
        lengths[draw.integer(0, rank - 1)] = draw.length(1000)
    scales = tuple(draw.scale() if length < 100 and draw.chance(0.8) else 1.0 for length in lengths)
    sizes = tuple(draw.integer(0 if draw.chance(0.1) else 1, (80, 12, 7, 5)[rank - 1]) for _ in range(rank))
    has_scales = draw.chance(0.6)
    given = {
        "scales": scales if has_scales else (),
        "output_sizes": sizes if not has_scales or draw.chance(0.4) else (),
        "input_pixel_offsets": tuple(draw.offset() for _ in range(rank)) if draw.chance(0.6) else (),
        "output_pixel_offsets": tuple(draw.offset() for _ in range(rank)) if draw.chance(0.6) else (),
    }
    attributes, outputs = draw_attributes(draw, operator, given), (operator.outputs[0].name,)
    if not operator.is_gradient:
        return attributes, {"InputTensor": draw.values(lengths)}, outputs
    shapes = output_shapes(DML_RESAMPLE, {"InputTensor": tuple(lengths)}, {}, DML_RESAMPLE.check_attributes(given))
    return attributes, {"InputGradientTensor": draw.values(shapes[0]), "x_shape": np.array(lengths)}, outputs


def is_well_posed(case: Case, oracle: AnswerFunction) -> bool:
    """Whether rounding decides neither an output length nor which pixel an output reads."""
    del oracle
    arguments = case.definition.check_attributes(case.attributes)
    rounding = unit_roundoff(compute_dtype(case)) * max(FACTORS)
    is_nearest = arguments["interpolation_mode"] == "nearest_neighbor"
    is_floored = not arguments.get("output_sizes", (0,))
    has_numbers = all(np.isfinite(a.astype(np.float64)).all() for a in case.inputs.values())
    shift = 0.5 if is_nearest and arguments["rounding_direction"] == "half_up" else 0.0
    for axis in axes_of(case):
        is_exact = is_power_of_2(axis.scale)
        size = np.array([axis.length * axis.scale])
        if is_floored and not is_exact and is_near_integer(size, rounding * axis.outputs):
            return False
        # If a pixel is infinite or NaN, it also matters whether linear interpolation reads it at all.
        if (has_numbers and not is_nearest) or (is_exact and have_few_bits([axis.before, axis.after])):
            continue
        if axis.outputs:
            x = axis.coordinates
            x = x[(x > -1) & (x < axis.length)]
            reach = axis.length + 1.5 + 2 * abs(axis.before) + abs(axis.after) / axis.scale
            if is_near_integer(x + shift, 4 * rounding * reach):
                return False
    return True


def explanation(case: Case, facts: Mapping[str, str], compared: Comparison, roi: int | None) -> Explanation:
    """The drawings of the resampled axes and the tables of a valid case; raises ValueError if `roi` is given."""
    if roi is not None:
        raise ValueError(f"{case.operator} has no RoIs")
    drawings = axis_drawings(case, compared.worst.at if compared.worst else None)
    return Explanation(case, facts, outputs=compared.slices({}), axes=drawings)
