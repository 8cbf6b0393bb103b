# SPDX-License-Identifier: MIT
"""MaxRoiPool and its gradient, pixel by pixel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ortops.operators.max_roi_pool import MAX_COORDINATE
from ortops.reference.roi_align import check_bins, check_data
from ortops.reference.sampling import ends_of

Pixel = tuple[int, int]


def max_roi_pool(
    x: npt.NDArray[np.float64],
    rois: npt.NDArray[np.float64],
    *,
    pooled_shape: Sequence[int],
    spatial_scale: float,
) -> npt.NDArray[np.float64]:
    """Find the largest pixel in each bin of each RoI.

    Along an axis with ends `r1` and `r2` of the RoI, P bins and the scale S, the RoI has the pixels from
    `start = round(r1*S)` to `end = round(r2*S)`, halves away from 0, but at least the pixel `start`. With
    `L = max(end - start + 1, 1)`, bin p has the pixels from `start + floor(p*L/P)` to `start + ceil((p + 1)*L/P) - 1`
    that are on the map.

    Args:
        x, rois, pooled_shape, spatial_scale: as in `ortops.max_roi_pool`.

    Returns:
        [R, C, *pooled_shape]; NaN where a pixel of the bin is NaN, 0 where the bin has no pixels.

    Raises:
        ValueError: a batch_id is not an image's index, a RoI is not finite, or there are RoIs but no pixels.

    Source:
        ONNX MaxRoiPool-1 and -22; where their text is silent, `ortops.operators.max_roi_pool`.
    """
    check_rois(rois, x.shape)
    y = np.zeros((len(rois), x.shape[1], *pooled_shape))
    for r, (roi, p, q, bin_) in bins_of(rois, pooled_shape, x.shape[2:], spatial_scale):
        for c, channel in enumerate(x[int(roi[0])]):
            y[r, c, p, q] = largest(channel, bin_)
    return y


def largest(channel: npt.NDArray[np.float64], bin_: tuple[range, range]) -> float:
    """A bin's largest pixel, or NaN if a pixel is NaN; 0 if the bin has no pixels."""
    winner = first_largest(channel, bin_)
    return 0.0 if winner is None else float(channel[winner])


def max_roi_pool_grad(
    dy: npt.NDArray[np.float64],
    x: npt.NDArray[np.float64],
    rois: npt.NDArray[np.float64],
    *,
    spatial_scale: float,
) -> npt.NDArray[np.float64]:
    """The gradient of `sum(dy * max_roi_pool(x, rois, ...))` by `x`.

    All of an output's gradient goes to its bin's largest pixel, the first of equal pixels row by row, or to the first NaN.
    A bin without pixels passes nothing.

    Args:
        dy, x, rois, spatial_scale: as in `ortops.max_roi_pool_grad`.

    Returns:
        dx, [N, C, H, W].

    Raises:
        ValueError: as in `max_roi_pool`; or an output size is 0.

    Source:
        The derivative of ONNX MaxRoiPool-22; no ONNX operator computes it.
    """
    check_rois(rois, x.shape)
    check_bins(dy.shape, "dY")
    dx = np.zeros(x.shape)
    for r, (roi, p, q, bin_) in bins_of(rois, dy.shape[2:], x.shape[2:], spatial_scale):
        n = int(roi[0])
        for c, channel in enumerate(x[n]):
            winner = first_largest(channel, bin_)
            if winner is not None:
                add_to_dx(dx[n, c], winner, float(dy[r, c, p, q]))
    return dx


def add_to_dx(dx: npt.NDArray[np.float64], winner: Pixel, dy: float) -> None:
    """Add a bin's gradient to its largest pixel's gradient in `dx`, [H, W]."""
    # Python's floats: infinities of both signs add up to NaN without a warning.
    dx[winner] = float(dx[winner]) + dy


def check_rois(rois: npt.NDArray[np.float64], x_shape: Sequence[int]) -> None:
    """Check the RoIs as `check_data` does, and that each batch_id is a whole number."""
    check_data(rois, rois[:, 0], x_shape, names=("rois", "batch_id", "X"))
    for r, batch_id in enumerate(rois[:, 0].tolist()):
        if not batch_id.is_integer():
            raise ValueError(f"batch_id[{r}] is {batch_id}: must be a whole number")


def bins_of(
    rois: npt.NDArray[np.float64], output_size: Sequence[int], map_size: Sequence[int], scale: float
) -> Iterator[tuple[int, tuple[list[float], int, int, tuple[range, range]]]]:
    """For each bin of each RoI: the index of the RoI; the RoI, the bin's row and column, its rows and columns on the map."""
    for r, roi in enumerate(rois.tolist()):
        ends_y, ends_x = ends_of(roi[1:])
        rows = along(*ends_y, scale, output_size[0], map_size[0])
        columns = along(*ends_x, scale, output_size[1], map_size[1])
        for p, row in enumerate(rows):
            for q, column in enumerate(columns):
                yield r, (roi, p, q, (row, column))


def along(r1: float, r2: float, scale: float, bins: int, length: int) -> list[range]:
    """The pixels of each bin along one axis that are on a map of `length` pixels."""
    start, end = rounded(r1 * scale), rounded(r2 * scale)
    bounds = [bounds_of(p, size_of(start, end), bins) for p in range(bins)]
    return [on_map(start + low, start + high, length) for low, high in bounds]


def size_of(start: int, end: int) -> int:
    """A RoI's number of pixels along an axis."""
    return max(end - start + 1, 1)


def bounds_of(p: int, size: int, bins: int) -> tuple[int, int]:
    """Bin `p`'s first pixel and its end, exclusive, from the start of a RoI of `size` pixels."""
    # Python divides integers exactly; dividing the negative and negating again rounds up.
    return p * size // bins, -(-(p + 1) * size // bins)


def on_map(low: int, high: int, length: int) -> range:
    """The pixels from `low` to before `high` that are on a map of `length` pixels."""
    return range(max(low, 0), min(high, length))


def rounded(end: float) -> int:
    """The nearest whole number, halves away from 0, limited to `MAX_COORDINATE`."""
    size = min(abs(end), float(MAX_COORDINATE))
    below = math.floor(size)
    # floor(size + 0.5) would be wrong: the sum is rounded too, and for the number just below one half it is 1.
    nearest = below + 1 if size - below >= 0.5 else below
    return nearest if end > 0 else -nearest


def first_largest(channel: npt.NDArray[np.float64], bin_: tuple[range, range]) -> Pixel | None:
    """The first of the largest pixels, or the first NaN; None if the bin has no pixels."""
    winner: Pixel | None = None
    largest = -math.inf
    for h in bin_[0]:
        for w in bin_[1]:
            value = float(channel[h, w])
            if math.isnan(value):
                return h, w
            if winner is None or value > largest:
                winner, largest = (h, w), value
    return winner
