"""RoiAlign and its gradient: ONNX's convention and checks, in front of the pooling that every such operator shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ortops.kernels.compile import cached
from ortops.kernels.element import Array, widen, words
from ortops.kernels.parallel import Runner
from ortops.kernels.pooling import pool, pool_gradient
from ortops.kernels.regions import check_gradient, check_regions
from ortops.kernels.sampling import NUMBERS, onnx_axis


def roi_align(inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner) -> None:
    """Fill Y [R, C, PH, PW] from X [N, C, H, W], rois [R, 4] and batch_indices [R].

    Raises:
        ValueError: a RoI is not finite, a batch index is not an image's, or the map is empty.
        MemoryError: there is none left to work in.
    """
    x, rois, batch_indices = inputs
    (y,) = outputs
    axes = _axes(rois, batch_indices, x.shape, y.shape, attributes)
    pool(x, axes, batch_indices, y, attributes["mode"], runner)


def roi_align_grad(
    inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner
) -> None:
    """Fill dX [N, C, H, W] and drois [R, 4], where not None, from dY, rois, batch_indices, x_shape and X.

    Raises:
        ValueError: as `roi_align`; or X is None though a maximum or drois needs it; or no output is wanted.
        MemoryError: there is none left to work in.
    """
    dy, rois, batch_indices, x_shape, x = inputs
    dx, drois = outputs
    mode = attributes["mode"]
    names = ("dY", "X", "dX", "drois")
    check_gradient(names, dy, x, dx, drois, None if mode == "avg" else f"mode = {mode!r}")
    axes = _axes(rois, batch_indices, x_shape.tolist(), dy.shape, attributes)
    pool_gradient(dy, axes, batch_indices, x, dx, drois, mode, runner)


def _axes(
    rois: Array, batch_indices: Array, x_shape: Sequence[int], y_shape: Sequence[int], attributes: Mapping[str, Any]
) -> Array:
    """The axes of all RoIs, [R, 2, NUMBERS] with y before x.

    Raises:
        ValueError: a RoI or its batch index is refused.
    """
    check_regions(("X", "rois", "batch_indices"), rois, batch_indices, x_shape)
    half_pixel = attributes["coordinate_transformation_mode"] == "half_pixel"
    axes = np.empty((len(rois), 2, NUMBERS))
    _place(
        words(rois),
        y_shape[2],
        y_shape[3],
        attributes["spatial_scale"],
        half_pixel,
        attributes["sampling_ratio"],
        axes,
    )
    return axes


@cached
def _place(
    rois: Array, bins_y: int, bins_x: int, scale: float, half_pixel: bool, sampling_ratio: int, axes: Array
) -> None:
    for r in range(len(rois)):
        x1, y1 = np.float64(widen(rois[r, 0])), np.float64(widen(rois[r, 1]))
        x2, y2 = np.float64(widen(rois[r, 2])), np.float64(widen(rois[r, 3]))
        onnx_axis(y1, y2, scale, half_pixel, bins_y, sampling_ratio, axes[r, 0])
        onnx_axis(x1, x2, scale, half_pixel, bins_x, sampling_ratio, axes[r, 1])
