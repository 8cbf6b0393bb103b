"""What all operators on RoIs share at their entry: checks, whose errors name argument, value and rule, and placing RoIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ortops.kernels.jit.kernel import Array, Kernel
from ortops.kernels.layout import AXIS_FIELDS, PlacedRois, Shape

Names = tuple[str, str, str]
"""An operator's names of feature map, RoIs and batch indices."""


def rois_to_place(
    names: Names, rois: Array, batch_indices: Array, x_shape: Sequence[int], y_shape: Sequence[int]
) -> PlacedRois:
    """RoIs with room for the positions of their samples.

    Args:
        names: the operator's names.
        rois: [R, 4], or [R, 5] for rotated RoIs.
        batch_indices: the image of each RoI [R].
        x_shape: the shape of the feature map.
        y_shape: the shape of the output.

    Raises:
        ValueError: there are RoIs but no pixels.
    """
    (images, channels, height, width), count = x_shape, len(rois)
    if count and (height == 0 or width == 0):
        raise ValueError(f"{names[0]} is {height} x {width} pixels: must not be empty where there are RoIs")
    shape = Shape(images, channels, height, width, count, y_shape[2], y_shape[3])
    return PlacedRois(shape, np.empty((count, 2, AXIS_FIELDS)), np.empty((count, 2), np.int64), batch_indices)


def place(kernel: Kernel, names: Names, rois: Array, placed: PlacedRois, target: Any, *arguments: Any) -> None:
    """Place the samples of all RoIs with a kernel.

    Args:
        kernel: called with rois as float64, target and arguments; returns the number of the first invalid RoI, or -1.
        names: the operator's names.
        rois: [R, 4], or [R, 5] for rotated RoIs.
        placed: the result of `rois_to_place`.
        target: what the kernel fills: `placed`, or a tuple that has it.
        arguments: the kernel's further arguments.

    Raises:
        ValueError: the batch index of a RoI is invalid, or a coordinate is not finite.
    """
    invalid = kernel(rois.astype(np.float64), target, *arguments)
    if invalid < 0:
        return
    count, index = placed.shape.images, placed.batch_indices[invalid]
    if not 0 <= index < count:
        raise ValueError(f"{names[2]}[{invalid}] = {index}: must be >= 0 and < {count}, the number of images")
    raise ValueError(f"{names[1]}[{invalid}] = {rois[invalid].tolist()}: must be finite")


def check_bins(name: str, dy: Array) -> None:
    """Check that dY has bins.

    Args:
        name: the operator's name of dY.
        dy: [R, C, PH, PW].

    Raises:
        ValueError: PH or PW is 0.
    """
    if 0 in dy.shape[2:]:
        raise ValueError(f"{name} has shape {list(dy.shape)}: must have an output height and width >= 1")
