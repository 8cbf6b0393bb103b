# SPDX-License-Identifier: MIT
"""DirectML's ROI_ALIGN1 and ROI_ALIGN_GRAD, sample by sample: the means and maxima of RoiAlign over DirectML's samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ortops.reference.roi_align import (
    Array,
    AxesOfRoi,
    Gradients,
    Mode,
    check_bins,
    check_data,
    pool,
    pool_grad,
)
from ortops.reference.sampling import SampledAxis, Tap, adaptive_samples, derivatives_by_ends, ends_of

ReductionFunction = Literal["average", "max"]
InterpolationMode = Literal["linear", "nearest_neighbor"]

_GRADIENTS = ("outputgradienttensor", "outputroigradienttensor")
_MODES: dict[ReductionFunction, Mode] = {"average": "avg", "max": "max_interpolated"}


def dml_roi_align(
    x: Array,
    rois: Array,
    batch_indices: npt.NDArray[np.integer],
    *,
    output_height: int,
    output_width: int,
    reduction_function: ReductionFunction,
    out_of_bounds_input_value: float,
    **sampling: Any,
) -> Array:
    """Pool feature maps over regions: the mean or maximum of each bin's samples.

    Along one axis, with P bins, S the scale, I and O the input's and the output's pixel offset, the region goes from
    `a = r1*S` to `b = r2*S` and each bin has `k = ceil((b - a)/P)` samples, at least the minimum and at most the
    maximum. Of all `n = P*k` samples, sample s lies at `a + (b - a)*t - I` where `t = (s - O)/n`; aligned to corners,
    `t = (s - O)/(n - 1)`, and 0.5 where n is 1. It belongs to bin `floor(s/k)`. An empty region is a point, and a region
    with r2 < r1 is mirrored. A NaN is larger than every number.

    A sample a pixel or more before the first pixel, or more than a pixel after the last, is out_of_bounds_input_value, and
    counts like others. A closer sample reads the first or the last pixel. Linear interpolation is between the pixels at
    floor and ceil of a coordinate, which are the same on a pixel.

    Args:
        x, rois, batch_indices, output_height, output_width: as in `ortops.dml_roi_align`.
        reduction_function, out_of_bounds_input_value: as in `ortops.dml_roi_align`.
        sampling: the other attributes, arguments of `sampled_by`.

    Returns:
        [R, C, output_height, output_width].

    Raises:
        ValueError: a batch index is out of range, a RoI is not finite, or there are RoIs but no pixels.

    Source:
        DML_ROI_ALIGN1_OPERATOR_DESC for the coordinates. Where it is silent: ONNX RoiAlign-16 for rounding up the
        number of samples and for the border after the last pixel, onnxruntime's expected results on DirectML for samples
        less than a pixel before the first pixel, the public cases of DirectML's maintainer (RoiAlign.json, case 16) for a
        sample at -1, TensorFlow's crop_and_resize for corners and for ties.
    """
    rois, batch_indices = rois.reshape(-1, 4), batch_indices.reshape(-1)
    check_data(rois, batch_indices, x.shape, names=("ROITensor", "BatchIndicesTensor", "InputTensor"))
    size = (output_height, output_width)
    axes = sampled_by(size, x.shape[2:], **sampling)
    return pool(x, rois, batch_indices, size, axes, _MODES[reduction_function], out_of_bounds_input_value)


def dml_roi_align_grad(
    dy: Array,
    rois: Array,
    batch_indices: npt.NDArray[np.integer],
    x_shape: Sequence[int] | npt.NDArray[np.int64],
    x: Array | None = None,
    *,
    reduction_function: ReductionFunction,
    outputs: Sequence[str] = _GRADIENTS,
    **sampling: Any,
) -> Gradients:
    """The gradients of `sum(dy * dml_roi_align(x, rois, ...))` by `x` and by the stored coordinates in `rois`.

    For max, all of an output's gradient goes to its winner, the first of equal samples by (iy, ix). A sample out of bounds
    has the value 0 there and passes nothing. A sample's coordinate has the derivatives `S*(1 - t)` by r1 and `S*t` by r2.
    The interpolation's slope is the slope between the pixels at floor and ceil: 0 on a pixel, beyond the first and the last
    pixel, and for nearest_neighbor. The number of samples counts as constant.

    Args:
        dy, rois, batch_indices, x_shape, x, reduction_function: as in `ortops.dml_roi_align_grad`.
        outputs: the gradients wanted, at least one of outputgradienttensor and outputroigradienttensor.
        sampling: as in `dml_roi_align`.

    Returns:
        The gradient by `x` [N, C, H, W] and the gradient by `rois` in the shape of `rois`; None for a gradient that is not
        wanted.

    Raises:
        ValueError: as in `dml_roi_align`; or an output size is 0.

    Source:
        The derivative of ROI_ALIGN1. Its RoI gradient follows the pseudo code in DML_ROI_ALIGN_GRAD_OPERATOR_DESC, where
        S is the input's size and "coordinate" means `t` times that size.
    """
    shape = tuple(int(length) for length in x_shape)
    flat_rois, indices = rois.reshape(-1, 4), batch_indices.reshape(-1)
    check_data(flat_rois, indices, shape, names=("ROITensor", "BatchIndicesTensor", "x_shape"))
    wants_dx, wants_drois = (name in outputs for name in _GRADIENTS)
    check_bins(dy.shape, "InputGradientTensor")
    # A product with the slope 0 would be NaN if a pixel or a gradient is infinite or NaN.
    is_flat = sampling["interpolation_mode"] == "nearest_neighbor"
    wanted = (wants_dx, wants_drois and not is_flat)
    axes = sampled_by(dy.shape[2:], shape[2:], **sampling)
    dx, drois = pool_grad(dy, flat_rois, indices, shape, x, axes, _MODES[reduction_function], wanted)
    if wants_drois:
        drois = np.zeros(rois.shape) if drois is None else drois.reshape(rois.shape)
    return dx, drois


def sampled_by(
    output_size: Sequence[int],
    map_size: Sequence[int],
    *,
    interpolation_mode: InterpolationMode,
    spatial_scale_x: float,
    spatial_scale_y: float,
    input_pixel_offset: float,
    output_pixel_offset: float,
    minimum_samples_per_output: int,
    maximum_samples_per_output: int,
    align_regions_to_corners: int,
) -> AxesOfRoi:
    """A function from a region to its axes y and x, from the attributes that decide where samples lie."""
    return region_axes(
        output_size,
        map_size,
        interpolation_mode=interpolation_mode,
        scales=(spatial_scale_y, spatial_scale_x),
        offsets=(input_pixel_offset, output_pixel_offset),
        samples=(minimum_samples_per_output, maximum_samples_per_output),
        to_corners=align_regions_to_corners != 0,
    )


@dataclass(frozen=True)
class RegionAxis:
    """One region along one axis of the map.

    first, last: the ends `a` and `b` in pixels, without the input's pixel offset; either may be larger.
    scale: map pixels for each unit of the region's stored coordinates.
    bins: number of output bins.
    per_bin: number of samples in each bin.
    length: length of the map in pixels.
    input_pixel_offset, output_pixel_offset: in pixels and in samples.
    to_corners: whether the samples are spread up to the region's ends.
    nearest: whether a sample reads the nearest pixel only.
    """

    first: float
    last: float
    scale: float
    bins: int
    per_bin: int
    length: int
    input_pixel_offset: float
    output_pixel_offset: float
    to_corners: bool
    nearest: bool

    def steps(self) -> int:
        """The number of steps into which the samples divide the region; 0 for a single sample aligned to both corners."""
        return self.bins * self.per_bin - (1 if self.to_corners else 0)

    def share(self, p: int, i: int) -> float:
        """The `t` of sample `i` of bin `p`."""
        steps = self.steps()
        return (p * self.per_bin + i - self.output_pixel_offset) / steps if steps else 0.5

    def coordinate(self, p: int, i: int) -> float:
        """The coordinate of sample `i` of bin `p` in pixels."""
        return self.first + (self.last - self.first) * self.share(p, i) - self.input_pixel_offset

    def progression(self, p: int) -> tuple[float, float, float]:
        """Start, step and largest intermediate result of bin `p`'s coordinates."""
        start = self.coordinate(p, 0)
        step = (self.last - self.first) / max(self.steps(), 1)
        return start, step, max(map(abs, (start, self.first, self.last, self.input_pixel_offset)))

    def is_inside(self, c: float) -> bool:
        """Whether a sample at coordinate `c` is inside the map."""
        return is_on_map(c, self.length)

    def taps(self, c: float) -> Sequence[Tap]:
        """The nearest pixel, or the two pixels that linear interpolation reads at `c`; only one pixel if `c` is on it."""
        if self.nearest:
            return (Tap(min(max(nearest_pixel(c), 0), self.length - 1), 1.0, 0.0),)
        clamped = min(max(c, 0.0), self.length - 1.0)
        low, high = math.floor(clamped), math.ceil(clamped)
        if low == high:
            return (Tap(low, 1.0, 0.0),)
        f = clamped - low
        return Tap(low, 1.0 - f, -1.0), Tap(high, f, 1.0)

    def roi_derivatives(self, p: int, i: int) -> tuple[float, float]:
        """The derivatives of `coordinate` by the region's two stored coordinates on this axis."""
        return derivatives_by_ends(self.scale, self.share(p, i))


def is_on_map(c: float, length: int) -> bool:
    """Whether a coordinate lies on a map of `length` pixels. Unlike ONNX's, the map does not include -1."""
    return -1.0 < c <= length


def nearest_pixel(c: float) -> int:
    """The pixel nearest to a coordinate, the later of two at the same distance."""
    return math.floor(c + 0.5)


def region_axes(
    output_size: Sequence[int],
    map_size: Sequence[int],
    *,
    interpolation_mode: InterpolationMode,
    scales: tuple[float, float],
    offsets: tuple[float, float],
    samples: tuple[int, int],
    to_corners: bool,
) -> AxesOfRoi:
    """A function from a region to its axes y and x. Sizes and scales are for y and x, offsets for input and output."""

    def axis(r1: float, r2: float, bins: int, length: int, scale: float) -> RegionAxis:
        first, last = r1 * scale, r2 * scale
        per_bin = limited_samples(last - first, bins, *samples)
        nearest = interpolation_mode == "nearest_neighbor"
        return RegionAxis(first, last, scale, bins, per_bin, length, *offsets, to_corners, nearest)

    def axes(roi: Sequence[float]) -> tuple[SampledAxis, SampledAxis]:
        ends_y, ends_x = ends_of(roi)
        return (
            axis(*ends_y, output_size[0], map_size[0], scales[0]),
            axis(*ends_x, output_size[1], map_size[1], scales[1]),
        )

    return axes


def limited_samples(size: float, bins: int, minimum: int, maximum: int) -> int:
    """The number of a bin's samples along an axis: the bin's size in pixels, rounded up and clamped to the limits."""
    return min(max(adaptive_samples(size, bins), minimum), maximum)
