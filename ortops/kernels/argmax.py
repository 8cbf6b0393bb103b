"""The argmax of a bin, in the two meanings of `maximum.py`, and what its gradient adds to.

Weights and products are float64, so that rounding to float32 causes no ties. The argmax of one channel and those of a panel
of LANES interleaved channels compute and compare the same float64s in the same order, so a channel has the same in either.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled, inline, noinline
from ortops.kernels.jit.scalar import cast_like, load, offset
from ortops.kernels.jit.simd import add_lanes, load_lanes, scale_lanes, select_new_max, splat, store_lanes, widen
from ortops.kernels.layout import Doubles, Slot, Stored, Values
from ortops.kernels.tables import OFF_MAP, Candidates, candidates_in

WHOLE_SAMPLE = 4
"""In place of a corner's number (0 to 3) if the maximum is an interpolated sample."""

PLACE_BITS = 21
"""The bits of a candidate's place in its bin. A panel has at most 2**18 pixels, and up to three candidates for each of them
along an axis; so a code, which has two places and a corner, is an exact float64.
"""


class Argmax(NamedTuple):
    """The row candidate, the column candidate and the corner of a bin's maximum; the corner is -1 if it is off the map."""

    i: int
    j: int
    corner: int


@compiled
def is_new_max(value: float, best: float) -> bool:
    """Whether value replaces best in an argmax: the first of equals and the first NaN stay, as in numpy.argmax."""
    return value > best or (value != value and best == best)


@compiled
def _pixel_or_zero(x: Any, stride: int, y: int, at: int) -> float:
    """A pixel as a float64; 0 if y or at is -1, where the weight is 0, too."""
    return float(load(x, y * stride + at)) if y >= 0 and at >= 0 else 0.0


@compiled
def _pixels_of(where: int) -> tuple[int, int]:
    """The two pixels of a candidate; -1 for a pixel that is off the map or not read."""
    if where == OFF_MAP:
        return -1, -1
    return where // 2, where // 2 + 1 if where % 2 == 1 else -1


@noinline
def _argmax(x: Any, width: int, rows: Candidates, columns: Candidates, p: int, q: int, takes_corners: bool) -> Argmax:
    """The argmax of bin (p, q) in one channel."""
    best, best_i, best_j, best_corner = -np.inf, -1, -1, -1
    for i in range(rows.start[p], rows.start[p + 1]):
        fy = rows.weight[i]
        top, bottom = _pixels_of(rows.region[i])
        for j in range(columns.start[q], columns.start[q + 1]):
            fx = columns.weight[j]
            left, right = _pixels_of(columns.region[j])
            if top < 0 or left < 0:
                if best_i < 0 or is_new_max(0.0, best):
                    best, best_i, best_j, best_corner = 0.0, i, j, -1
                continue
            a = (1.0 - fy) * (1.0 - fx) * _pixel_or_zero(x, width, top, left)
            b = (1.0 - fy) * fx * _pixel_or_zero(x, width, top, right)
            c = fy * (1.0 - fx) * _pixel_or_zero(x, width, bottom, left)
            d = fy * fx * _pixel_or_zero(x, width, bottom, right)
            if not takes_corners:
                value = a + b + c + d
                if best_i < 0 or is_new_max(value, best):
                    best, best_i, best_j, best_corner = value, i, j, WHOLE_SAMPLE
                continue
            for corner in range(4):
                value = (a if corner == 0 else b) if corner < 2 else (c if corner == 2 else d)
                if best_i < 0 or is_new_max(value, best):
                    best, best_i, best_j, best_corner = value, i, j, corner
    return Argmax(best_i, best_j, best_corner)


@compiled
def argmax_of_panel(panel: Values, stride: int, rows: Slot, columns: Slot, takes_corners: bool, codes: Doubles) -> None:
    """Store the argmax of each bin and channel of a panel as a code in codes [PH, PW, LANES], from tables of candidates.

    A code is an integer, or -1 if the maximum is off the map. `_argmax_of` has its meaning.
    """
    _argmax_panel(panel, stride, candidates_in(rows), candidates_in(columns), takes_corners, codes)


@noinline
def _argmax_panel(
    panel: Any, stride: int, rows: Candidates, columns: Candidates, takes_corners: bool, codes: Any
) -> None:
    zeros = splat(codes, 0.0)
    for p in range(rows.bins):
        for q in range(columns.bins):
            top, left = rows.start[p], columns.start[q]
            is_empty = top == rows.start[p + 1] or left == columns.start[q + 1]
            # The first candidate, unless another is larger than -inf.
            first = -1.0 if is_empty else (0.0 if takes_corners else float(WHOLE_SAMPLE))
            best, best_codes = splat(codes, -np.inf), splat(codes, first)
            for i in range(top, rows.start[p + 1]):
                y, fy = rows.region[i], rows.weight[i]
                has_below = y % 2 == 1
                for j in range(left, columns.start[q + 1]):
                    x, fx = columns.region[j], columns.weight[j]
                    if y == OFF_MAP or x == OFF_MAP:
                        best_codes = select_new_max(zeros, best, splat(codes, -1.0), best_codes)
                        best = select_new_max(zeros, best, zeros, best)
                        continue
                    has_beside = x % 2 == 1
                    at = y // 2 * stride + x // 2 * LANES
                    code = ((i - top) << PLACE_BITS | (j - left)) << 3
                    a = scale_lanes((1.0 - fy) * (1.0 - fx), widen(load_lanes(panel, at)))
                    b, c, d = zeros, zeros, zeros
                    if has_beside:
                        b = scale_lanes((1.0 - fy) * fx, widen(load_lanes(panel, at + LANES)))
                    if has_below:
                        c = scale_lanes(fy * (1.0 - fx), widen(load_lanes(panel, at + stride)))
                    if has_below and has_beside:
                        d = scale_lanes(fy * fx, widen(load_lanes(panel, at + stride + LANES)))
                    if takes_corners:
                        for corner in range(4):
                            value = (a if corner == 0 else b) if corner < 2 else (c if corner == 2 else d)
                            best_codes = select_new_max(value, best, splat(codes, float(code + corner)), best_codes)
                            best = select_new_max(value, best, value, best)
                    else:
                        value = add_lanes(add_lanes(add_lanes(a, b), c), d)
                        best_codes = select_new_max(value, best, splat(codes, float(code + WHOLE_SAMPLE)), best_codes)
                        best = select_new_max(value, best, value, best)
            store_lanes(codes, (p * columns.bins + q) * LANES, best_codes)


@inline
def _argmax_of(code: float, rows: Candidates, columns: Candidates, p: int, q: int) -> Argmax:
    """The argmax of bin (p, q) that a code says."""
    bits = int(code)
    if bits < 0:
        return Argmax(-1, -1, -1)
    place = bits >> 3
    j = place & ((1 << PLACE_BITS) - 1)
    return Argmax(rows.start[p] + (place >> PLACE_BITS), columns.start[q] + j, bits & 7)


@compiled
def _argmax_of_bin(
    x: Any,
    width: int,
    rows: Candidates,
    columns: Candidates,
    p: int,
    q: int,
    takes_corners: bool,
    codes: Any,
    has_codes: bool,
) -> Argmax:
    """The argmax of bin (p, q) in one channel by its code, else by finding it."""
    if has_codes:
        return _argmax_of(codes[(p * columns.bins + q) * LANES], rows, columns, p, q)
    found: Argmax = _argmax(x, width, rows, columns, p, q, takes_corners)
    return found


@compiled
def add_to_dx(
    planes: Stored,
    plane: int,
    lanes: int,
    dy: Stored,
    bins: int,
    width: int,
    row_candidates: Slot,
    column_candidates: Slot,
    takes_corners: bool,
    codes: Doubles,
    has_codes: bool,
    top: int,
    bottom: int,
    dx: Values,
    channel: int,
    pixel: int,
) -> None:
    """Add the gradient of some channels to the argmax of each bin, in the rows top:bottom of dx.

    Args:
        planes, plane: a pointer to X's first channel, and the stride between channels.
        lanes: the number of channels.
        dy, bins: a pointer to the gradient of the first channel's first bin, and the stride between channels.
        codes, has_codes: the codes; without codes each argmax is found first.
        dx, channel, pixel: a pointer to the first channel's first pixel, and the strides between channels and pixels.
    """
    rows, columns = candidates_in(row_candidates), candidates_in(column_candidates)
    for p in range(rows.bins):
        for c in range(lanes):
            x, to, gradient, lane_codes = (
                offset(planes, c * plane),
                offset(dx, c * channel),
                offset(dy, c * bins + p * columns.bins),
                offset(codes, c),
            )
            for q in range(columns.bins):
                i, j, corner = _argmax_of_bin(x, width, rows, columns, p, q, takes_corners, lane_codes, has_codes)
                if corner < 0:
                    continue
                g = float(load(gradient, q))
                fy, fx = rows.weight[i], columns.weight[j]
                has_below, has_beside = rows.region[i] % 2 == 1, columns.region[j] % 2 == 1
                row = rows.region[i] // 2
                at = (row * width + columns.region[j] // 2) * pixel
                if corner == WHOLE_SAMPLE:
                    if top <= row < bottom:
                        to[at] = cast_like(to, to[at] + g * (1.0 - fy) * (1.0 - fx))
                        if has_beside:
                            to[at + pixel] = cast_like(to, to[at + pixel] + g * (1.0 - fy) * fx)
                    if has_below and top <= row + 1 < bottom:
                        at += width * pixel
                        to[at] = cast_like(to, to[at] + g * fy * (1.0 - fx))
                        if has_beside:
                            to[at + pixel] = cast_like(to, to[at + pixel] + g * fy * fx)
                    continue
                # Without branches on the corner, which would be mispredicted.
                below, beside = corner // 2, corner % 2
                wy, wx = fy if below else 1.0 - fy, fx if beside else 1.0 - fx
                row += below
                at += (below * width + beside) * pixel
                if (has_below >= below) & (has_beside >= beside) & (top <= row) & (row < bottom):
                    to[at] = cast_like(to, to[at] + g * wy * wx)


@compiled
def add_drois_of_panel(
    source: Values,
    stride: int,
    gradient: Values,
    rows: Slot,
    columns: Slot,
    takes_corners: float,
    _line: Values,
    codes: Doubles,
    drois: Doubles,
) -> None:
    """Add the derivatives of all maxima of a panel times their gradients, one channel after the other, to drois [4].

    codes [PH, PW, LANES] is a buffer.
    """
    y, x = candidates_in(rows), candidates_in(columns)
    _argmax_panel(source, stride, y, x, takes_corners != 0.0, codes)
    for lane in range(LANES):
        channel, sums = offset(source, lane), (drois[0], drois[1], drois[2], drois[3])
        for p in range(y.bins):
            for q in range(x.bins):
                at = (p * x.bins + q) * LANES + lane
                found = _argmax_of(codes[at], y, x, p, q)
                sums = _add_derivatives(channel, stride, LANES, y, x, found, float(gradient[at]), sums)
        drois[0], drois[1], drois[2], drois[3] = sums


@compiled
def add_drois_of_plane(
    source: Stored,
    stride: int,
    gradient: Values,
    rows: Slot,
    columns: Slot,
    takes_corners: float,
    _line: Values,
    _codes: Doubles,
    drois: Doubles,
) -> None:
    """`add_drois_of_panel` for one plane."""
    y, x = candidates_in(rows), candidates_in(columns)
    sums = drois[0], drois[1], drois[2], drois[3]
    for p in range(y.bins):
        for q in range(x.bins):
            found = _argmax(source, stride, y, x, p, q, takes_corners != 0.0)
            sums = _add_derivatives(source, stride, 1, y, x, found, float(gradient[p * x.bins + q]), sums)
    drois[0], drois[1], drois[2], drois[3] = sums


@inline
def _add_derivatives(
    x: Any, stride: int, pixel: int, rows: Candidates, columns: Candidates, found: Argmax, g: float, sums: Any
) -> Any:
    """Add the derivatives of a maximum, times its gradient g, to the four sums; pixels of X are `pixel` values apart."""
    i, j, corner = found
    if corner < 0:
        return sums
    fy, fx = rows.weight[i], columns.weight[j]
    has_below, has_beside = rows.region[i] % 2 == 1, columns.region[j] % 2 == 1
    at = rows.region[i] // 2 * stride + columns.region[j] // 2 * pixel
    near, far = (columns.d_start[j], rows.d_start[i]), (columns.d_end[j], rows.d_end[i])
    if corner == WHOLE_SAMPLE:
        sums = _added(sums, g * float(load(x, at)), fy - 1.0, fx - 1.0, near, far)
        if has_beside:
            sums = _added(sums, g * float(load(x, at + pixel)), 1.0 - fy, -fx, near, far)
        if has_below:
            sums = _added(sums, g * float(load(x, at + stride)), -fy, 1.0 - fx, near, far)
        if has_below and has_beside:
            sums = _added(sums, g * float(load(x, at + stride + pixel)), fy, fx, near, far)
        return sums
    below, beside = corner // 2, corner % 2
    wy, wx = fy if below else 1.0 - fy, fx if beside else 1.0 - fx
    if (has_below >= below) & (has_beside >= beside):
        value = g * float(load(x, at + below * stride + beside * pixel))
        sums = _added(sums, value, wy if beside else -wy, wx if below else -wx, near, far)
    return sums


@compiled
def _added(drois: Any, value: float, along_x: float, along_y: float, near: Any, far: Any) -> Any:
    """Add a pixel's terms to the derivatives: `value` times the derivatives of its weight."""
    x, y = value * along_x, value * along_y
    return drois[0] + x * near[0], drois[1] + y * near[1], drois[2] + x * far[0], drois[3] + y * far[1]
