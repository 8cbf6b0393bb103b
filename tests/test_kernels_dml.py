"""DirectML's RoiAlign where numbers are huge or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ortops
from ortops.operators.dml_roi_align import UINT32_MAX


def test_samples_off_the_map_have_their_value_and_no_rounding_reaches_the_others() -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    sizes: dict[str, Any] = {"output_height": 1, "output_width": 3}
    for value in (1e30, np.inf, np.nan):
        y = ortops.dml_roi_align(x, [[0.3, 0.3, 12.3, 3.1]], [0], out_of_bounds_input_value=value, **sizes)
        assert y[0, 0, 0, 0] == pytest.approx(1, abs=1e-6)
        np.testing.assert_array_equal(y[0, 0, 0, 2], np.float32(value))


@pytest.mark.parametrize(
    "attributes",
    [
        {"input_pixel_offset": 1e38},
        {"output_pixel_offset": -3e38},
        {"spatial_scale_x": 3e38},
        {"minimum_samples_per_output": UINT32_MAX},
        {"minimum_samples_per_output": UINT32_MAX, "reduction_function": "max"},
        {
            "minimum_samples_per_output": UINT32_MAX,
            "align_regions_to_corners": True,
            "interpolation_mode": "nearest_neighbor",
        },
    ],
)
def test_huge_regions_offsets_scales_and_counts_take_no_more_than_the_map(attributes: dict[str, Any]) -> None:
    x = np.ones((1, 2, 20, 20))
    for roi in ([0, 0, 1e308, 1e308], [-1e308, -1e308, 1e308, 1e308], [5, 5, 5, 5], [1e308, 0, -1e308, 3]):
        y = ortops.dml_roi_align(x, [roi], [0], output_height=7, output_width=300, **attributes)
        assert np.all((y >= 0) & (y <= 1 + 1e-9))
        dx, _ = ortops.dml_roi_align_grad(np.ones_like(y), [roi], [0], x.shape, x=x, **attributes)
        assert dx is not None
        assert np.all(np.isfinite(dx))


@pytest.mark.parametrize("reduction", ["average", "max"])
def test_nearest_pixels_that_are_no_numbers_give_the_regions_no_gradient(reduction: str) -> None:
    x = np.full((1, 2, 5, 6), np.inf, np.float32)
    x[0, 1] = np.nan
    dy, rois = np.full((1, 2, 2, 2), np.nan, np.float32), np.array([[0.3, 0.2, 4.1, 3.7]], np.float32)
    attributes: dict[str, Any] = {"reduction_function": reduction, "interpolation_mode": "nearest_neighbor"}
    dx, drois = ortops.dml_roi_align_grad(dy, rois, [0], x.shape, x=x, **attributes)
    np.testing.assert_array_equal(drois, np.zeros((1, 4)))
    assert dx is not None
    assert np.isnan(dx).any()
    alone = ortops.dml_roi_align_grad(dy, rois, [0], x.shape, x=x, outputs=("drois",), **attributes)
    np.testing.assert_array_equal(alone[1], np.zeros((1, 4)))
