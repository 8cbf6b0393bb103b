"""RoiAlign and its gradient: ONNX's convention and checks, in front of the pooling that every such operator shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ortops.kernels.jit.kernel import Kernel
from ortops.kernels.jit.run import Runner
from ortops.kernels.layout import NUMBERS, Placed, Shape
from ortops.kernels.roi_pool import Array, pool

_place = Kernel("axis", "place_onnx_rois")


def roi_align(inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner) -> None:
    """Fill Y [R, C, PH, PW] from X [N, C, H, W], rois [R, 4] and batch_indices [R].

    Raises:
        ValueError: a RoI is not finite, a batch index is not an image's, or the map is empty.
        MemoryError: there is none left to work in.
    """
    x, rois, batch_indices = inputs
    (y,) = outputs
    placed = _placed(rois, batch_indices, x.shape, y.shape, attributes)
    pool(x, placed, y, attributes["mode"], runner)

def _placed(
    rois: Array, batch_indices: Array, x_shape: Sequence[int], y_shape: Sequence[int], attributes: Mapping[str, Any]
) -> Placed:
    count = len(rois)
    shape = Shape(*x_shape, count, *y_shape[2:])
    half_pixel = attributes["coordinate_transformation_mode"] == "half_pixel"
    placed = Placed(shape, np.empty((count, 2, NUMBERS)), np.empty((count, 2), np.int64), batch_indices)
    _place(rois, placed, attributes["spatial_scale"], half_pixel, attributes["sampling_ratio"])
    return placed
