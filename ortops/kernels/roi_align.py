"""RoiAlign and its gradient: check the inputs, place the samples, and call the kernels of `roi_pool`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ortops.kernels.jit.kernel import Array, Kernel
from ortops.kernels.jit.runners import Runner
from ortops.kernels.layout import PlacedRois
from ortops.kernels.roi_pool import pool, pool_gradient
from ortops.kernels.validate import check_bins, place, rois_to_place

_place = Kernel("axis", "place_onnx_rois")

_NAMES = ("X", "rois", "batch_indices")


def roi_align(inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner) -> None:
    """Fill Y [R, C, PH, PW] from X [N, C, H, W], rois [R, 4], batch_indices [R].

    Raises:
        ValueError: a RoI is not finite, a batch index is invalid, or the map is empty.
        MemoryError: the workspace cannot be allocated.
    """
    x, rois, batch_indices = inputs
    (y,) = outputs
    placed = _place_rois(rois, batch_indices, x.shape, y.shape, attributes)
    pool(x, placed, y, attributes["mode"], runner)


def roi_align_grad(
    inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner
) -> None:
    """Fill dX [N, C, H, W] and drois [R, 4], unless they are None, from dY, rois, batch_indices, x_shape and X.

    Raises:
        ValueError: as `roi_align`; or dY has no bins.
        MemoryError: the workspace cannot be allocated.
    """
    dy, rois, batch_indices, x_shape, x = inputs
    dx, drois = outputs
    check_bins("dY", dy)
    placed = _place_rois(rois, batch_indices, x_shape.tolist(), dy.shape, attributes)
    pool_gradient(dy, placed, x, dx, drois, attributes["mode"], runner)


def _place_rois(
    rois: Array, batch_indices: Array, x_shape: Sequence[int], y_shape: Sequence[int], attributes: Mapping[str, Any]
) -> PlacedRois:
    """Place the samples of all RoIs.

    Raises:
        ValueError: a RoI or its batch index is invalid, or the map is empty.
    """
    placed = rois_to_place(_NAMES, rois, batch_indices, x_shape, y_shape)
    half_pixel = attributes["coordinate_transformation_mode"] == "half_pixel"
    place(_place, _NAMES, rois, placed, placed, attributes["spatial_scale"], half_pixel, attributes["sampling_ratio"])
    return placed
