# SPDX-License-Identifier: MIT
"""RoiAlign and its gradient, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from ortops.reference.sampling import Bin, Corner, Sample, SampledAxis, axes_of_roi, bins_of, summed_roi_derivatives

Mode = Literal["avg", "max", "max_interpolated"]
Array = npt.NDArray[np.float64]
Gradients = tuple[Array | None, Array | None]
Channel = list[list[float]]
AxesOfRoi = Callable[[Sequence[float]], tuple[SampledAxis, SampledAxis]]
"""Takes x1 y1 x2 y2; returns the samples along y and along x."""

# Python's floats, since NumPy's would warn about infinite and NaN data.


def roi_align(
    x: Array,
    rois: Array,
    batch_indices: npt.NDArray[np.int64],
    *,
    output_height: int,
    output_width: int,
    mode: Mode,
    position_sensitive: bool = False,
    **sampling: Any,
) -> Array:
    """Pool feature maps over RoIs: the mean or maximum of each bin's samples.

    Along one axis, with P bins, g samples in each bin and S the scale, sample i of bin p lies at
    `start + p*size/P + (i + 0.5)*size/(P*g)`, where `start = r1*S` (less 0.5 for half_pixel) and `size = (r2 - r1)*S`
    (at least 1 for output_half_pixel). A sample outside the map is 0. A NaN is larger than every number.

    Args:
        x, rois, batch_indices, output_height, output_width, mode: as in `ortops.roi_align`.
        position_sensitive: whether each bin reads its own channels, as in `ortops.ps_roi_align`.
        sampling: the other attributes, arguments of `axes_of_roi`.

    Returns:
        [R, C, output_height, output_width]; 0 where a RoI has no samples.

    Raises:
        ValueError: a batch index is out of range, a RoI is not finite, or there are RoIs but no pixels.

    Source:
        ONNX RoiAlign-10, -16 and -22; where their text is silent, `onnx.reference.ops.op_roi_align`.
    """
    check_data(rois, batch_indices, x.shape, names=("rois", "batch_indices", "X"))
    size = (output_height, output_width)
    axes = partial(axes_of_roi, output_size=size, map_size=x.shape[2:], **sampling)
    return pool(x, rois, batch_indices, size, axes, mode, position_sensitive=position_sensitive)


def roi_align_grad(
    dy: Array,
    rois: Array,
    batch_indices: npt.NDArray[np.int64],
    x_shape: Sequence[int] | npt.NDArray[np.int64],
    x: Array | None = None,
    *,
    mode: Mode,
    outputs: Sequence[str] = ("dx", "drois"),
    position_sensitive: bool = False,
    **sampling: Any,
) -> Gradients:
    """The gradients of `sum(dy * roi_align(x, rois, ...))` by `x` and by the stored coordinates in `rois`.

    In the max modes, all of an output's gradient goes to its winner, the first of equal candidates by (iy, ix, corner); a
    winner outside the map passes nothing. With `t = (p*g + i + 0.5)/(P*g)`, a sample's coordinate has the derivatives
    `S*(1 - t)` by r1 and `S*t` by r2, or S and 0 if output_half_pixel has raised the size to 1. The interpolation's slope is
    the slope in the cell that begins at or before the sample; it is 0 at the last pixel and beyond the first and the last
    pixel. The number of samples counts as constant.

    Args:
        dy, rois, batch_indices, x_shape, x, mode, outputs: as in `ortops.roi_align_grad`.
        position_sensitive, sampling: as in `roi_align`.

    Returns:
        dx [N, C, H, W] and drois [R, 4]; None for a gradient that is not wanted.

    Raises:
        ValueError: as in `roi_align`; or an output size is 0.

    Source:
        The derivative of ONNX RoiAlign-22; no ONNX operator computes it.
    """
    shape = tuple(int(length) for length in x_shape)
    check_data(rois, batch_indices, shape, names=("rois", "batch_indices", "x_shape"))
    check_bins(dy.shape, "dY")
    axes = partial(axes_of_roi, output_size=dy.shape[2:], map_size=shape[2:], **sampling)
    wanted = ("dx" in outputs, "drois" in outputs)
    return pool_grad(dy, rois, batch_indices, shape, x, axes, mode, wanted, position_sensitive)


def check_data(
    rois: Array,
    batch_indices: npt.NDArray[np.integer] | Array,
    x_shape: Sequence[int],
    *,
    names: tuple[str, str, str],
) -> None:
    """Check the batch indices [R], that RoIs [R, ...] are finite, and that the map has pixels where there are RoIs.

    The names are those of the RoIs, the batch indices and the source of `x_shape` in errors.

    Raises:
        ValueError: a check fails.
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


def check_bins(dy_shape: Sequence[int], name: str) -> None:
    """Check that an output's gradient [R, C, PH, PW], called `name` in errors, has bins.

    Raises:
        ValueError: it has none.
    """
    if 0 in dy_shape[2:]:
        raise ValueError(f"{name} has shape {list(dy_shape)}: output height and width must be >= 1")


def pool(
    x: Array,
    rois: Array,
    batch_indices: npt.NDArray[np.integer],
    output_size: tuple[int, int],
    axes_of: AxesOfRoi,
    mode: Mode,
    outside_value: float = 0.0,
    position_sensitive: bool = False,
) -> Array:
    """The output for RoIs whose samples `axes_of` places; samples outside the map are `outside_value`.

    Every bin reads the channel of its output, or a channel of its own if it is position-sensitive.
    """
    y = np.zeros((len(rois), x.shape[1] // (math.prod(output_size) if position_sensitive else 1), *output_size))
    for r, (roi, n) in enumerate(zip(rois.tolist(), images_of(batch_indices), strict=True)):
        channels = channels_of(x, n)
        for bin_ in bins_of(*axes_of(roi)):
            for c in range(y.shape[1]):
                channel = channels[channel_read(bin_, c, output_size) if position_sensitive else c]
                if mode == "avg":
                    y[r, c, bin_.p, bin_.q] = average(bin_, channel, outside_value)
                else:
                    y[r, c, bin_.p, bin_.q] = maximum(mode, bin_, channel, outside_value)
    return y


def pool_grad(
    dy: Array,
    rois: Array,
    batch_indices: npt.NDArray[np.integer],
    x_shape: tuple[int, ...],
    x: Array | None,
    axes_of: AxesOfRoi,
    mode: Mode,
    wanted: tuple[bool, bool],
    position_sensitive: bool = False,
) -> Gradients:
    """The gradients of `sum(dy * pool(x, rois, ...))` by `x` and by `rois`, where samples outside the map are 0."""
    dx = np.zeros(x_shape).tolist()
    drois = np.zeros((len(rois), 4)).tolist()
    for r, (roi, n) in enumerate(zip(rois.tolist(), images_of(batch_indices), strict=True)):
        channels: list[Channel] = [[]] * x_shape[1] if x is None else channels_of(x, n)
        axes = axes_of(roi)
        for bin_ in bins_of(*axes):
            for c in range(dy.shape[1]):
                k = channel_read(bin_, c, dy.shape[2:]) if position_sensitive else c
                for term in terms_of(mode, bin_, channels[k]):
                    share = float(dy[r, c, bin_.p, bin_.q]) / term.divisor
                    if wanted[0]:
                        add_to_dx(dx[n][k], share, term)
                    if wanted[1]:
                        add_to_droi(drois[r], share, term, channels[k], bin_, *axes)
    return (
        np.array(dx, np.float64).reshape(x_shape) if wanted[0] else None,
        np.array(drois, np.float64).reshape(-1, 4) if wanted[1] else None,
    )


def channel_read(bin_: Bin, c: int, size: Sequence[int]) -> int:
    """The channel of the map that a bin of channel `c` of a position-sensitive output of `size` bins reads."""
    return (c * size[0] + bin_.p) * size[1] + bin_.q


def images_of(batch_indices: npt.NDArray[np.integer]) -> list[int]:
    """Each RoI's image index."""
    return [int(n) for n in batch_indices]


def channels_of(x: Array, n: int) -> list[Channel]:
    """The channels of image `n`."""
    return cast("list[Channel]", x[n].tolist())


def average(bin_: Bin, channel: Channel, outside_value: float) -> float:
    """The mean of a bin's samples; 0 if it has no samples."""
    total = sum(sample.repeats * value_of(channel, sample.corners) for sample in bin_.inside)
    outside = bin_.total - sum(sample.repeats for sample in bin_.inside)
    if outside > 0:
        total += outside * outside_value
    return total / divisor_of(bin_)


def divisor_of(bin_: Bin) -> float:
    """The number of a bin's samples, at least 1."""
    return max(bin_.total, 1)


def maximum(mode: Mode, bin_: Bin, channel: Channel, outside_value: float) -> float:
    """A bin's largest candidate; 0 if it has no samples."""
    winner = winner_of(candidates_of(mode, bin_, channel, outside_value))
    return 0.0 if winner is None else winner.value


def value_of(channel: Channel, corners: Sequence[Corner]) -> float:
    """The sum of the products of pixels and their weights."""
    # From Python 3.12 on, sum() compensates rounding errors, so ties would differ between versions.
    value = 0.0
    for corner in corners:
        value += corner.weight * _pixel(channel, corner)
    return value


def _pixel(channel: Channel, corner: Corner) -> float:
    """The pixel at a corner; 0 beyond the map, where the weight is 0 and a maximum compares the product 0."""
    return 0.0 if corner.pixel is None else channel[corner.pixel[0]][corner.pixel[1]]


class Candidate(NamedTuple):
    """A value that a maximum compares, and the corners it is made from; no corners for a sample outside the map."""

    value: float
    sample: Sample | None
    corners: tuple[Corner, ...]


def winner_of(candidates: Iterable[Candidate]) -> Candidate | None:
    """The first of the largest candidates; None if the bin has no samples."""

    def rank(candidate: Candidate) -> tuple[bool, float]:
        return (True, 0.0) if math.isnan(candidate.value) else (False, candidate.value)

    return max(candidates, key=rank, default=None)


def candidates_of(mode: Mode, bin_: Bin, channel: Channel, outside_value: float) -> Iterator[Candidate]:
    """The candidates by ascending (iy, ix, corner), with only the first of the equal samples outside the map."""
    outside = bin_.outside
    for sample in bin_.inside:
        if outside is not None and outside < sample.first:
            yield Candidate(outside_value, None, ())
            outside = None
        choices = [sample.corners] if mode == "max_interpolated" else [(corner,) for corner in sample.corners]
        for corners in choices:
            yield Candidate(value_of(channel, corners), sample, corners)
    if outside is not None:
        yield Candidate(outside_value, None, ())


class Term(NamedTuple):
    """A term of an output: `sum(weight * pixel)/divisor` over `corners`, for each of the samples (iy, ix)."""

    divisor: float
    corners: tuple[Corner, ...]
    iy: Sequence[int]
    ix: Sequence[int]


def terms_of(mode: Mode, bin_: Bin, channel: Channel) -> list[Term]:
    """The terms whose sum is the output, without those outside the map."""
    if mode == "avg":
        return [Term(divisor_of(bin_), sample.corners, sample.y.indices, sample.x.indices) for sample in bin_.inside]
    winner = winner_of(candidates_of(mode, bin_, channel, 0.0))
    if winner is None or winner.sample is None:
        return []
    iy, ix = winner.sample.first
    return [Term(1, winner.corners, [iy], [ix])]


def add_to_dx(dx: Channel, share: float, term: Term) -> None:
    """Add a term's contribution to the pixels that it reads; `share` is the gradient by each of its samples."""
    for corner in term.corners:
        if corner.pixel is not None:
            h, w = corner.pixel
            dx[h][w] += share * len(term.iy) * len(term.ix) * corner.weight


def add_to_droi(
    droi: list[Any], share: float, term: Term, channel: Channel, bin_: Bin, axis_y: SampledAxis, axis_x: SampledAxis
) -> None:
    """Add a term's contribution to the RoI's gradient; `share` is the gradient by each of its samples."""
    slope_y = share * sum(corner.weight_dy * _pixel(channel, corner) for corner in term.corners)
    slope_x = share * sum(corner.weight_dx * _pixel(channel, corner) for corner in term.corners)
    y_by_y1, y_by_y2 = summed_roi_derivatives(axis_y, bin_.p, term.iy)
    x_by_x1, x_by_x2 = summed_roi_derivatives(axis_x, bin_.q, term.ix)
    droi[0] += slope_x * x_by_x1 * len(term.iy)
    droi[1] += slope_y * y_by_y1 * len(term.ix)
    droi[2] += slope_x * x_by_x2 * len(term.iy)
    droi[3] += slope_y * y_by_y2 * len(term.ix)
