"""What the cases of the suite reach: each name that an attribute may have, and how small and large numbers and sizes are."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from conformance.case import Case
from conformance.vectors import collect
from ortops.operators import OPERATORS
from ortops.spec import Operator

RANGES = """
roi_align: output_height 1..131, output_width 1..131, sampling_ratio 0..129, spatial_scale 0.0625..8, digits 1..8,
    side -3.375..2e+09, thinnest 0.015625..2e+09, N 0..300, C 0..300, H 0..1030, W 0..1030, num_rois 0..1025, pairs
    0..66625, calls 1..5
dml_roi_align: output_height 1..131, output_width 1..131, spatial_scale_x 0.0625..8, digits 1..8, spatial_scale_y
    0.046875..8, input_pixel_offset -1.5..100.0005, output_pixel_offset -1.5..1.25, minimum_samples_per_output 1..129,
    maximum_samples_per_output 1..4.294967e+09, align_regions_to_corners 0..1, out_of_bounds_input_value -inf..inf,
    side -4..1.099512e+12, thinnest 0.015625..1.099512e+12, N 0..300, C 0..300, H 0..1030, W 0..1030, num_rois
    0..1025, pairs 0..66625, calls 1..5
dml_roi_align_grad: spatial_scale_x 0.0625..8, digits 1..8, spatial_scale_y 0.046875..8, input_pixel_offset
    -0.28125..100.0005, output_pixel_offset -0.59375..0.40625, minimum_samples_per_output 1..65,
    maximum_samples_per_output 1..4.294967e+09, align_regions_to_corners 0..1, side -3.375..60000, thinnest
    0.015625..60000, num_rois 0..4096, C 0..300, output_height 1..131, output_width 1..131, N 0..300, H 0..1030, W
    0..1030, pairs 0..66625, calls 1..5
dml_resample: scales 1.175494e-38..3.402823e+38, digits 1..8, input_pixel_offsets -1.099512e+12..1.099512e+12,
    output_pixel_offsets -1024..100.0005, N0 0..1030, N1 1..512, calls 1..4, N2 1..512, N3 1..512, output_sizes 0..9
dml_resample_grad: scales 7.888609e-31..1.267651e+30, digits 1..8, input_pixel_offsets -8192..8192,
    output_pixel_offsets -100.25..100.0005, M0 0..8192, M1 0..4096, N0 0..1030, N1 1..514, calls 1..4, M2 1..1020, M3
    1..1028, N2 1..514, N3 1..514
roi_align_grad: sampling_ratio 0..65, spatial_scale 0.0625..8, digits 1..8, side -3.375..1.073742e+09, thinnest
    0.015625..1.073742e+09, num_rois 0..4096, C 0..300, output_height 1..131, output_width 1..131, N 0..300, H
    0..1030, W 0..1030, pairs 0..66625, calls 1..5
max_roi_pool: pooled_shape 1..131, spatial_scale 0.01000005..16, digits 1..8, side -4..inf, thinnest 0.125..inf, N
    0..300, C 0..300, H 0..1025, W 0..1050, num_rois 0..1025, pairs 0..66625, calls 1..6
max_roi_pool_grad: spatial_scale 0.01000005..8, digits 1..8, side -4..2e+09, thinnest 0.125..2e+09, num_rois 0..4096,
    C 0..300, output_height 1..131, output_width 1..131, N 0..300, H 0..1025, W 0..1050, pairs 0..66625, calls 1..6
roi_align_rotated: output_height 1..29, output_width 1..129, aligned 0..1, clockwise 0..1, sampling_ratio 0..64,
    spatial_scale 0.0625..6.5, digits 1..8, side -4..1e+09, thinnest 0.015625..1e+09, N 0..299, C 0..299, H 0..1030, W
    0..1030, num_rois 0..1025, pairs 0..66625, calls 1..5
roi_align_rotated_grad: aligned 0..1, clockwise 0..1, sampling_ratio 0..64, spatial_scale 0.0625..6.5, digits 1..8,
    side -3.375..1e+09, thinnest 0.015625..125, num_rois 0..4096, C 0..299, output_height 1..29, output_width 1..129, N
    0..299, H 0..1030, W 0..1030, pairs 0..66625, calls 1..5
"""


def ranges(function: str, cases: Iterable[Case]) -> dict[str, tuple[float, float]]:
    """The least and the largest value of each axis and attribute over the cases of a function that expect values.

    Other than axes by their names and attributes: `calls` of a session, significant `digits` of attributes as float32,
    `pairs` of a RoI and a channel, and the `side` of a RoI as it is stored, also the `thinnest`, which is above 0.
    """
    found: dict[str, tuple[float, float]] = {}
    for case in cases:
        if case.definition.function == function and case.expects_error is None:
            for name, value in _measured(case):
                least, most = found.get(name, (value, value))
                found[name] = min(least, value), max(most, value)
    return found


@functools.cache
def _digits(value: float) -> int:
    """The number of significant digits that tell a float32 from its neighbours."""
    with np.errstate(over="ignore"):
        return next((n for n in range(1, 9) if np.float32(f"{value:.{n}g}") == np.float32(value)), 9)


def _measured(case: Case) -> Iterator[tuple[str, float]]:
    for attribute in case.definition.attributes:
        value = case.attributes.get(attribute.name, attribute.default)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int | float):
                yield attribute.name, one
                if attribute.type.startswith("FLOAT"):
                    yield "digits", _digits(one)
    lengths: dict[int | str, int] = {}
    for name, array in case.inputs.items():
        tensor = next(t for t in case.definition.inputs if t.name == name)
        lengths |= zip(tensor.axes(array.ndim), array.shape, strict=True)
        if tensor.element_axes:
            lengths |= zip(tensor.axes_of_elements(array.size), array.tolist(), strict=True)
        elif tensor.axes(2) in (("num_rois", 4), ("num_rois", 5)) and array.size:
            numbers = array.astype(np.float64)
            is_rotated = case.definition.family == "roi_align_rotated"
            with np.errstate(over="ignore"):
                sides = numbers[..., 2:4] if is_rotated else numbers[..., -2:] - numbers[..., -4:-2]
            yield from (("side", float(sides.min())), ("side", float(sides.max())))
            if np.any(sides > 0):
                yield "thinnest", float(sides[sides > 0].min())
    yield from ((str(name), length) for name, length in lengths.items() if isinstance(name, str) and name != "rank")
    if "num_rois" in lengths:
        yield "pairs", lengths["num_rois"] * lengths["C"]
    yield "calls", len(case.before) + 1


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_every_name_that_an_attribute_may_have_is_used_and_every_default(operator: Operator) -> None:
    answered = [case.attributes for case in collect() if case.operator == operator.name and not case.expects_error]
    for attribute in operator.attributes:
        used = {attributes.get(attribute.name) for attributes in answered if not attribute.is_list}
        assert used >= set(attribute.choices), attribute.name
        assert attribute.required or any(attribute.name not in attributes for attributes in answered), attribute.name


@pytest.mark.parametrize("entry", re.split(r"\n(?! )", RANGES.strip()), ids=lambda entry: entry.split(":")[0])
def test_cases_reach_from_the_least_to_the_largest_value(entry: str) -> None:
    function, said = " ".join(entry.split()).split(": ")
    found = ranges(function, collect())
    assert said == ", ".join(f"{name} {least:.7g}..{most:.7g}" for name, (least, most) in found.items())
