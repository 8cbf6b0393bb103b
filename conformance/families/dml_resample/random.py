# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random cases of DmlResample and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from conformance.case import Case
from conformance.error_terms import unit_roundoff
from conformance.families.dml_resample.geometry import axes_of
from conformance.families.roundings import FACTORS, Perturbed, have_few_bits, is_near_integer, is_power_of_2
from ortops.operators.dml_resample import DML_RESAMPLE
from ortops.shapes import output_shapes
from ortops.spec import Operator

if TYPE_CHECKING:
    from conformance.families.random_draw import DrawnCase, RandomDraw

__all__ = ["perturbed", "random_case", "work"]


def work(case: Case) -> float:
    """Return 0: the reference adds only a few pixels for each output."""
    del case
    return 0


def random_case(draw: RandomDraw, operator: Operator) -> DrawnCase:
    """A random case of DmlResample or its gradient."""
    rank = draw.integer(1, 4)
    lengths = [draw.integer(1, (60, 12, 6, 4)[rank - 1]) for _ in range(rank)]
    if draw.is_large():
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
    attributes, outputs = draw.attributes(operator, given), (operator.outputs[0].name,)
    if not operator.is_gradient:
        return attributes, {"InputTensor": draw.values(lengths)}, outputs
    shapes = output_shapes(DML_RESAMPLE, {"InputTensor": tuple(lengths)}, {}, DML_RESAMPLE.check_attributes(given))
    return attributes, {"InputGradientTensor": draw.values(shapes[0]), "x_shape": np.array(lengths)}, outputs


def perturbed(case: Case) -> Perturbed | None:
    """See `conformance.families.PARTS`: None if rounding decides an output length or which pixel an output reads."""
    arguments = case.definition.check_attributes(case.attributes)
    rounding = unit_roundoff(case.compute_dtype) * max(FACTORS)
    is_nearest = arguments["interpolation_mode"] == "nearest_neighbor"
    is_floored = not arguments.get("output_sizes", (0,))
    has_numbers = all(np.isfinite(a.astype(np.float64)).all() for a in case.inputs.values())
    shift = 0.5 if is_nearest and arguments["rounding_direction"] == "half_up" else 0.0
    for axis in axes_of(case):
        is_exact = is_power_of_2(axis.scale)
        size = np.array([axis.length * axis.scale])
        if is_floored and not is_exact and is_near_integer(size, rounding * axis.outputs):
            return None
        # If a pixel is infinite or NaN, it also matters whether linear interpolation reads it at all.
        if (has_numbers and not is_nearest) or (is_exact and have_few_bits([axis.before, axis.after])):
            continue
        if axis.outputs:
            x = axis.coordinates
            x = x[(x > -1) & (x < axis.length)]
            reach = axis.length + 1.5 + 2 * abs(axis.before) + abs(axis.after) / axis.scale
            if is_near_integer(x + shift, 4 * rounding * reach):
                return None
    return Perturbed(case)
