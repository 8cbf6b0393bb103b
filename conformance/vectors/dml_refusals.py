"""What DmlRoiAlign and its gradient have to refuse: one wrong thing a case, as `refusals.py` has it for RoiAlign."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from conformance.case import Array, Case
from conformance.vectors.refusals import INFINITY, NAN, OUTPUT_SIZES, Wrong, refused
from ortops.operators.dml_roi_align import UINT32_MAX

SHARED = (
    Wrong("reduction_unknown", "reduction_function 'sum' is none of RoiAlign's", {"reduction_function": "sum"}),
    Wrong("reduction_upper_case", "the case of a reduction_function matters", {"reduction_function": "AVERAGE"}),
    Wrong("interpolation_unknown", "interpolation_mode 'cubic' is not one", {"interpolation_mode": "cubic"}),
    Wrong("interpolation_short", "interpolation_mode 'nearest' is not one", {"interpolation_mode": "nearest"}),
    Wrong("scale_x_zero", "spatial_scale_x must be > 0", {"spatial_scale_x": 0.0}),
    Wrong("scale_x_infinite", "spatial_scale_x must be finite", {"spatial_scale_x": INFINITY}),
    Wrong("scale_y_negative", "spatial_scale_y must be > 0", {"spatial_scale_y": -0.5}),
    Wrong("scale_y_nan", "spatial_scale_y must be finite", {"spatial_scale_y": NAN}),
    Wrong("input_offset_nan", "input_pixel_offset must be finite", {"input_pixel_offset": NAN}),
    Wrong("input_offset_infinite", "input_pixel_offset must be finite", {"input_pixel_offset": INFINITY}),
    Wrong("output_offset_nan", "output_pixel_offset must be finite", {"output_pixel_offset": NAN}),
    Wrong("output_offset_infinite", "output_pixel_offset must be finite", {"output_pixel_offset": -INFINITY}),
    Wrong("minimum_zero", "minimum_samples_per_output must be >= 1", {"minimum_samples_per_output": 0}),
    Wrong(
        "minimum_beyond_32_bits",
        "minimum_samples_per_output must fit in 32 bits",
        {"minimum_samples_per_output": UINT32_MAX + 1, "maximum_samples_per_output": UINT32_MAX},
    ),
    Wrong("maximum_zero", "maximum_samples_per_output must be >= 1", {"maximum_samples_per_output": 0}),
    Wrong(
        "maximum_beyond_32_bits",
        "maximum_samples_per_output must fit in 32 bits",
        {"maximum_samples_per_output": UINT32_MAX + 1},
    ),
    Wrong(
        "minimum_above_maximum",
        "minimum_samples_per_output must not exceed maximum_samples_per_output",
        {"minimum_samples_per_output": 3, "maximum_samples_per_output": 2},
    ),
    Wrong("corners_two", "align_regions_to_corners is 0 or 1", {"align_regions_to_corners": 2}),
    Wrong("corners_negative", "align_regions_to_corners is 0 or 1", {"align_regions_to_corners": -1}),
)

DATA = (
    Wrong("regions_rank_1", "ROITensor must have at least rank 2", {"ROITensor": np.ones(4)}),
    Wrong("regions_rank_5", "ROITensor must have at most rank 4", {"ROITensor": np.ones((1, 1, 1, 2, 4))}),
    Wrong("regions_in_two_groups", "the axes before the regions have length 1", {"ROITensor": np.ones((2, 1, 4))}),
    Wrong("regions_of_5", "a region has four numbers", {"ROITensor": np.ones((2, 5))}),
    Wrong(
        "indices_rank_5", "indices have at most rank 4", {"BatchIndicesTensor": np.zeros((1, 1, 1, 1, 2), np.uint32)}
    ),
    Wrong("indices_in_a_column", "the last axis is the regions'", {"BatchIndicesTensor": np.zeros((2, 1), np.uint32)}),
    Wrong("fewer_indices", "each region needs a batch index", {"BatchIndicesTensor": np.zeros(1, np.uint32)}),
    Wrong("more_indices", "each batch index needs a region", {"BatchIndicesTensor": np.zeros(3, np.uint32)}),
    Wrong("index_negative", "-1 is not the last image", {"BatchIndicesTensor": np.array([0, -1])}),
    Wrong("index_N", "N is one more than the last image", {"BatchIndicesTensor": np.array([0, 2])}),
    Wrong("index_N_uint32", "N is one more than the last image", {"BatchIndicesTensor": np.array([2, 0], np.uint32)}),
    Wrong(
        "index_of_32_bits",
        "the largest 32-bit index is not -1",
        {"BatchIndicesTensor": np.array([UINT32_MAX, 0], np.uint32)},
    ),
    Wrong("index_huge", "an index beyond 32 bits is not cut to them", {"BatchIndicesTensor": np.array([2**32, 0])}),
    Wrong("region_nan", "a region must be finite", {"ROITensor": np.array([[0, 0, 1, 1], [0, NAN, 1, 1]])}),
    Wrong("region_infinite", "a region must be finite", {"ROITensor": np.array([[0, 0, INFINITY, 1], [0, 0, 1, 1]])}),
    Wrong("region_minus_infinite", "a region must be finite", {"ROITensor": np.array([[0, -INFINITY, 1, 1]] * 2)}),
)

NO_REGIONS: Mapping[str, Array] = {
    "ROITensor": np.ones((0, 4)),
    "BatchIndicesTensor": np.zeros(0, np.uint32),
    "InputGradientTensor": np.ones((0, 3, 2, 2)),
}

LEADING = (
    Wrong("no_regions_in_two_groups", "the axes before no regions have length 1", {"ROITensor": np.ones((2, 0, 4))}),
    Wrong(
        "no_indices_in_two_groups",
        "the axes before no indices have length 1",
        {"BatchIndicesTensor": np.zeros((2, 1, 1, 0), np.uint32)},
    ),
)
"""Wrong without regions, where a product of lengths does not tell."""

MAPS = (
    Wrong("map_rank_3", "InputTensor must have rank 4", {"InputTensor": np.ones((2, 4, 5))}),
    Wrong("no_rows", "regions need pixels: the height is 0", {"InputTensor": np.ones((2, 3, 0, 5))}),
    Wrong("no_columns", "regions need pixels: the width is 0", {"InputTensor": np.ones((2, 3, 4, 0))}),
    Wrong("no_images", "regions need images", {"InputTensor": np.ones((0, 3, 4, 5))}),
)

GRADIENTS = (
    Wrong("gradient_rank_3", "InputGradientTensor must have rank 4", {"InputGradientTensor": np.ones((2, 3, 2))}),
    Wrong("gradient_of_other_regions", "as many as regions", {"InputGradientTensor": np.ones((3, 3, 2, 2))}),
    Wrong("gradient_of_other_channels", "as many as x_shape says", {"InputGradientTensor": np.ones((2, 1, 2, 2))}),
    Wrong("gradient_without_rows", "it must have outputs", {"InputGradientTensor": np.ones((2, 3, 0, 2))}),
    Wrong("x_shape_of_3", "x_shape has four lengths", {"x_shape": np.array([2, 3, 4])}),
    Wrong("x_shape_negative", "a length is not negative", {"x_shape": np.array([2, 3, -4, -5])}),
    Wrong(
        "map_of_other_height", "InputTensor has the shape that x_shape gives", {"InputTensor": np.ones((2, 3, 5, 5))}
    ),
    Wrong("no_rows", "regions need pixels", {"x_shape": np.array([2, 3, 0, 5]), "InputTensor": np.ones((2, 3, 0, 5))}),
    Wrong("roi_gradient_without_map", "OutputROIGradientTensor needs InputTensor", {"InputTensor": None}),
)

BOTH = ("OutputGradientTensor", "OutputROIGradientTensor")


def cases() -> Iterator[Case]:
    """For either operator, each wrong thing by itself; all else of the case is right."""
    regions = {
        "ROITensor": np.array([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 3.0, 2.5]]),
        "BatchIndicesTensor": np.array([0, 1], np.uint32),
    }
    forward, sizes = {"InputTensor": np.ones((2, 3, 4, 5)), **regions}, {"output_height": 2, "output_width": 2}
    for wrong in (*OUTPUT_SIZES, *SHARED):
        yield from refused("dml_roi_align", wrong, "attribute", sizes, forward, ["OutputTensor"])
    for wrong in (*DATA, *MAPS):
        yield from refused("dml_roi_align", wrong, "data", sizes, forward, ["OutputTensor"])
    for wrong in LEADING:
        yield from refused("dml_roi_align", wrong, "data", sizes, _without_regions(forward), ["OutputTensor"])

    backward = {**forward, "InputGradientTensor": np.ones((2, 3, 2, 2)), "x_shape": np.array([2, 3, 4, 5])}
    for wrong in SHARED:
        yield from refused("dml_roi_align_grad", wrong, "attribute", {}, backward, BOTH)
    for wrong in (*DATA, *GRADIENTS):
        yield from refused("dml_roi_align_grad", wrong, "data", {}, backward, BOTH)
    for wrong in LEADING:
        yield from refused("dml_roi_align_grad", wrong, "data", {}, _without_regions(backward), BOTH)
    wrong = Wrong("max_without_map", "a maximum needs InputTensor for its gradient", {"InputTensor": None})
    yield from refused("dml_roi_align_grad", wrong, "data", {"reduction_function": "max"}, backward, BOTH[:1])
    wrong = Wrong("nearest_roi_gradient_without_map", "also where that gradient is 0", {"InputTensor": None})
    nearest = {"interpolation_mode": "nearest_neighbor"}
    yield from refused("dml_roi_align_grad", wrong, "data", nearest, backward, BOTH[1:])


def _without_regions(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {name: NO_REGIONS.get(name, array) for name, array in inputs.items()}
