"""RoiAlign and its gradient, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ortops.reference.sampling import Bin, Corner, Sample, SampledAxis, axes_of_roi, bins_of, roi_slopes

Mode = Literal["avg", "max", "max_interpolated"]
CoordinateTransformationMode = Literal["half_pixel", "output_half_pixel"]
Channel = list[list[float]]
AxesOfRoi = Callable[[Sequence[float]], tuple[SampledAxis, SampledAxis]]
"""From x1 y1 x2 y2 to the samples along y and along x."""

# Python numbers where numpy's would do: infinite and NaN data then pass through without a warning.


def roi_align(
    x: npt.NDArray[np.float64],
    rois: npt.NDArray[np.float64],
    batch_indices: npt.NDArray[np.int64],
    *,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
    mode: Mode,
    coordinate_transformation_mode: CoordinateTransformationMode,
) -> npt.NDArray[np.float64]:
    """The regions of `x` that the RoIs name, each resampled to the output's size.

    Along one axis, with P bins, g samples a bin and S the scale, sample i of bin p lies at
    `start + p*size/P + (i + 0.5)*size/(P*g)`, where `start = r1*S` (less 0.5 for half_pixel) and `size = (r2 - r1)*S`
    (at least 1 for output_half_pixel). A sample outside the map is 0.

    Args:
        x: [N, C, H, W], the feature map.
        rois: [R, 4], x1 y1 x2 y2 in units of 1/spatial_scale pixels, finite.
        batch_indices: [R], the image of each RoI, from 0 to N - 1.
        output_height: bins along y, at least 1.
        output_width: bins along x, at least 1.
        sampling_ratio: samples along each axis of a bin; 0 for the size of the bin in pixels, rounded up.
        spatial_scale: pixels to a unit of `rois`, above 0.
        mode: avg for the mean of the interpolated samples, max for the largest weighted pixel around any of them,
            max_interpolated for the largest of them. NaN wins.
        coordinate_transformation_mode: half_pixel, or output_half_pixel as before opset 16.

    Returns:
        [R, C, output_height, output_width]; 0 where a RoI has no samples.

    Raises:
        ValueError: a batch index is no image, a RoI is not finite, or there are RoIs but no pixels.

    Source:
        ONNX RoiAlign-10, -16 and -22; where their text is silent, `onnx.reference.ops.op_roi_align`.
    """
    check_data(rois, batch_indices, x.shape, names=("rois", "batch_indices", "X"))

    def axes(roi: Sequence[float]) -> tuple[SampledAxis, SampledAxis]:
        return axes_of_roi(
            roi,
            (output_height, output_width),
            x.shape[2:],
            sampling_ratio=sampling_ratio,
            spatial_scale=spatial_scale,
            coordinate_transformation_mode=coordinate_transformation_mode,
        )

    return pool(x, rois, batch_indices, (output_height, output_width), axes, mode)


def roi_align_grad(
    dy: npt.NDArray[np.float64],
    rois: npt.NDArray[np.float64],
    batch_indices: npt.NDArray[np.int64],
    x_shape: Sequence[int] | npt.NDArray[np.int64],
    x: npt.NDArray[np.float64] | None = None,
    *,
    sampling_ratio: int,
    spatial_scale: float,
    mode: Mode,
    coordinate_transformation_mode: CoordinateTransformationMode,
    outputs: Sequence[str] = ("dx", "drois"),
) -> tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.float64] | None]:
    """The gradients of `sum(dy * roi_align(x, rois, ...))` by `x` and by the stored coordinates in `rois`.

    In the max modes all of an output's gradient goes to its winner, the first by (iy, ix, corner) of those that tie,
    and is lost where that is outside the map. With `t = (p*g + i + 0.5)/(P*g)` a sample moves by `S*(1 - t)` with r1
    and by `S*t` with r2; by S and 0 where output_half_pixel has raised the size to 1. An interpolation has the slope of
    the cell that begins at the pixel at or before the sample, and 0 at the last pixel and beyond the first and the
    last. The number of samples is held fixed.

    Args:
        dy: [R, C, PH, PW], the gradient by the forward operator's output; PH and PW at least 1.
        rois: [R, 4], as in the forward operator.
        batch_indices: [R], as in the forward operator.
        x_shape: N, C, H, W.
        x: [N, C, H, W], the feature map; read for drois and in the max modes only.
        sampling_ratio: as in the forward operator.
        spatial_scale: as in the forward operator.
        mode: as in the forward operator.
        coordinate_transformation_mode: as in the forward operator.
        outputs: the gradients wanted, at least one of dx and drois.

    Returns:
        dx [N, C, H, W] and drois [R, 4], None for one that is not wanted.

    Raises:
        ValueError: as `roi_align` does; or `x` is missing where it is read, an output size is 0, or `outputs` is empty
            or has another name.

    Source:
        The derivative of ONNX RoiAlign-22, which has no gradient in any ONNX operator set.
    """
    shape = tuple(int(length) for length in x_shape)
    check_data(rois, batch_indices, shape, names=("rois", "batch_indices", "x_shape"))
    reader = f"mode {mode!r}" if mode != "avg" else "drois" if "drois" in outputs else None
    check_gradient(
        dy.shape, outputs, known=("dx", "drois"), names=("dY", "X"), reader=None if x is not None else reader
    )

    def axes(roi: Sequence[float]) -> tuple[SampledAxis, SampledAxis]:
        return axes_of_roi(
            roi,
            dy.shape[2:],
            shape[2:],
            sampling_ratio=sampling_ratio,
            spatial_scale=spatial_scale,
            coordinate_transformation_mode=coordinate_transformation_mode,
        )

    wanted = ("dx" in outputs, "drois" in outputs)
    return pool_grad(dy, rois, batch_indices, shape, x, axes, mode, wanted)


def check_data(
    rois: npt.NDArray[np.float64],
    batch_indices: npt.NDArray[np.integer] | npt.NDArray[np.float64],
    x_shape: Sequence[int],
    *,
    names: tuple[str, str, str],
) -> None:
    """Refuse an image that does not exist, a RoI that is not finite, and RoIs on a map without pixels.

    Args:
        names: what errors call the RoIs, the batch indices and the source of `x_shape`.
    """
    images, _, height, width = x_shape
    for r, index in enumerate(batch_indices.tolist()):
        if not 0 <= index < images:
            raise ValueError(f"{names[1]}[{r}] is {index}: must be >= 0 and < {images} (N of {names[2]})")
    for r, roi in enumerate(rois.tolist()):
        if not all(map(math.isfinite, roi)):
            raise ValueError(f"{names[0]}[{r}] is {roi}: must be finite")
    if len(rois) > 0 and 0 in (height, width):
        raise ValueError(f"{names[2]} has H = {height}, W = {width}: both must be >= 1 where there are RoIs")


def check_gradient(
    dy_shape: Sequence[int],
    outputs: Sequence[str],
    *,
    known: tuple[str, str],
    names: tuple[str, str],
    reader: str | None,
) -> None:
    """Refuse outputs that do not exist, none at all, bins that do not exist, and a missing feature map.

    Args:
        known: the outputs that exist.
        names: what errors call the gradient by the output and the feature map.
        reader: what needs the feature map although it is missing; None where all is well.
    """
    if not outputs or not set(outputs) <= set(known):
        raise ValueError(f"outputs = {tuple(outputs)!r}: must be one or both of {', '.join(map(repr, known))}")
    if 0 in dy_shape[2:]:
        raise ValueError(f"{names[0]} has shape {list(dy_shape)}: output height and width must be >= 1")
    if reader is not None:
        raise ValueError(f"{names[1]} is missing: {reader} requires it")


def pool(
    x: npt.NDArray[np.float64],
    rois: npt.NDArray[np.float64],
    batch_indices: npt.NDArray[np.integer],
    output_size: tuple[int, int],
    axes_of: AxesOfRoi,
    mode: Mode,
    outside_value: float = 0.0,
) -> npt.NDArray[np.float64]:
    """The output for RoIs whose samples lie where `axes_of` says; those outside the map are `outside_value`."""
    y = np.zeros((len(rois), x.shape[1], *output_size))
    for r, (roi, n) in enumerate(zip(rois.tolist(), batch_indices.tolist(), strict=True)):
        channels: list[Channel] = x[n].tolist()
        for bin_ in bins_of(*axes_of(roi)):
            for c, channel in enumerate(channels):
                y[r, c, bin_.p, bin_.q] = _output(mode, bin_, channel, outside_value)
    return y


def pool_grad(
    dy: npt.NDArray[np.float64],
    rois: npt.NDArray[np.float64],
    batch_indices: npt.NDArray[np.integer],
    x_shape: tuple[int, ...],
    x: npt.NDArray[np.float64] | None,
    axes_of: AxesOfRoi,
    mode: Mode,
    wanted: tuple[bool, bool],
) -> tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.float64] | None]:
    """The gradients of `sum(dy * pool(x, rois, ...))` by `x` and by `rois`, samples outside the map being 0."""
    dx = np.zeros(x_shape).tolist()
    drois = np.zeros((len(rois), 4)).tolist()
    for r, (roi, n) in enumerate(zip(rois.tolist(), batch_indices.tolist(), strict=True)):
        channels: list[Channel] = [[]] * x_shape[1] if x is None else x[n].tolist()
        axes = axes_of(roi)
        for bin_ in bins_of(*axes):
            for c, channel in enumerate(channels):
                for part in _parts(mode, bin_, channel):
                    share = float(dy[r, c, bin_.p, bin_.q]) / part.divisor
                    if wanted[0]:
                        _add_to_dx(dx[n][c], share, part)
                    if wanted[1]:
                        _add_to_droi(drois[r], share, part, channel, bin_, *axes)
    return (
        np.array(dx, np.float64).reshape(x_shape) if wanted[0] else None,
        np.array(drois, np.float64).reshape(-1, 4) if wanted[1] else None,
    )


def _output(mode: Mode, bin_: Bin, channel: Channel, outside_value: float) -> float:
    if mode == "avg":
        total = sum(sample.repeats * _value(channel, sample.corners) for sample in bin_.inside)
        outside = bin_.total - sum(sample.repeats for sample in bin_.inside)
        if outside > 0:
            total += outside * outside_value
        return total / max(bin_.total, 1)
    winner = _winner(mode, bin_, channel, outside_value)
    return 0.0 if winner is None else winner.value


def _value(channel: Channel, corners: Sequence[Corner]) -> float:
    # Not sum(): since Python 3.12 it makes up for rounding, and equal samples would no longer tie in every version.
    value = 0.0
    for corner in corners:
        value += corner.weight * _pixel(channel, corner)
    return value


def _pixel(channel: Channel, corner: Corner) -> float:
    """The pixel at a corner; 0 beyond the map, where only the products of a weight of 0 are left to compare."""
    return 0.0 if corner.pixel is None else channel[corner.pixel[0]][corner.pixel[1]]


class _Candidate(NamedTuple):
    """What a maximum chooses from: a value and the corners it comes from, none where it is outside the map."""

    value: float
    sample: Sample | None
    corners: tuple[Corner, ...]


def _winner(mode: Mode, bin_: Bin, channel: Channel, outside_value: float) -> _Candidate | None:
    """The first of the largest candidates; None where there are no samples."""

    def rank(candidate: _Candidate) -> tuple[bool, float]:
        return (True, 0.0) if math.isnan(candidate.value) else (False, candidate.value)

    return max(_candidates(mode, bin_, channel, outside_value), key=rank, default=None)


def _candidates(mode: Mode, bin_: Bin, channel: Channel, outside_value: float) -> Iterator[_Candidate]:
    """By ascending (iy, ix, corner). The first sample outside the map stands for all of them: they tie with it."""
    outside = bin_.outside
    for sample in bin_.inside:
        if outside is not None and outside < sample.first:
            yield _Candidate(outside_value, None, ())
            outside = None
        choices = [sample.corners] if mode == "max_interpolated" else [(corner,) for corner in sample.corners]
        for corners in choices:
            yield _Candidate(_value(channel, corners), sample, corners)
    if outside is not None:
        yield _Candidate(outside_value, None, ())


class _Part(NamedTuple):
    """A part of an output: `sum(weight * pixel)` over `corners`, once for each of the samples, over `divisor`."""

    divisor: int
    corners: tuple[Corner, ...]
    iy: Sequence[int]
    ix: Sequence[int]


def _parts(mode: Mode, bin_: Bin, channel: Channel) -> list[_Part]:
    """The parts of which the output is the sum, those outside the map left out."""
    if mode == "avg":
        return [_Part(bin_.total, sample.corners, sample.y.indices, sample.x.indices) for sample in bin_.inside]
    winner = _winner(mode, bin_, channel, 0.0)
    if winner is None or winner.sample is None:
        return []
    iy, ix = winner.sample.first
    return [_Part(1, winner.corners, [iy], [ix])]


def _add_to_dx(dx: Channel, share: float, part: _Part) -> None:
    for corner in part.corners:
        if corner.pixel is not None:
            h, w = corner.pixel
            dx[h][w] += share * len(part.iy) * len(part.ix) * corner.weight


def _add_to_droi(
    droi: list[Any], share: float, part: _Part, channel: Channel, bin_: Bin, axis_y: SampledAxis, axis_x: SampledAxis
) -> None:
    slope_y = share * sum(corner.slope_y * _pixel(channel, corner) for corner in part.corners)
    slope_x = share * sum(corner.slope_x * _pixel(channel, corner) for corner in part.corners)
    y_by_y1, y_by_y2 = roi_slopes(axis_y, bin_.p, part.iy)
    x_by_x1, x_by_x2 = roi_slopes(axis_x, bin_.q, part.ix)
    droi[0] += slope_x * x_by_x1 * len(part.iy)
    droi[1] += slope_y * y_by_y1 * len(part.ix)
    droi[2] += slope_x * x_by_x2 * len(part.iy)
    droi[3] += slope_y * y_by_y2 * len(part.ix)
