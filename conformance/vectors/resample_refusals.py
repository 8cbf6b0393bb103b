"""What DmlResample and its gradient have to refuse: one wrong thing a case, as `dml_refusals.py` has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from conformance.case import Array, Case
from conformance.vectors.refusals import INFINITY, NAN, Wrong, refused
from ortops.spec import AttributeValue

SHARED = (
    Wrong("interpolation_unknown", "interpolation_mode 'cubic' is not one", {"interpolation_mode": "cubic"}),
    Wrong("interpolation_short", "interpolation_mode 'nearest' is not one", {"interpolation_mode": "nearest"}),
    Wrong("interpolation_upper_case", "the case of an interpolation_mode matters", {"interpolation_mode": "LINEAR"}),
    Wrong("direction_unknown", "rounding_direction 'half_down' is not one", {"rounding_direction": "half_down"}),
    Wrong("direction_upper_case", "the case of a rounding_direction matters", {"rounding_direction": "INCREASING"}),
    Wrong("direction_empty", "an empty rounding_direction is not the default", {"rounding_direction": ""}),
    Wrong("scale_zero", "a scale must be > 0", {"scales": (1.0, 0.0)}),
    Wrong("scale_negative", "a scale must be > 0", {"scales": (-2.0, 1.0)}),
    Wrong("scale_infinite", "a scale must be finite", {"scales": (1.0, INFINITY)}),
    Wrong("scale_nan", "a scale must be finite", {"scales": (NAN, 1.0)}),
    Wrong("input_offset_nan", "an input_pixel_offset must be finite", {"input_pixel_offsets": (NAN, 0.5)}),
    Wrong("input_offset_infinite", "an input_pixel_offset must be finite", {"input_pixel_offsets": (0.5, INFINITY)}),
    Wrong("output_offset_nan", "an output_pixel_offset must be finite", {"output_pixel_offsets": (-0.5, NAN)}),
    Wrong(
        "output_offset_infinite", "an output_pixel_offset must be finite", {"output_pixel_offsets": (-INFINITY, -0.5)}
    ),
    Wrong(
        "input_offsets_fewer_than_scales",
        "lists have one value for each axis: two scales, one input_pixel_offset",
        {"input_pixel_offsets": (0.5,)},
    ),
    Wrong(
        "output_offsets_more_than_scales",
        "lists have one value for each axis: two scales, three output_pixel_offsets",
        {"output_pixel_offsets": (-0.5, -0.5, -0.5)},
    ),
    Wrong("five_scales", "no tensor has five axes", {"scales": (1.0, 1.0, 1.0, 1.0, 1.0)}),
)

OUTPUT_SIZES = (
    Wrong("output_size_negative", "an output size must be >= 0", {"output_sizes": (4, -1)}),
    Wrong(
        "three_output_sizes", "lists have one value for each axis: two scales, three sizes", {"output_sizes": (4, 4, 4)}
    ),
    Wrong("five_output_sizes", "no tensor has five axes", {"output_sizes": (1, 1, 1, 1, 1), "scales": ()}),
)

TENSORS = (
    Wrong("input_rank_0", "InputTensor must have an axis", {"InputTensor": np.array(1.0)}),
    Wrong("input_rank_1", "InputTensor must have an axis for each scale", {"InputTensor": np.ones(3)}),
    Wrong("input_rank_3", "InputTensor must not have more axes than scales", {"InputTensor": np.ones((1, 2, 3))}),
    Wrong("input_rank_5", "InputTensor must have at most rank 4", {"InputTensor": np.ones((1, 1, 1, 2, 3))}),
)

GRADIENTS = (
    Wrong(
        "gradient_rank_0",
        "InputGradientTensor must have an axis",
        {"InputGradientTensor": np.array(1.0), "x_shape": np.zeros(0, np.int64)},
    ),
    Wrong(
        "gradient_rank_3",
        "InputGradientTensor must not have more axes than x_shape has lengths",
        {"InputGradientTensor": np.ones((1, 4, 6))},
    ),
    Wrong(
        "gradient_rank_5",
        "InputGradientTensor must have at most rank 4",
        {"InputGradientTensor": np.ones((1, 1, 1, 4, 6)), "x_shape": np.array([1, 1, 1, 2, 3])},
    ),
    Wrong("x_shape_of_1", "x_shape must have a length for each axis", {"x_shape": np.array([6])}),
    Wrong("x_shape_of_3", "x_shape must not have more lengths than axes", {"x_shape": np.array([1, 2, 3])}),
    Wrong("x_shape_of_none", "x_shape must not be empty", {"x_shape": np.zeros(0, np.int64)}),
    Wrong("x_shape_rank_2", "x_shape must have rank 1", {"x_shape": np.array([[2, 3]])}),
    Wrong("x_shape_negative", "a length is not negative", {"x_shape": np.array([-2, -3])}),
    Wrong("no_pixels", "outputs need pixels to pass their gradient to", {"x_shape": np.array([2, 0])}),
)

NO_SCALES: Mapping[str, AttributeValue] = {"scales": ()}

MISFITS = (
    Wrong("neither_scales_nor_sizes", "scales or output_sizes must be given", NO_SCALES),
    Wrong("sizes_of_another_rank", "InputTensor must have an axis for each size", {**NO_SCALES, "output_sizes": (4,)}),
    Wrong("output_beyond_64_bits", "an output's length must fit in 64 bits", {"scales": (1.0, 1e38)}),
)
"""Attributes that are right by themselves and do not fit the tensors."""

GRADIENT_MISFITS = (
    Wrong(
        "scales_of_another_rank", "InputGradientTensor must have an axis for each scale", {"scales": (2.0, 2.0, 2.0)}
    ),
    Wrong(
        "offsets_of_another_rank",
        "InputGradientTensor must have an axis for each offset",
        {**NO_SCALES, "input_pixel_offsets": (0.5, 0.5, 0.5)},
    ),
)

WRONG_TYPES = (
    Wrong(
        "input_of_integers",
        "InputTensor must have a floating-point type",
        {"InputTensor": np.ones((2, 3), np.int64)},
        True,
    ),
)

GRADIENT_WRONG_TYPES = (
    Wrong(
        "gradient_of_integers",
        "InputGradientTensor must have a floating-point type",
        {"InputGradientTensor": np.ones((4, 6), np.int64)},
        True,
    ),
    Wrong("x_shape_of_floats", "x_shape must be of integers", {"x_shape": np.array([2, 3], np.float32)}, True),
)

NO_PIXELS = Wrong("no_pixels", "outputs need pixels to read", {"InputTensor": np.ones((2, 0))})

FORWARD: Mapping[str, Array] = {"InputTensor": np.ones((2, 3))}
BACKWARD: Mapping[str, Array] = {"InputGradientTensor": np.ones((4, 6)), "x_shape": np.array([2, 3])}


def cases() -> Iterator[Case]:
    """For either operator, each wrong thing by itself; all else of the case is right."""
    outputs, scales = ["OutputTensor"], {"scales": (2.0, 2.0)}
    for wrong in (*SHARED, *OUTPUT_SIZES):
        yield from refused("dml_resample", wrong, "attribute", scales, FORWARD, outputs)
    for wrong in (*MISFITS, *TENSORS, *WRONG_TYPES):
        yield from refused("dml_resample", wrong, "data", scales, FORWARD, outputs)
    yield from refused("dml_resample", NO_PIXELS, "data", {**scales, "output_sizes": (4, 6)}, FORWARD, outputs)

    outputs = ["OutputGradientTensor"]
    for wrong in SHARED:
        yield from refused("dml_resample_grad", wrong, "attribute", scales, BACKWARD, outputs)
    for wrong in GRADIENT_MISFITS:
        yield from refused("dml_resample_grad", wrong, "data", scales, BACKWARD, outputs)
    for wrong in (*GRADIENTS, *GRADIENT_WRONG_TYPES):
        yield from refused("dml_resample_grad", wrong, "data", NO_SCALES, BACKWARD, outputs)
