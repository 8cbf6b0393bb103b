"""DirectML's ROI_ALIGN1 and ROI_ALIGN_GRAD, sample by sample: RoiAlign's sums and maxima over samples placed otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ortops.reference.roi_align import AxesOfRoi, Mode, check_data, check_gradient, pool, pool_grad
from ortops.reference.sampling import SampledAxis, Tap

ReductionFunction = Literal["average", "max"]
InterpolationMode = Literal["linear", "nearest_neighbor"]

_GRADIENTS = ("outputgradienttensor", "outputroigradienttensor")
_MODES: dict[ReductionFunction, Mode] = {"average": "avg", "max": "max_interpolated"}


def dml_roi_align(
    x: npt.NDArray[np.float64],
    rois: npt.NDArray[np.float64],
    batch_indices: npt.NDArray[np.integer],
    *,
    output_height: int,
    output_width: int,
    reduction_function: ReductionFunction,
    interpolation_mode: InterpolationMode,
    spatial_scale_x: float,
    spatial_scale_y: float,
    input_pixel_offset: float,
    output_pixel_offset: float,
    out_of_bounds_input_value: float,
    minimum_samples_per_output: int,
    maximum_samples_per_output: int,
    align_regions_to_corners: int,
) -> npt.NDArray[np.float64]:
    """The regions of `x` that the RoIs name, each resampled to the output's size.

    Along one axis, with P bins, S the scale, I and O the input's and the output's pixel offset, the region goes from
    `a = r1*S` to `b = r2*S` and each bin has `k = ceil((b - a)/P)` samples, at least the minimum and at most the
    maximum. Of the `n = P*k` samples, number s lies at `a + (b - a)*t - I` where `t = (s - O)/n`; aligned to corners,
    `t = (s - O)/(n - 1)`, and 0.5 where n is 1. It belongs to bin `s div k`. An empty region is a point, one whose
    second corner comes first is mirrored.

    Args:
        x: [N, C, H, W], the feature map.
        rois: [R, 4] after up to two axes of length 1; x1 y1 x2 y2 in units of 1/spatial_scale pixels, finite.
        batch_indices: [R] after up to three axes of length 1; the image of each RoI, from 0 to N - 1.
        output_height: bins along y, at least 1.
        output_width: bins along x, at least 1.
        reduction_function: average for the mean of a bin's samples, max for the largest of them. NaN wins.
        interpolation_mode: linear between the pixels at floor and ceil of a sample's coordinate, which is one pixel
            where the sample lies on it; nearest_neighbor for the nearest pixel, the later one of two as near.
        spatial_scale_x: pixels to a unit of x1 and x2, above 0.
        spatial_scale_y: pixels to a unit of y1 and y2, above 0.
        input_pixel_offset: I, in pixels.
        output_pixel_offset: O, in samples.
        out_of_bounds_input_value: what a sample more than a pixel before the first or after the last pixel is; it
            counts as any other. Closer ones read the first or the last pixel.
        minimum_samples_per_output: along each axis, at least 1.
        maximum_samples_per_output: along each axis, at least the minimum.
        align_regions_to_corners: 1 for yes, 0 for no.

    Returns:
        [R, C, output_height, output_width].

    Raises:
        ValueError: a batch index is no image, a RoI is not finite, or there are RoIs but no pixels.

    Source:
        DML_ROI_ALIGN1_OPERATOR_DESC for the coordinates. Where it is silent: ONNX RoiAlign-16 for rounding up the
        number of samples and for the border, onnxruntime's expected results on DirectML for what lies before it,
        TensorFlow's crop_and_resize for corners and for ties.
    """
    rois, batch_indices = rois.reshape(-1, 4), batch_indices.reshape(-1)
    check_data(rois, batch_indices, x.shape, names=("ROITensor", "BatchIndicesTensor", "InputTensor"))
    size = (output_height, output_width)
    axes = region_axes(
        size,
        x.shape[2:],
        interpolation_mode=interpolation_mode,
        scales=(spatial_scale_y, spatial_scale_x),
        offsets=(input_pixel_offset, output_pixel_offset),
        samples=(minimum_samples_per_output, maximum_samples_per_output),
        to_corners=align_regions_to_corners != 0,
    )
    return pool(x, rois, batch_indices, size, axes, _MODES[reduction_function], out_of_bounds_input_value)


def dml_roi_align_grad(
    dy: npt.NDArray[np.float64],
    rois: npt.NDArray[np.float64],
    batch_indices: npt.NDArray[np.integer],
    x_shape: Sequence[int] | npt.NDArray[np.int64],
    x: npt.NDArray[np.float64] | None = None,
    *,
    reduction_function: ReductionFunction,
    interpolation_mode: InterpolationMode,
    spatial_scale_x: float,
    spatial_scale_y: float,
    input_pixel_offset: float,
    output_pixel_offset: float,
    minimum_samples_per_output: int,
    maximum_samples_per_output: int,
    align_regions_to_corners: int,
    outputs: Sequence[str] = _GRADIENTS,
) -> tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.float64] | None]:
    """The gradients of `sum(dy * dml_roi_align(x, rois, ...))` by `x` and by the stored coordinates in `rois`.

    For max all of an output's gradient goes to its winner, the first by (iy, ix) of those that tie. A sample out of
    bounds takes part with the value 0; if it wins, the gradient is lost. A sample moves by `S*(1 - t)` with r1 and by
    `S*t` with r2. An interpolation has the slope between the pixels at floor and ceil: 0 on a pixel, and 0 beyond the
    first and the last. That of nearest_neighbor is 0 everywhere. The number of samples is held fixed.

    Args:
        dy: [R, C, PH, PW], the gradient by the forward operator's output; PH and PW at least 1.
        rois: as in the forward operator.
        batch_indices: as in the forward operator.
        x_shape: N, C, H, W.
        x: [N, C, H, W], the feature map; read for the RoIs' gradient and for max only.
        reduction_function: as in the forward operator.
        interpolation_mode: as in the forward operator.
        spatial_scale_x: as in the forward operator.
        spatial_scale_y: as in the forward operator.
        input_pixel_offset: as in the forward operator.
        output_pixel_offset: as in the forward operator.
        minimum_samples_per_output: as in the forward operator.
        maximum_samples_per_output: as in the forward operator.
        align_regions_to_corners: as in the forward operator.
        outputs: the gradients wanted, at least one of outputgradienttensor and outputroigradienttensor.

    Returns:
        The gradient by `x` [N, C, H, W] and that by `rois` in the shape of `rois`, None for one that is not wanted.

    Raises:
        ValueError: as `dml_roi_align` does; or `x` is missing where it is read, an output size is 0, or `outputs` is
            empty or has another name.

    Source:
        The derivative of ROI_ALIGN1. Its RoI gradient is that of the pseudo code in DML_ROI_ALIGN_GRAD_OPERATOR_DESC
        where S is the input's size and "coordinate" means `t` times that size.
    """
    shape = tuple(int(length) for length in x_shape)
    flat_rois, indices = rois.reshape(-1, 4), batch_indices.reshape(-1)
    check_data(flat_rois, indices, shape, names=("ROITensor", "BatchIndicesTensor", "x_shape"))
    wants_dx, wants_drois = (name in outputs for name in _GRADIENTS)
    reader = None
    if x is None and reduction_function == "max":
        reader = f"reduction_function {reduction_function!r}"
    elif x is None and wants_drois:
        reader = "OutputROIGradientTensor"
    check_gradient(dy.shape, outputs, known=_GRADIENTS, names=("InputGradientTensor", "InputTensor"), reader=reader)
    axes = region_axes(
        dy.shape[2:],
        shape[2:],
        interpolation_mode=interpolation_mode,
        scales=(spatial_scale_y, spatial_scale_x),
        offsets=(input_pixel_offset, output_pixel_offset),
        samples=(minimum_samples_per_output, maximum_samples_per_output),
        to_corners=align_regions_to_corners != 0,
    )
    # Not a product with a slope of 0: that would be NaN where a pixel or a gradient is infinite or NaN.
    is_flat = interpolation_mode == "nearest_neighbor"
    wanted = (wants_dx, wants_drois and not is_flat)
    dx, drois = pool_grad(dy, flat_rois, indices, shape, x, axes, _MODES[reduction_function], wanted)
    if wants_drois:
        drois = np.zeros(rois.shape) if drois is None else drois.reshape(rois.shape)
    return dx, drois


@dataclass(frozen=True)
class _RegionAxis:
    """One region along one axis of the map.

    first, last: its two ends `a` and `b` in pixels, before the input's pixel offset; either may be the larger.
    scale: map pixels to a unit of the region's stored coordinates.
    bins: output bins.
    per_bin: samples in each bin.
    length: extent of the map in pixels.
    input_pixel_offset, output_pixel_offset: in pixels and in samples.
    to_corners: whether the outermost samples lie on the region's ends.
    nearest: whether a sample reads the nearest pixel alone.
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

    def _steps(self) -> int:
        """The steps into which the samples divide the region; 0 where one sample is aligned to both corners."""
        return self.bins * self.per_bin - (1 if self.to_corners else 0)

    def _share(self, p: int, i: int) -> float:
        """The `t` of sample `i` of bin `p`."""
        steps = self._steps()
        return (p * self.per_bin + i - self.output_pixel_offset) / steps if steps else 0.5

    def coordinate(self, p: int, i: int) -> float:
        """As `SampledAxis` has it."""
        return self.first + (self.last - self.first) * self._share(p, i) - self.input_pixel_offset

    def progression(self, p: int) -> tuple[float, float, float]:
        """As `SampledAxis` has it."""
        start = self.coordinate(p, 0)
        step = (self.last - self.first) / max(self._steps(), 1)
        return start, step, max(map(abs, (start, self.first, self.last, self.input_pixel_offset)))

    def taps(self, c: float) -> Sequence[Tap]:
        """As `SampledAxis` has it."""
        if self.nearest:
            return (Tap(min(max(math.floor(c + 0.5), 0), self.length - 1), 1.0, 0.0),)
        clamped = min(max(c, 0.0), self.length - 1.0)
        low, high = math.floor(clamped), math.ceil(clamped)
        if low == high:
            return (Tap(low, 1.0, 0.0),)
        f = clamped - low
        return Tap(low, 1.0 - f, -1.0), Tap(high, f, 1.0)

    def slopes(self, p: int, i: int) -> tuple[float, float]:
        """As `SampledAxis` has it."""
        t = self._share(p, i)
        return self.scale * (1.0 - t), self.scale * t


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
    """From a region to its axes y and x; sizes and scales are those of y and x, offsets those of input and output."""

    def axis(r1: float, r2: float, bins: int, length: int, scale: float) -> _RegionAxis:
        first, last = r1 * scale, r2 * scale
        per_bin = _samples_per_bin((last - first) / bins, *samples)
        nearest = interpolation_mode == "nearest_neighbor"
        return _RegionAxis(first, last, scale, bins, per_bin, length, *offsets, to_corners, nearest)

    def axes(roi: Sequence[float]) -> tuple[SampledAxis, SampledAxis]:
        x1, y1, x2, y2 = roi
        return (
            axis(y1, y2, output_size[0], map_size[0], scales[0]),
            axis(x1, x2, output_size[1], map_size[1], scales[1]),
        )

    return axes


def _samples_per_bin(pixels: float, minimum: int, maximum: int) -> int:
    """Pixels to a bin, rounded up, within the limits; the minimum where float64 cannot tell (NaN)."""
    if pixels >= maximum:
        return maximum
    return math.ceil(pixels) if pixels > minimum else minimum
