"""DirectML's ROI_ALIGN1 and its gradient: check the inputs, place the samples, and call the kernels of `roi_pool`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ortops.kernels.jit.kernel import Array, Kernel
from ortops.kernels.jit.runners import Runner
from ortops.kernels.layout import CEIL, NEAREST, PlacedRois
from ortops.kernels.roi_pool import pool, pool_gradient
from ortops.kernels.validate import check_bins, place, rois_to_place

_place = Kernel("axis", "place_dml_regions")

_NAMES = ("InputTensor", "ROITensor", "BatchIndicesTensor")
_MODES = {"average": "avg", "max": "max_interpolated"}


def dml_roi_align(inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner) -> None:
    """Fill OutputTensor [R, C, PH, PW] from InputTensor [N, C, H, W], ROITensor [R, 4] and BatchIndicesTensor [R].

    Raises:
        ValueError: a region is not finite, a batch index is invalid, or the map is empty.
        MemoryError: the workspace cannot be allocated.
    """
    x, rois, indices = inputs
    (y,) = outputs
    placed = _place_rois(rois, indices, x.shape, y.shape, attributes)
    mode = _MODES[attributes["reduction_function"]]
    pool(x, placed, y, mode, runner, attributes["out_of_bounds_input_value"])


def dml_roi_align_grad(
    inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner
) -> None:
    """Fill OutputGradientTensor [N, C, H, W] and OutputROIGradientTensor [R, 4] unless they are None.

    Raises:
        ValueError: as `dml_roi_align`; or InputGradientTensor has no bins.
        MemoryError: the workspace cannot be allocated.
    """
    dy, rois, indices, x_shape, x = inputs
    dx, drois = outputs
    mode = _MODES[attributes["reduction_function"]]
    check_bins("InputGradientTensor", dy)
    placed = _place_rois(rois, indices, x_shape.tolist(), dy.shape, attributes)
    if drois is not None and attributes["interpolation_mode"] == "nearest_neighbor":
        # The nearest pixel does not change with the region, so the derivative is 0, also if the pixel is NaN.
        drois[...] = 0
        drois = None
    if dx is not None or drois is not None:
        pool_gradient(dy, placed, x, dx, None if drois is None else drois.reshape(-1, 4), mode, runner)


def _place_rois(
    rois: Array, indices: Array, x_shape: Sequence[int], y_shape: Sequence[int], attributes: Mapping[str, Any]
) -> PlacedRois:
    """Place the samples of all regions.

    Raises:
        ValueError: a region or its batch index is invalid, or the map is empty.
    """
    rois, batch_indices = rois.reshape(-1, 4), indices.reshape(-1).astype(np.int64, copy=False)
    placed = rois_to_place(_NAMES, rois, batch_indices, x_shape, y_shape)
    place(
        _place,
        _NAMES,
        rois,
        placed,
        placed,
        attributes["spatial_scale_y"],
        attributes["spatial_scale_x"],
        attributes["input_pixel_offset"],
        attributes["output_pixel_offset"],
        attributes["minimum_samples_per_output"],
        attributes["maximum_samples_per_output"],
        attributes["align_regions_to_corners"],
        NEAREST if attributes["interpolation_mode"] == "nearest_neighbor" else CEIL,
    )
    return placed
