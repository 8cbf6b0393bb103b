# SPDX-License-Identifier: MIT
"""The bodies of DirectML's RoiAlign and of its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from onnx_models.portable.attributes import BodyRequest
from onnx_models.portable.graph import Value
from onnx_models.portable.roi_align import Rule, pool
from onnx_models.portable.samples import Mode
from onnx_models.portable.sampling import Reading, directml_placement


def outputs(given: Mapping[str, Value], request: BodyRequest) -> dict[str, Value]:
    """Return the wanted outputs by name."""
    a = request.attributes
    number = partial(a.number, kind="double")
    few = request.few_samples("minimum_samples_per_output", "maximum_samples_per_output")
    place_y, place_x = (
        partial(
            directml_placement,
            scale=number(f"spatial_scale_{axis}"),
            offsets=(number("input_pixel_offset"), number("output_pixel_offset")),
            samples=(number("minimum_samples_per_output"), number("maximum_samples_per_output")),
            to_corners=number("align_regions_to_corners"),
            listed=few,
        )
        for axis in "yx"
    )
    mode: Mode = "avg" if a.word("reduction_function") == "average" else "max_interpolated"
    reading: Reading = "linear" if a.word("interpolation_mode") == "linear" else "nearest"
    outside = None if request.operator.is_gradient else a.number("out_of_bounds_input_value", request.sums)
    return pool(given, request, Rule(mode, outside, reading, place_y, place_x, few))
