"""MaxRoiPool and its gradient: check the inputs, find the bins, and call the kernels of `roi_pool`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ortops.kernels.jit.kernel import Array, Kernel
from ortops.kernels.jit.runners import Runner
from ortops.kernels.layout import PlacedRois
from ortops.kernels.roi_pool import pool, pool_gradient
from ortops.kernels.validate import check_bins, rois_to_place
from ortops.operators.max_roi_pool import MAX_COORDINATE

_place = Kernel("pixel_bins", "place_whole_rois")

_MODE = "max_pixel"


def max_roi_pool(inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner) -> None:
    """Fill Y [R, C, PH, PW] from X [N, C, H, W] and rois [R, 5], each batch_id, x1, y1, x2, y2.

    Raises:
        ValueError: a RoI is not finite, a batch_id is invalid, or the map is empty.
        MemoryError: the workspace cannot be allocated.
    """
    x, rois = inputs
    (y,) = outputs
    pool(x, _place_rois(rois, x.shape, y.shape, attributes), y, _MODE, runner)


def max_roi_pool_grad(
    inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner
) -> None:
    """Fill dX [N, C, H, W] from dY [R, C, PH, PW], X and rois.

    Raises:
        ValueError: as `max_roi_pool`; or dY has no bins.
        MemoryError: the workspace cannot be allocated.
    """
    dy, x, rois = inputs
    (dx,) = outputs
    check_bins("dY", dy)
    pool_gradient(dy, _place_rois(rois, x.shape, dy.shape, attributes), x, dx, None, _MODE, runner)


def _place_rois(
    rois: Array, x_shape: Sequence[int], y_shape: Sequence[int], attributes: Mapping[str, Any]
) -> PlacedRois:
    """Find the bins of all RoIs.

    Raises:
        ValueError: a RoI is invalid, or the map is empty.
    """
    placed = rois_to_place(("X", "rois", "rois"), rois, np.empty(len(rois), np.int64), x_shape, y_shape)
    invalid = _place(rois.astype(np.float64), placed, attributes["spatial_scale"], MAX_COORDINATE)
    if invalid >= 0:
        roi = rois[invalid].tolist()
        rule = "must be finite"
        if all(map(math.isfinite, roi)):
            rule = f"batch_id must be a whole number >= 0 and < {x_shape[0]}, the number of images"
        raise ValueError(f"rois[{invalid}] = {roi}: {rule}")
    return placed
