"""The operators' entries: check the data, place the samples of all RoIs, and call the compiled drivers.

Only this file knows how each operator reads its attributes; `roi_pool` has the way from placed RoIs to the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ortops.jit.elements import OUT_OF_MEMORY
from ortops.jit.kernel import Array, Kernel
from ortops.jit.runners import Runner
from ortops.jit.source import Unimported
from ortops.kernels.drivers import address, elements, kind_of
from ortops.kernels.layout import ABOVE, AXIS_FIELDS, BELOW, CEIL, NEAREST, Dims, Part, PlacedRois, Shape
from ortops.kernels.roi_pool import Mode, pool, pool_gradient
from ortops.operators import OPERATORS
from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.operators.max_roi_pool import MAX_COORDINATE
from ortops.spec import MAX_RANK

if TYPE_CHECKING:
    from ortops.jit import tasks
    from ortops.kernels import axis, pixel_bins, resample, rotated_grid
else:
    tasks = Unimported("jit.tasks")
    axis, pixel_bins, resample = map(Unimported, ("kernels.axis", "kernels.pixel_bins", "kernels.resample"))
    rotated_grid = Unimported("kernels.rotated_grid")

Inputs: TypeAlias = Sequence[Any]
Attributes: TypeAlias = Mapping[str, Any]

Entry: TypeAlias = Callable[[Inputs, Sequence[Any], Attributes, Runner], None]
"""Fills the outputs, arrays or None for those not wanted, from the inputs and checked attributes, with a runner of tasks.

An input whose elements are lengths is a tuple of them. The others are arrays, to whose elements another thread may write at
any time: an entry copies what says where to read or to write, checks the copy and uses the copy.

An entry raises ValueError if the data breaks a rule of the operator, and MemoryError if a workspace cannot be allocated.
"""


class Names(NamedTuple):
    """An operator's names, for errors."""

    x: str = "X"
    rois: str = "rois"
    batch_indices: str = "batch_indices"
    dy: str = "dY"


_ONNX = Names()
_DML = Names("InputTensor", "ROITensor", "BatchIndicesTensor", "InputGradientTensor")

_place_onnx_rois, _place_dml_regions = Kernel(axis.place_onnx_rois), Kernel(axis.place_dml_regions)
_place_bins = Kernel(axis.place_bins)
_place_whole_rois, _place_rotated_rois = Kernel(pixel_bins.place_whole_rois), Kernel(rotated_grid.place_rotated_rois)


_NONE = np.empty(0, np.int64)
_NOT_ROTATED = np.empty(0), _NONE


def _place(
    names: Names,
    rois: Array,
    batch_indices: Array | None,
    x_shape: Sequence[int],
    y_shape: Sequence[int],
    kernel: Callable[[Array, PlacedRois], int],
    rotated: tuple[Array, Array] | None = None,
) -> PlacedRois:
    """Place the samples of all RoIs, from copies: another thread may write to the caller's arrays at any time.

    Args:
        names: the operator's names.
        rois: [R, 4], or [R, 5].
        batch_indices: the image of each RoI [R], of any type of integers; None if the kernel finds it in `rois`.
        x_shape: the shape of the feature map.
        y_shape: the shape of the output.
        kernel: takes rois as float64 and what it fills; returns the number of the first invalid RoI, or -1.
        rotated: memory for the rotations and the limits of rotated RoIs.

    Raises:
        ValueError: there are no bins, there are RoIs but no pixels, or a RoI or its batch index is invalid.
    """
    (images, channels, height, width), count = x_shape, len(rois)
    if 0 in y_shape[2:]:  # only a gradient's, since attributes are checked
        raise ValueError(f"{names.dy} has shape {list(y_shape)}: must have an output height and width >= 1")
    if count and (height == 0 or width == 0):
        raise ValueError(f"{names.x} is {height} x {width} pixels: must not be empty where there are RoIs")
    shape = Shape(images, channels, height, width, count, y_shape[2], y_shape[3])
    of = np.empty(count, np.int64) if batch_indices is None else batch_indices.astype(np.int64)
    whole = Part(0, count, 0, y_shape[2] * y_shape[3], 0)
    rotations, limits = rotated or _NOT_ROTATED
    spans = np.empty((count, 2), np.int64)
    placed = PlacedRois(shape, np.empty((count, 2, AXIS_FIELDS)), spans, of, rotations, limits, _NONE, whole)
    boxes = rois.astype(np.float64)
    invalid = kernel(boxes, placed)
    if invalid < 0:
        return placed
    roi, rule = boxes[invalid].tolist(), f">= 0 and < {images}, the number of images"
    if batch_indices is not None and not 0 <= of[invalid] < images:
        raise ValueError(f"{names.batch_indices}[{invalid}] = {of[invalid]}: must be {rule}")
    is_finite = all(map(math.isfinite, roi))
    rule = f"batch_id must be a whole number {rule}" if is_finite else "must be finite"
    raise ValueError(f"{names.rois}[{invalid}] = {roi}: {rule}")


def roi_align(inputs: Inputs, outputs: Sequence[Any], attributes: Attributes, runner: Runner) -> None:
    """Fill Y [R, C, PH, PW] from X [N, C, H, W], rois [R, 4] and batch_indices [R]."""
    x, rois, batch_indices = inputs
    (y,) = outputs
    pool(x, _place_onnx(rois, batch_indices, x.shape, y.shape, attributes), y, attributes["mode"], runner)


def roi_align_grad(inputs: Inputs, outputs: Sequence[Any], attributes: Attributes, runner: Runner) -> None:
    """Fill dX [N, C, H, W] and drois [R, 4] from dY, rois, batch_indices, x_shape and X."""
    dy, rois, batch_indices, x_shape, x = inputs
    dx, drois = outputs
    placed = _place_onnx(rois, batch_indices, x_shape, dy.shape, attributes)
    pool_gradient(dy, placed, x, dx, drois, attributes["mode"], runner)


def _place_onnx(
    rois: Array, batch_indices: Array, x_shape: Sequence[int], y_shape: Sequence[int], attributes: Attributes
) -> PlacedRois:
    half_pixel = attributes["coordinate_transformation_mode"] == "half_pixel"
    arguments = attributes["spatial_scale"], half_pixel, attributes["sampling_ratio"]
    return _place(
        _ONNX, rois, batch_indices, x_shape, y_shape, lambda boxes, placed: _place_onnx_rois(boxes, placed, *arguments)
    )


def ps_roi_align(inputs: Inputs, outputs: Sequence[Any], attributes: Attributes, runner: Runner) -> None:
    """Fill Y [R, C / (PH*PW), PH, PW] from X [N, C, H, W], rois [R, 4] and batch_indices [R]."""
    x, rois, batch_indices = inputs
    (y,) = outputs
    pool(x, _place_bins_of(_place_onnx(rois, batch_indices, x.shape, y.shape, attributes)), y, "avg", runner)


def ps_roi_align_grad(inputs: Inputs, outputs: Sequence[Any], attributes: Attributes, runner: Runner) -> None:
    """Fill dX [N, C, H, W] and drois [R, 4] from dY [R, C / (PH*PW), PH, PW], rois, batch_indices, x_shape and X."""
    dy, rois, batch_indices, x_shape, x = inputs
    dx, drois = outputs
    placed = _place_bins_of(_place_onnx(rois, batch_indices, x_shape, dy.shape, attributes))
    pool_gradient(dy, placed, x, dx, drois, "avg", runner)


def _place_bins_of(whole: PlacedRois) -> PlacedRois:
    """Place each bin as a RoI on the channels that it reads: those of an image for each bin."""
    images, channels, height, width, rois, bins_y, bins_x, _ = whole.shape
    if channels == 0:  # then there may be any number of bins, and no memory that many need
        return whole
    bins = bins_y * bins_x
    count = rois * bins
    shape = Shape(images * bins, channels // bins, height, width, count, 1, 1, interleaved=bins)
    placed = whole._replace(
        shape=shape,
        axes=np.empty((count, 2, AXIS_FIELDS)),
        spans=np.empty((count, 2), np.int64),
        batch_indices=np.empty(count, np.int64),
        part=Part(0, count, 0, 1, 0),
    )
    _place_bins(whole, placed)
    return placed


_DML_MODES: Mapping[str, Mode] = {"average": "avg", "max": "max_interpolated"}


def dml_roi_align(inputs: Inputs, outputs: Sequence[Any], attributes: Attributes, runner: Runner) -> None:
    """Fill OutputTensor [R, C, PH, PW] from InputTensor [N, C, H, W], ROITensor [R, 4] and BatchIndicesTensor [R]."""
    x, rois, indices = inputs
    (y,) = outputs
    placed = _place_dml(rois, indices, x.shape, y.shape, attributes)
    mode = _DML_MODES[attributes["reduction_function"]]
    pool(x, placed, y, mode, runner, attributes["out_of_bounds_input_value"])


def dml_roi_align_grad(inputs: Inputs, outputs: Sequence[Any], attributes: Attributes, runner: Runner) -> None:
    """Fill OutputGradientTensor [N, C, H, W] and OutputROIGradientTensor [R, 4]."""
    dy, rois, indices, x_shape, x = inputs
    dx, drois = outputs
    placed = _place_dml(rois, indices, x_shape, dy.shape, attributes)
    if drois is not None and attributes["interpolation_mode"] == "nearest_neighbor":
        # The nearest pixel does not change with the region, so the derivative is 0, also if the pixel is NaN.
        drois[...] = 0
        drois = None
    drois = None if drois is None else drois.reshape(-1, 4)
    pool_gradient(dy, placed, x, dx, drois, _DML_MODES[attributes["reduction_function"]], runner)


def _place_dml(
    rois: Array, indices: Array, x_shape: Sequence[int], y_shape: Sequence[int], attributes: Attributes
) -> PlacedRois:
    arguments = (
        attributes["spatial_scale_y"],
        attributes["spatial_scale_x"],
        attributes["input_pixel_offset"],
        attributes["output_pixel_offset"],
        attributes["minimum_samples_per_output"],
        attributes["maximum_samples_per_output"],
        attributes["align_regions_to_corners"],
        NEAREST if attributes["interpolation_mode"] == "nearest_neighbor" else CEIL,
    )
    boxes, of = rois.reshape(-1, 4), indices.reshape(-1)
    return _place(
        _DML, boxes, of, x_shape, y_shape, lambda boxes, placed: _place_dml_regions(boxes, placed, *arguments)
    )


def max_roi_pool(inputs: Inputs, outputs: Sequence[Any], attributes: Attributes, runner: Runner) -> None:
    """Fill Y [R, C, PH, PW] from X [N, C, H, W] and rois [R, 5], each batch_id, x1, y1, x2, y2."""
    x, rois = inputs
    (y,) = outputs
    pool(x, _place_whole(rois, x.shape, y.shape, attributes), y, "max_pixel", runner)


def max_roi_pool_grad(inputs: Inputs, outputs: Sequence[Any], attributes: Attributes, runner: Runner) -> None:
    """Fill dX [N, C, H, W] from dY [R, C, PH, PW], X and rois."""
    dy, x, rois = inputs
    (dx,) = outputs
    pool_gradient(dy, _place_whole(rois, x.shape, dy.shape, attributes), x, dx, None, "max_pixel", runner)


def _place_whole(rois: Array, x_shape: Sequence[int], y_shape: Sequence[int], attributes: Attributes) -> PlacedRois:
    scale = attributes["spatial_scale"]
    return _place(
        _ONNX,
        rois,
        None,
        x_shape,
        y_shape,
        lambda boxes, placed: _place_whole_rois(boxes, placed, scale, MAX_COORDINATE),
    )


def roi_align_rotated(inputs: Inputs, outputs: Sequence[Any], attributes: Attributes, runner: Runner) -> None:
    """Fill Y [R, C, PH, PW] from X [N, C, H, W], rois [R, 5] and batch_indices [R]."""
    x, rois, batch_indices = inputs
    (y,) = outputs
    pool(x, _place_rotated(rois, batch_indices, x.shape, y.shape, attributes), y, "avg_rotated", runner)


def roi_align_rotated_grad(inputs: Inputs, outputs: Sequence[Any], attributes: Attributes, runner: Runner) -> None:
    """Fill dX [N, C, H, W] and drois [R, 5] from dY, rois, batch_indices, x_shape and X."""
    dy, rois, batch_indices, x_shape, x = inputs
    dx, drois = outputs
    placed = _place_rotated(rois, batch_indices, x_shape, dy.shape, attributes)
    pool_gradient(dy, placed, x, dx, drois, "avg_rotated", runner)


def _place_rotated(
    rois: Array, batch_indices: Array, x_shape: Sequence[int], y_shape: Sequence[int], attributes: Attributes
) -> PlacedRois:
    arguments = (
        attributes["spatial_scale"], attributes["aligned"], attributes["sampling_ratio"], attributes["clockwise"]
    )  # fmt: skip
    # Zeros, for `warmup` asks which kernels a call needs without running them, and Python makes parts of these numbers.
    rotated = np.empty((len(rois), 3)), np.zeros((len(rois), 3), np.int64)
    return _place(
        _ONNX,
        rois,
        batch_indices,
        x_shape,
        y_shape,
        lambda boxes, placed: _place_rotated_rois(boxes, placed, *arguments),
        rotated,
    )


def dml_resample(inputs: Inputs, outputs: Sequence[Any], attributes: Attributes, runner: Runner) -> None:
    """Fill OutputTensor from InputTensor, both of rank 1 to 4."""
    (x,) = inputs
    (y,) = outputs
    if y.size and not x.size:
        raise ValueError(f"InputTensor has shape {list(x.shape)}: must have elements where OutputTensor has some")
    _resample(x, y, attributes, False, runner)


def dml_resample_grad(inputs: Inputs, outputs: Sequence[Any], attributes: Attributes, runner: Runner) -> None:
    """Fill OutputGradientTensor, of shape x_shape, from InputGradientTensor."""
    dy, x_shape = inputs
    (dx,) = outputs
    if dy.size and not dx.size:
        raise ValueError(f"x_shape is {list(x_shape)}: must not have a 0 where InputGradientTensor has elements")
    if not dy.size:
        dx.fill(0)
    _resample(dy, dx, attributes, True, runner)


_scale = Kernel(resample.resample)

_RULES = {"half_up": NEAREST, "increasing": ABOVE, "decreasing": BELOW}


def _resample(x: Array, y: Array, attributes: Attributes, transposed: bool, runner: Runner) -> None:
    if not x.size or not y.size:
        return
    missing = MAX_RANK - x.ndim
    # Leading axes of length 1 make the rank 4; a scale of 0 (the ratio of the lengths) keeps them as they are.
    parameters = np.zeros((MAX_RANK, 3))
    for column, (name, default) in enumerate(
        (("scales", 0.0), ("input_pixel_offsets", INPUT_PIXEL_OFFSET), ("output_pixel_offsets", OUTPUT_PIXEL_OFFSET))
    ):
        parameters[missing:, column] = attributes[name] or default
    rule = _RULES[attributes["rounding_direction"]] if attributes["interpolation_mode"] == "nearest_neighbor" else CEIL
    source, target = (Dims(*(1,) * missing, *array.shape) for array in (x, y))
    lines_of = address(resample.copy_lines if rule != CEIL and not transposed else resample.sum_lines, kind_of(x))
    after = lines_of, address(tasks.run_in_chunks), *runner
    status = _scale(elements(x), elements(y), source, target, parameters, rule, transposed, *after)
    if status == OUT_OF_MEMORY:
        raise MemoryError("out of memory for a line of the tensor")


ENTRIES: Mapping[str, Entry] = {
    operator.function: globals()[operator.function] for operator in OPERATORS if operator.function in globals()
}
"""The entry of each operator: the function here that has the name `Operator.function`."""
