"""The derivatives of drois, an average's gradient with respect to its RoIs: second derivatives of the average.

They are computed in float64, for one RoI's samples at a time. Let p be the samples' positions, which depend on the RoI; m_k
the derivative of p by the RoI's number k; and f the interpolated map, which is bilinear between four pixels. Then

    drois[k] = sum of dy * f'(p) m_k
    L = sum_k v[k]*drois[k] = sum of dy * f'(p) m    with m = sum_k v[k]*m_k

and the derivatives of L are, since f has no second derivative along x alone or along y alone,

    by dy:       f'(p) m
    by x:        dy * (the change of each pixel's weight along m)
    by rois[k]:  dy * (f_xy * (m.y*m_k.x + m.x*m_k.y) + f'(p) dm/dk)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

_MOST_SAMPLES = 2**22
"""The most samples of a RoI: their positions and weights take less than 1 GiB."""

_AT_ONCE = 2**20
"""The approximate number of samples, over several channels, that are computed at once."""


class _Samples(NamedTuple):
    """The samples, in rows and columns, of a RoI with n numbers.

    places: each sample's y and x [2, rows, columns].
    moves: the positions' derivatives with respect to each number [n, 2, rows, columns].
    turns: the derivatives, with respect to each number, of the moves' sum weighted by v [n, 2, rows, columns].
    """

    places: Any
    moves: Any
    turns: Any


def gradients_of_drois(
    v: Any,
    dy: Any,
    rois: Any,
    images: Any,
    x: Any,
    scale: float,
    ratio: int,
    aligned: bool,
    clockwise: bool | None = None,
) -> tuple[Any, Any, Any]:
    """The derivatives of sum(v * drois) with respect to dy, rois and x, in float64.

    Args:
        v: weights of drois [K, 1 + n]; the first column has no effect.
        dy: gradient with respect to the output [K, C, P, Q].
        rois: the image index and the numbers of each RoI [K, 1 + n].
        images: the image indices as integers [K].
        x: feature maps [N, C, H, W].
        scale: pixels of x for each unit of rois.
        ratio: a bin's samples along each axis; 0 or less takes the bin's size, rounded up.
        aligned: see `ortops.torch.roi_align`.
        clockwise: see `ortops.torch.roi_align_rotated`; None for RoIs that are not rotated.

    Raises:
        ValueError: a RoI has more than 2**22 samples.
    """
    v, dy, rois, x = (tensor.detach().double().contiguous() for tensor in (v, dy, rois, x))
    by_dy, by_rois, by_x = torch.zeros_like(dy), torch.zeros_like(rois), torch.zeros_like(x)
    bins = dy.shape[2:]
    for r, image in enumerate(images.tolist()):
        _, *roi = rois[r].tolist()
        lengths = (roi[3] - roi[1], roi[2] - roi[0]) if clockwise is None else (roi[3], roi[2])
        raised = [not aligned and scale * length < 1 for length in lengths]
        sizes = [1.0 if is_raised else scale * length for is_raised, length in zip(raised, lengths, strict=True)]
        counts = [ratio if ratio > 0 else max(math.ceil(a / n), 0) for a, n in zip(sizes, bins, strict=True)]
        if (number := math.prod(bins) * math.prod(counts)) > _MOST_SAMPLES:
            raise ValueError(
                f"rois[{r}] has {number} samples: must have at most {_MOST_SAMPLES} for a second derivative"
            )
        if number:
            steps = [n * count for n, count in zip(bins, counts, strict=True)]
            parts = [(torch.arange(n, dtype=torch.float64) + 0.5) / n for n in steps]
            grows = [0.0 if is_raised else scale for is_raised in raised]
            places = (roi, parts[0].unsqueeze(1), parts[1], sizes, grows, scale, 0.5 * aligned)
            samples = (
                _upright(*places) if clockwise is None else _rotated(*places, -1.0 if clockwise else 1.0, v[r, 1:])
            )
            by_dy[r], by_rois[r, 1:] = _add_up(samples, v[r, 1:], dy[r], x[image], by_x[image], counts)
    return by_dy, by_rois, by_x


def _upright(
    roi: list[float], down: Any, across: Any, sizes: list[float], grows: list[float], scale: float, shift: float
) -> _Samples:
    """The samples of a RoI x1, y1, x2, y2.

    Args:
        roi: the RoI's numbers.
        down: the position of each row of samples in the RoI, from 0 to 1 [rows, 1].
        across: the position of each column of samples in the RoI, from 0 to 1 [columns].
        sizes: height and width in pixels.
        grows: the derivatives of height and width with respect to y2 and x2.
        scale: pixels for each unit of the RoI.
        shift: subtracted from scaled coordinates.
    """
    moves = torch.zeros(4, 2, len(down), len(across), dtype=torch.float64)
    places = torch.zeros_like(moves[0])
    for axis, at in enumerate((down, across)):
        low = 1 - axis  # the number of y1 or x1
        places[axis] = roi[low] * scale - shift + sizes[axis] * at
        moves[low, axis], moves[low + 2, axis] = scale - grows[axis] * at, grows[axis] * at
    return _Samples(places, moves, torch.zeros_like(moves))


def _rotated(
    roi: list[float],
    down: Any,
    across: Any,
    sizes: list[float],
    grows: list[float],
    scale: float,
    shift: float,
    direction: float,
    v: Any,
) -> _Samples:
    """The samples of a RoI cx, cy, w, h, angle; `direction` is -1 if positive angles are clockwise. See `_upright`."""
    centre_x, centre_y, _, _, angle = roi
    cos, sin = math.cos(direction * angle), math.sin(direction * angle)
    moves = torch.zeros(5, 2, len(down), len(across), dtype=torch.float64)
    turns, ones = torch.zeros_like(moves), torch.ones_like(moves[0, 0])

    def turned(right: Any, below: Any) -> Any:
        """A vector, given along the RoI's axes, as (y, x) on the map."""
        return torch.stack([below * cos - right * sin, right * cos + below * sin])

    def quarter(vector: Any) -> Any:
        """The derivative, with respect to the angle, of a vector (y, x) that turns with the RoI."""
        return direction * torch.stack([-vector[1], vector[0]])

    arms = turned(sizes[1] * (across - 0.5) * ones, sizes[0] * (down - 0.5) * ones)
    places = arms + torch.stack([(centre_y * scale - shift) * ones, (centre_x * scale - shift) * ones])
    moves[0, 1], moves[1, 0] = scale, scale
    moves[2] = turned(grows[1] * (across - 0.5) * ones, 0 * ones)
    moves[3] = turned(0 * ones, grows[0] * (down - 0.5) * ones)
    moves[4] = quarter(arms)
    turns[2], turns[3] = v[4] * quarter(moves[2]), v[4] * quarter(moves[3])
    turns[4] = v[2] * quarter(moves[2]) + v[3] * quarter(moves[3]) + v[4] * quarter(moves[4])
    return _Samples(places, moves, turns)


class _Cells(NamedTuple):
    """The two pixels around each coordinate on an axis: their numbers, their weights and the weights' slopes."""

    pixels: tuple[Any, Any]
    weights: tuple[Any, Any]
    slopes: tuple[Any, Any]


def _cells(places: Any, length: int) -> _Cells:
    near = places.clamp(0, length - 1)
    low = near.floor()
    slope = ((places >= 0) & (places < length - 1)).double()
    pixels = low.long(), (low + 1).clamp(max=length - 1).long()
    return _Cells(pixels, (1 - (near - low), near - low), (-slope, slope))


def _add_up(samples: _Samples, v: Any, dy: Any, x: Any, by_x: Any, counts: list[int]) -> tuple[Any, Any]:
    """A RoI's derivatives by dy [C, P, Q] and by its numbers [n]; adds the derivative by x to by_x [C, H, W]."""
    channels, height, width = x.shape
    (y_at, x_at), moves = samples.places, samples.moves
    rows, columns = _cells(y_at, height), _cells(x_at, width)
    is_on_map = (y_at >= -1) & (y_at <= height) & (x_at >= -1) & (x_at <= width)
    share = is_on_map.double() / math.prod(counts)
    # Sums, since the bits of matrix products depend on the number of threads.
    down, across = (v.reshape(-1, 1, 1, 1) * moves).sum(0)
    by_dy, by_roi = torch.zeros_like(dy), torch.zeros_like(v)
    step = max(_AT_ONCE // share.numel(), 1)
    for i in range(0, channels, step):
        part = slice(i, i + step)
        flat, by_flat = x[part].flatten(1), by_x[part].flatten(1)
        each = dy[part].repeat_interleave(counts[0], 1).repeat_interleave(counts[1], 2)  # the bin's dy of each sample
        for j in range(2):
            for k in range(2):
                by_y, by_x_axis = rows.slopes[j] * columns.weights[k], rows.weights[j] * columns.slopes[k]
                change = share * (by_y * down + by_x_axis * across)
                index = (rows.pixels[j] * width + columns.pixels[k]).flatten()
                pixels = flat[:, index].reshape(each.shape)
                by_dy[part] += (
                    (pixels * change).unflatten(2, (-1, counts[1])).sum(3).unflatten(1, (-1, counts[0])).sum(2)
                )
                by_flat.scatter_add_(1, index.expand(len(flat), -1), (each * change).flatten(1))
                total = share * (each * pixels).sum(0)
                both = rows.slopes[j] * columns.slopes[k]
                terms = both * (down * moves[:, 1] + across * moves[:, 0])
                terms += by_y * samples.turns[:, 0] + by_x_axis * samples.turns[:, 1]
                by_roi += (total * terms).sum((1, 2))
    return by_dy, by_roi
