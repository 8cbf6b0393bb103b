# SPDX-License-Identifier: MIT
"""RoIAlignRotated and its gradient, sample by sample."""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ortops.reference.roi_align import Array, Channel, Gradients, channels_of, check_bins, check_data, images_of
from ortops.reference.sampling import Corner, corners, is_inside, samples_per_bin, taps

MAX_SLACK = 64.0
"""The largest rounding error, in pixels, for which the bounds leave room; with larger errors, float64 samples are wrong."""

TURN = decimal.Decimal("6.283185307179586476925286766559005768394338798750211641949889184615632812572417997256069650")
LEAST_TERM = decimal.Decimal("1e-40")
FARTHEST = 1e30
"""Angles from here on, where the digits of `TURN` are too few, are left to the C library."""

# Python's floats, since NumPy's would warn about infinite and NaN data.


def roi_align_rotated(
    x: Array,
    rois: Array,
    batch_indices: npt.NDArray[np.integer],
    *,
    output_height: int,
    output_width: int,
    **placement: Any,
) -> Array:
    """Pool feature maps over rotated RoIs: the mean of each bin's samples.

    With S the scale, a RoI's centre is `(cx*S - o, cy*S - o)`, where o is 0.5 if aligned and else 0, and its size is
    `(w*S, h*S)`, at least 1 if not aligned. An axis of the upright region, of size L, has `n = P*K` samples. Sample k lies
    at `L*((k + 0.5)/n - 0.5)` from the centre; this distance is u along the width and v along the height. The angle t,
    negated if clockwise, turns the sample to `(u*cos(t) + v*sin(t), v*cos(t) - u*sin(t))` from the centre. A sample outside
    the map is 0.

    Args:
        x, rois, batch_indices, output_height, output_width: as in `ortops.roi_align_rotated`.
        placement: the other attributes, arguments of `region_of`.

    Returns:
        [R, C, output_height, output_width]; 0 where a RoI has no samples.

    Raises:
        ValueError: a batch index is out of range, a RoI is not finite, or there are RoIs but no pixels.

    Source:
        mmcv's documentation of RoIAlignRotated for the meaning of a RoI; ONNX RoiAlign-22 for the number of samples,
        the interpolation and the border.
    """
    check_data(rois, batch_indices, x.shape, names=("rois", "batch_indices", "X"))
    size = (output_height, output_width)
    y = np.zeros((len(rois), x.shape[1], *size))
    for r, (roi, n) in enumerate(zip(rois.tolist(), images_of(batch_indices), strict=True)):
        channels = channels_of(x, n)
        region = region_of(roi, size, x.shape[2:], **placement)
        for p, q in np.ndindex(size):
            samples = list(region.samples(p, q))
            y[r, :, p, q] = [average(samples, channel, region) for channel in channels]
    return y


def roi_align_rotated_grad(
    dy: Array,
    rois: Array,
    batch_indices: npt.NDArray[np.integer],
    x_shape: Sequence[int] | npt.NDArray[np.int64],
    x: Array | None = None,
    *,
    outputs: Sequence[str] = ("dx", "drois"),
    **placement: Any,
) -> Gradients:
    """The gradients of `sum(dy * roi_align_rotated(x, rois, ...))` by `x` and by the stored numbers in `rois`.

    A sample's position has the derivative `S` by cx and cy; `S*((k + 0.5)/n - 0.5)` along the region's width by w and along
    its height by h, or 0 if the size has been raised to 1; and `v*cos(t) - u*sin(t)` in x and `-u*cos(t) - v*sin(t)` in y by
    the angle, negated if clockwise. The interpolation's slope is the same as in RoiAlign. The number of samples counts as
    constant.

    Args:
        dy, rois, batch_indices, x_shape, x, outputs: as in `ortops.roi_align_rotated_grad`.
        placement: as in `roi_align_rotated`.

    Returns:
        dx [N, C, H, W] and drois [R, 5]; None for a gradient that is not wanted.

    Raises:
        ValueError: as in `roi_align_rotated`; or an output size is 0.

    Source:
        The derivative of `roi_align_rotated`. mmcv and detectron2 have only dx.
    """
    shape = tuple(int(length) for length in x_shape)
    check_data(rois, batch_indices, shape, names=("rois", "batch_indices", "x_shape"))
    check_bins(dy.shape, "dY")

    dx = np.zeros(shape).tolist()
    drois = np.zeros((len(rois), 5)).tolist()
    for r, (roi, n) in enumerate(zip(rois.tolist(), images_of(batch_indices), strict=True)):
        channels: list[Channel] = [] if x is None else channels_of(x, n)
        region = region_of(roi, dy.shape[2:], shape[2:], **placement)
        for p, q in np.ndindex(dy.shape[2:]):
            shares = [share / divisor_of(region) for share in dy[r, :, p, q].tolist()]
            for sample in region.samples(p, q):
                if "dx" in outputs:
                    for dx_channel, share in zip(dx[n], shares, strict=True):
                        add_to_dx(dx_channel, share, sample.corners)
                if "drois" in outputs:
                    for channel, share in zip(channels, shares, strict=True):
                        add_to_droi(drois[r], share, channel, sample, region)
    return (
        np.array(dx, np.float64).reshape(shape) if "dx" in outputs else None,
        np.array(drois, np.float64).reshape(-1, 5) if "drois" in outputs else None,
    )


class Sample(NamedTuple):
    """A sample inside the map.

    along_w, along_h: `(k + 0.5)/n - 0.5` on both axes: the position in the region in units of its width and height.
    x, y: the coordinates on the map, in pixels.
    corners: the pixels that the sample reads.
    """

    along_w: float
    along_h: float
    x: float
    y: float
    corners: tuple[Corner, ...]


@dataclass(frozen=True)
class Side:
    """One axis of the upright region, through its centre.

    size: size in pixels, negative for a mirrored region, infinite if float64 overflows.
    size_varies: False if the size was raised to the smallest allowed size, so that it does not depend on the stored number.
    bins: number of output bins.
    per_bin: number of samples in each bin, which may be 0.
    """

    size: float
    size_varies: bool
    bins: int
    per_bin: int

    @property
    def samples(self) -> int:
        """The number of samples in all bins."""
        return self.bins * self.per_bin

    def along(self, k: int) -> float:
        """`(k + 0.5)/n - 0.5`, the position of sample `k` of `n` in units of the size."""
        # Integers up to the division keep samples exact that are far from both ends of a huge region.
        return (2 * k + 1 - self.samples) / (2 * self.samples)

    def between(self, p: int, low: float, high: float) -> range:
        """A range with every sample of bin `p` between `low` and `high` pixels from the centre, and few others."""
        first, last = p * self.per_bin, (p + 1) * self.per_bin
        if low > high:
            return range(first, first)
        step = self.size / max(self.samples, 1)
        if step == 0.0:
            return range(first, last)
        limit, middle = float(self.samples), self.samples // 2
        ends = sorted(min(max(pixels / step, -limit), limit) for pixels in (low, high))
        return range(max(middle + math.floor(ends[0]) - 2, first), min(middle + math.ceil(ends[1]) + 3, last))


@dataclass(frozen=True)
class Region:
    """One RoI on the map.

    center_x, center_y: the centre in pixels of the map.
    sin, cos: sine and cosine of the region's counter-clockwise angle.
    angle_sign: 1, or -1 if the stored angle is clockwise.
    scale: map pixels for each unit of the RoI's stored coordinates.
    height, width: the upright region's sides.
    map_size: height and width of the map in pixels.
    """

    center_x: float
    center_y: float
    sin: float
    cos: float
    angle_sign: float
    scale: float
    height: Side
    width: Side
    map_size: tuple[int, int]

    @property
    def total(self) -> int:
        """Number of samples in a bin, including those outside the map."""
        return self.height.per_bin * self.width.per_bin

    def samples(self, p: int, q: int) -> Iterator[Sample]:
        """The samples of bin (p, q) inside the map, row by row of the upright region."""
        for ky in self.rows(p):
            along_h = self.height.along(ky)
            v = self.height.size * along_h
            for kx in self.columns(q, v):
                along_w = self.width.along(kx)
                u = self.width.size * along_w
                x, y = self.place(u, v)
                if is_inside(y, self.map_size[0]) and is_inside(x, self.map_size[1]):
                    read = corners(taps(y, self.map_size[0]), taps(x, self.map_size[1]))
                    yield Sample(along_w, along_h, x, y, read)

    def place(self, u: float, v: float) -> tuple[float, float]:
        """The coordinates x and y of the point `u` along the width and `v` along the height from the centre."""
        return self.center_x + u * self.cos + v * self.sin, self.center_y + v * self.cos - u * self.sin

    def rows(self, p: int) -> range:
        """A range with every row of bin `p` that has a sample inside the map, and few others."""
        numbers = (self.center_x, self.center_y, self.width.size, self.height.size)
        if self.total == 0 or not all(map(math.isfinite, numbers)):
            # A sum with an infinite term is not a coordinate on the map.
            return range(0)
        (low_y, high_y), (low_x, high_x) = self._bounds()
        heights = [
            (x - self.center_x) * self.sin + (y - self.center_y) * self.cos
            for y in (low_y, high_y)
            for x in (low_x, high_x)
        ]
        return self.height.between(p, min(heights), max(heights))

    def columns(self, q: int, v: float) -> range:
        """A range with every sample of bin `q` inside the map in the row at `v`, and few others."""
        (low_y, high_y), (low_x, high_x) = self._bounds()
        x, y = self.center_x + v * self.sin, self.center_y + v * self.cos
        by_x = _solutions(low_x - x, self.cos, high_x - x)
        by_y = _solutions(low_y - y, -self.sin, high_y - y)
        return self.width.between(q, max(by_x[0], by_y[0]), min(by_x[1], by_y[1]))

    def _bounds(self) -> list[tuple[float, float]]:
        """Bounds of y and of x that contain every sample inside the map, whatever its rounding errors."""
        # Two pixels at both ends, one more than the map needs, and a bound of the dozen rounding errors in the coordinates.
        largest = abs(self.center_x) + abs(self.center_y) + sum(self.map_size)
        slack = 2.0 + min(64 * math.ulp(1.0) * largest, MAX_SLACK)
        return [(-slack, length + slack) for length in self.map_size]


def _solutions(low: float, factor: float, high: float) -> tuple[float, float]:
    """The bounds of all u with `low <= factor*u <= high`; infinite for a factor of 0."""
    if factor == 0.0:
        return -math.inf, math.inf
    ends = low / factor, high / factor
    return min(ends), max(ends)


def region_of(
    roi: Sequence[float],
    output_size: Sequence[int],
    map_size: Sequence[int],
    aligned: int,
    clockwise: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> Region:
    """The region of the RoI cx cy w h angle. Sizes are height and width."""

    def side(stored: float, bins: int) -> Side:
        size, varies = size_of(stored, spatial_scale, aligned)
        return Side(size, varies, bins, samples_per_bin(size, bins, sampling_ratio))

    cx, cy, w, h, angle = roi
    sine, cosine = sine_and_cosine(angle, clockwise)
    return Region(
        center_x=center_of(cx, spatial_scale, aligned),
        center_y=center_of(cy, spatial_scale, aligned),
        sin=sine,
        cos=cosine,
        angle_sign=sign_of(clockwise),
        scale=spatial_scale,
        height=side(h, output_size[0]),
        width=side(w, output_size[1]),
        map_size=(map_size[0], map_size[1]),
    )


def center_of(stored: float, scale: float, aligned: int) -> float:
    """A coordinate of the centre on the map, in pixels."""
    return stored * scale - (0.5 if aligned else 0.0)


def size_of(stored: float, scale: float, aligned: int) -> tuple[float, bool]:
    """A size in pixels, and whether it varies with the stored number; it does not if it was raised to 1."""
    size = stored * scale
    varies = aligned != 0 or size >= 1.0
    return (size if varies else 1.0), varies


def sign_of(clockwise: int) -> float:
    """The sign that makes the stored angle counter-clockwise."""
    return -1.0 if clockwise else 1.0


def sine_and_cosine(angle: float, clockwise: int) -> tuple[float, float]:
    """Sine and cosine of a region's counter-clockwise angle."""
    turn = sign_of(clockwise) * angle
    return taylor(turn, 1), taylor(turn, 0)


def taylor(turn: float, power: int) -> float:
    """The sine for power 1, or the cosine for power 0, correctly rounded.

    Functions of the C library differ in their last digit from machine to machine.
    """
    if not abs(turn) < FARTHEST:
        return (math.cos, math.sin)[power](turn)
    with decimal.localcontext(prec=90):
        x = decimal.Decimal(turn) % TURN
        term = total = x if power else decimal.Decimal(1)
        while abs(term) > LEAST_TERM:
            power += 2
            term *= -x * x / (power * (power - 1))
            total += term
    return float(total)


def average(samples: Sequence[Sample], channel: Channel, region: Region) -> float:
    """The mean of a bin's samples; 0 if it has no samples."""
    total = 0.0
    for sample in samples:
        total += interpolated(channel, sample.corners)
    return total / divisor_of(region)


def divisor_of(region: Region) -> float:
    """The number of a bin's samples, at least 1."""
    return max(region.total, 1)


def interpolated(channel: Channel, read: Sequence[Corner]) -> float:
    """A channel's value at a sample that reads these pixels."""
    return sum(corner.weight * _pixel(channel, corner) for corner in read)


def _pixel(channel: Channel, corner: Corner) -> float:
    return 0.0 if corner.pixel is None else channel[corner.pixel[0]][corner.pixel[1]]


def add_to_dx(dx: Channel, share: float, read: Sequence[Corner]) -> None:
    """Add a sample's contribution to the pixels that it reads."""
    for corner in read:
        if corner.pixel is not None:
            h, w = corner.pixel
            dx[h][w] += share * corner.weight


def add_to_droi(droi: list[float], share: float, channel: Channel, sample: Sample, region: Region) -> None:
    """Add a sample's contribution to the gradient by the RoI's numbers."""
    by_y = share * sum(corner.weight_dy * _pixel(channel, corner) for corner in sample.corners)
    by_x = share * sum(corner.weight_dx * _pixel(channel, corner) for corner in sample.corners)
    u, v = region.width.size * sample.along_w, region.height.size * sample.along_h
    droi[0] += by_x * region.scale
    droi[1] += by_y * region.scale
    if region.width.size_varies:
        droi[2] += (by_x * region.cos - by_y * region.sin) * region.scale * sample.along_w
    if region.height.size_varies:
        droi[3] += (by_x * region.sin + by_y * region.cos) * region.scale * sample.along_h
    droi[4] += (by_x * (v * region.cos - u * region.sin) - by_y * (u * region.cos + v * region.sin)) * region.angle_sign
