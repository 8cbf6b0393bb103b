"""DirectML's ROI_ALIGN1 and its gradient: its convention and checks, in front of the pooling that RoiAlign has too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ortops.kernels.compile import cached
from ortops.kernels.element import Array, widen, words
from ortops.kernels.parallel import Runner
from ortops.kernels.pooling import pool, pool_gradient
from ortops.kernels.regions import check_gradient, check_regions
from ortops.kernels.sampling import CEIL, NEAREST, NUMBERS, dml_axis

_MODES = {"average": "avg", "max": "max_interpolated"}


def dml_roi_align(inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner) -> None:
    """Fill OutputTensor [R, C, PH, PW] from InputTensor [N, C, H, W], ROITensor [R, 4] and BatchIndicesTensor [R].

    Raises:
        ValueError: a region is not finite, a batch index is not an image's, or the map is empty.
        MemoryError: there is none left to work in.
    """
    x, rois, indices = inputs
    (y,) = outputs
    axes, images = _axes(rois, indices, x.shape, y.shape, attributes)
    mode = _MODES[attributes["reduction_function"]]
    pool(x, axes, images, y, mode, runner, attributes["out_of_bounds_input_value"])


def dml_roi_align_grad(
    inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner
) -> None:
    """Fill OutputGradientTensor [N, C, H, W] and OutputROIGradientTensor [R, 4], where not None.

    Raises:
        ValueError: as `dml_roi_align`; or InputTensor is None though max or OutputROIGradientTensor needs it; or no
            output is wanted.
        MemoryError: there is none left to work in.
    """
    dy, rois, indices, x_shape, x = inputs
    dx, drois = outputs
    mode = _MODES[attributes["reduction_function"]]
    names = ("InputGradientTensor", "InputTensor", "OutputGradientTensor", "OutputROIGradientTensor")
    check_gradient(names, dy, x, dx, drois, None if mode == "avg" else "reduction_function = 'max'")
    axes, images = _axes(rois, indices, x_shape.tolist(), dy.shape, attributes)
    pool_gradient(dy, axes, images, x, dx, None if drois is None else drois.reshape(-1, 4), mode, runner)


def _axes(
    rois: Array, indices: Array, x_shape: Sequence[int], y_shape: Sequence[int], attributes: Mapping[str, Any]
) -> tuple[Array, Array]:
    """The axes of all regions, [R, 2, NUMBERS] with y before x, and the image of each.

    Raises:
        ValueError: a region or its batch index is refused.
    """
    rois, images = rois.reshape(-1, 4), indices.reshape(-1).astype(np.int64, copy=False)
    check_regions(("InputTensor", "ROITensor", "BatchIndicesTensor"), rois, images, x_shape)
    rule = NEAREST if attributes["interpolation_mode"] == "nearest_neighbor" else CEIL
    axes = np.empty((len(rois), 2, NUMBERS))
    for axis, name in enumerate(("y", "x")):
        _place(
            words(rois),
            axis,
            attributes[f"spatial_scale_{name}"],
            attributes["input_pixel_offset"],
            attributes["output_pixel_offset"],
            y_shape[2 + axis],
            attributes["minimum_samples_per_output"],
            attributes["maximum_samples_per_output"],
            attributes["align_regions_to_corners"] != 0,
            rule,
            axes,
        )
    return axes, images


@cached
def _place(
    rois: Array,
    axis: int,
    scale: float,
    input_offset: float,
    output_offset: float,
    bins: int,
    least: int,
    most: int,
    to_corners: bool,
    rule: int,
    axes: Array,
) -> None:
    for r in range(len(rois)):
        # Axes have y first, regions x.
        r1, r2 = np.float64(widen(rois[r, 1 - axis])), np.float64(widen(rois[r, 3 - axis]))
        dml_axis(r1, r2, scale, input_offset, output_offset, bins, least, most, to_corners, rule, axes[r, axis])
