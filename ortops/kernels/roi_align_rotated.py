"""RoIAlignRotated and its gradient: check the inputs, place the samples, and call the kernels of `rotated`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ortops.kernels.jit.kernel import Array, Kernel
from ortops.kernels.jit.runners import Runner
from ortops.kernels.layout import Making, RotatedRois
from ortops.kernels.roi_pool import rounded_once
from ortops.kernels.stages import (
    CHUNKS,
    Functions,
    address,
    by_source,
    check_status,
    elements,
    kind_of,
    storage,
    values_of,
)
from ortops.kernels.validate import check_bins, place, rois_to_place

_place = Kernel("rotated_grid", "place_rotated_rois")
_average = Kernel("rotated", "rotated_average")
_dx, _drois = Kernel("rotated", "rotated_dx"), Kernel("rotated", "rotated_drois")

_NAMES = ("X", "rois", "batch_indices")


def roi_align_rotated(
    inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner
) -> None:
    """Fill Y [R, C, PH, PW] from X [N, C, H, W], rois [R, 5] and batch_indices [R].

    Raises:
        ValueError: a RoI is not finite, a batch index is invalid, or the map is empty.
        MemoryError: the workspace cannot be allocated.
    """
    x, rois, batch_indices = inputs
    (y,) = outputs
    rotated = _place_rois(rois, batch_indices, x.shape, y.shape, attributes)
    if y.size:
        _functions("average_of", kind_of(x)).call(_average, elements(x), elements(y), rotated, after=runner)


def roi_align_rotated_grad(
    inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner
) -> None:
    """Fill dX [N, C, H, W] and drois [R, 5], unless they are None, from dY, rois, batch_indices, x_shape and X.

    Raises:
        ValueError: as `roi_align_rotated`; or dY has no bins.
        MemoryError: the workspace cannot be allocated.
    """
    dy, rois, batch_indices, x_shape, x = inputs
    dx, drois = outputs
    check_bins("dY", dy)
    kind = kind_of(dy)
    rotated = _place_rois(rois, batch_indices, x_shape.tolist(), dy.shape, attributes)
    if dx is not None and not len(rois):
        dx[...] = 0
    elif dx is not None and dx.size:
        _functions("add_gradient_of", kind).call(_dx, elements(dy), elements(dx), rotated, after=runner)
    if drois is not None and drois.size:
        with rounded_once(drois) as sums:
            add = address("rotated", "add_products", kind)
            arrays = elements(x), elements(dy), elements(sums)
            check_status(_drois(*arrays, rotated, _making(), storage(kind), add, *runner))


def _making() -> Making:
    return Making(address("rotated_tables", "make"), address(*CHUNKS))


@functools.cache
def _functions(name: str, kind: int) -> Functions:
    # Sums of dX stay unrounded between batches of tables, so values of the compute type are stored, too.
    kinds = (kind,) if name == "average_of" else (kind, values_of(kind))
    return Functions(_making(), *by_source("rotated", name, kind), *kinds)


def _place_rois(
    rois: Array, batch_indices: Array, x_shape: Sequence[int], y_shape: Sequence[int], attributes: Mapping[str, Any]
) -> RotatedRois:
    """Place the samples of all RoIs.

    Raises:
        ValueError: a RoI or its batch index is invalid, or the map is empty.
    """
    placed = rois_to_place(_NAMES, rois, batch_indices, x_shape, y_shape)
    count, direction = len(rois), -1.0 if attributes["clockwise"] else 1.0
    corners, max_pixels = np.zeros((count, 2), np.int64), np.empty(count, np.int64)
    rotated = RotatedRois(placed, np.empty((count, 2)), corners, max_pixels, direction)
    arguments = attributes["spatial_scale"], attributes["aligned"], attributes["sampling_ratio"]
    place(_place, _NAMES, rois, placed, rotated, *arguments)
    return rotated
