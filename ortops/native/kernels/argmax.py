# SPDX-License-Identifier: MIT
"""Each bin's argmax, for both kinds of maximum in `maximum.py`, and the gradients that depend on it.

Weights and products are float64, so that rounding to float32 causes no ties. Single channels and panels compute and compare
the same float64s in the same order, so both give a channel the same argmax.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ortops.compiler.compile import compiled, inline
from ortops.compiler.scalar import cast_like, compute_pointer, element_pointer, lane_count, load, offset, store
from ortops.compiler.simd import add, multiply, select_new_max, widen
from ortops.native.elements import Doubles, Source, Sums, Wide
from ortops.native.kernels.layout import Tables
from ortops.native.kernels.tables import OFF_MAP, Candidates, candidates_in

WHOLE_SAMPLE = 4
"""The value of `Argmax.corner` if the maximum is an interpolated sample; corners are 0 to 3."""


class Argmax(NamedTuple):
    """A bin's maximum: its row candidate, column candidate and corner. The corner is -1 if the maximum is off the map."""

    i: int
    j: int
    corner: int


@compiled
def _place_bits(columns: Candidates) -> int:
    """The number of bits that hold a column candidate's position in its bin."""
    bits = 0
    for q in range(columns.bins):
        while (1 << bits) < columns.start[q + 1] - columns.start[q]:
            bits += 1
    return bits


@inline
def _find(
    takes_corners: bool,
    source: Any,
    stride: int,
    rows: Candidates,
    columns: Candidates,
    p: int,
    q: int,
    bits: int,
    codes: Any,
) -> None:
    """Store each channel's argmax of bin (p, q) as a code, which `_argmax_of` decodes.

    A code is an integer that holds the positions of both candidates and the corner, or -1 if the maximum is off the map.
    Any practical number of candidate pairs gives codes that float64 represents exactly.
    """
    top, left = rows.start[p], columns.start[q]
    is_empty, zeros = top == rows.start[p + 1] or left == columns.start[q + 1], cast_like(codes, 0.0)
    # The first candidate, unless another is larger than -inf.
    first = -1.0 if is_empty else (0.0 if takes_corners else float(WHOLE_SAMPLE))
    best, best_codes = cast_like(codes, -np.inf), cast_like(codes, first)
    for i in range(top, rows.start[p + 1]):
        y, fy = rows.region[i], rows.weight[i]
        has_below = y % 2 == 1
        for j in range(left, columns.start[q + 1]):
            x, fx = columns.region[j], columns.weight[j]
            if y == OFF_MAP or x == OFF_MAP:
                best_codes = select_new_max(zeros, best, cast_like(codes, -1.0), best_codes)
                best = select_new_max(zeros, best, zeros, best)
                continue
            has_beside = x % 2 == 1
            at = y // 2 * stride + x // 2
            code = ((i - top) << bits | (j - left)) << 3
            a = multiply((1.0 - fy) * (1.0 - fx), widen(load(source, at)))
            b, c, d = zeros, zeros, zeros
            if has_beside:
                b = multiply((1.0 - fy) * fx, widen(load(source, at + 1)))
            if has_below:
                c = multiply(fy * (1.0 - fx), widen(load(source, at + stride)))
            if has_below and has_beside:
                d = multiply(fy * fx, widen(load(source, at + stride + 1)))
            if takes_corners:
                for corner in range(4):
                    value = (a if corner == 0 else b) if corner < 2 else (c if corner == 2 else d)
                    best_codes = select_new_max(value, best, cast_like(codes, float(code + corner)), best_codes)
                    best = select_new_max(value, best, value, best)
            else:
                value = add(add(add(a, b), c), d)
                best_codes = select_new_max(value, best, cast_like(codes, float(code + WHOLE_SAMPLE)), best_codes)
                best = select_new_max(value, best, value, best)
    store(codes, 0, best_codes)


@inline
def _argmax_of(code: float, bits: int, rows: Candidates, columns: Candidates, p: int, q: int) -> Argmax:
    number = int(code)
    if number < 0:
        return Argmax(-1, -1, -1)
    place = number >> 3
    return Argmax(rows.start[p] + (place >> bits), columns.start[q] + (place & ((1 << bits) - 1)), number & 7)


@compiled
def add_to_max_corner(
    source: Source, gradient: Sums, tables: Tables, top: int, bottom: int, codes: Wide, dx: Sums, stride: int
) -> None:
    """Add each channel's gradient [PH, PW] to each bin's argmax, if it lies in the rows top:bottom of dx [H, W].

    Rows of the source and of dx are `stride` pixels apart; `codes` [PW] is a buffer.
    """
    _add_to_dx(True, source, gradient, tables, top, bottom, codes, dx, stride)


@compiled
def add_to_max_sample(
    source: Source, gradient: Sums, tables: Tables, top: int, bottom: int, codes: Wide, dx: Sums, stride: int
) -> None:
    """As `add_to_max_corner`, but add to the sample's four pixels."""
    _add_to_dx(False, source, gradient, tables, top, bottom, codes, dx, stride)


@inline
def _add_to_dx(
    takes_corners: bool,
    source: Any,
    gradient: Any,
    tables: Tables,
    top: int,
    bottom: int,
    codes: Any,
    dx: Any,
    stride: int,
) -> None:
    rows, columns, lanes = candidates_in(tables.rows), candidates_in(tables.columns), lane_count(dx)
    to, numbers, gradients = compute_pointer(dx, dx), compute_pointer(codes, codes), compute_pointer(gradient, dx)
    bits = _place_bits(columns)
    for p in range(rows.bins):
        bins = columns.bins if _reads(rows, p, top, bottom) else 0
        for q in range(bins):
            _find(takes_corners, source, stride, rows, columns, p, q, bits, offset(codes, q))
        for lane in range(lanes):
            for q in range(bins):
                i, j, corner = _argmax_of(numbers[q * lanes + lane], bits, rows, columns, p, q)
                if corner < 0:
                    continue
                g = float(gradients[(p * bins + q) * lanes + lane])
                fy, fx = rows.weight[i], columns.weight[j]
                has_below, has_beside = rows.region[i] % 2 == 1, columns.region[j] % 2 == 1
                for other in range(1 if takes_corners else 4):
                    # No branch on the corner: the processor would mispredict it.
                    which = corner if takes_corners else other
                    below, beside = which // 2, which % 2
                    wy, wx = fy if below else 1.0 - fy, fx if beside else 1.0 - fx
                    row = rows.region[i] // 2 + below
                    if (has_below >= below) & (has_beside >= beside) & (top <= row) & (row < bottom):
                        at = (row * stride + columns.region[j] // 2 + beside) * lanes + lane
                        to[at] = cast_like(to, to[at] + g * wy * wx)


@compiled
def _reads(table: Candidates, p: int, top: int, bottom: int) -> bool:
    """Whether a bin reads a pixel in top:bottom."""
    for n in range(table.start[p], table.start[p + 1]):
        where = table.region[n]
        if where != OFF_MAP and where // 2 < bottom and (where + 1) // 2 >= top:
            return True
    return False


@compiled
def add_drois_of_max_corner(
    source: Source, stride: int, gradient: Sums, tables: Tables, _line: Sums, codes: Wide, drois: Doubles
) -> None:
    """Add the derivatives of all maxima, times their gradients, to drois [4], channel by channel.

    codes [PH, PW] is a buffer.
    """
    _add_drois(True, source, stride, gradient, tables, codes, drois)


@compiled
def add_drois_of_max_sample(
    source: Source, stride: int, gradient: Sums, tables: Tables, _line: Sums, codes: Wide, drois: Doubles
) -> None:
    """As `add_drois_of_max_corner`."""
    _add_drois(False, source, stride, gradient, tables, codes, drois)


@inline
def _add_drois(
    takes_corners: bool, source: Any, stride: int, gradient: Any, tables: Tables, codes: Any, drois: Any
) -> None:
    rows, columns, lanes = candidates_in(tables.rows), candidates_in(tables.columns), lane_count(codes)
    gradients, numbers = compute_pointer(gradient, gradient), compute_pointer(codes, codes)
    pixels, bits = element_pointer(source), _place_bits(columns)
    for p in range(rows.bins):
        for q in range(columns.bins):
            at = p * columns.bins + q
            _find(takes_corners, source, stride, rows, columns, p, q, bits, offset(codes, at))
    for lane in range(lanes):
        x1, y1, x2, y2 = drois[0], drois[1], drois[2], drois[3]
        for p in range(rows.bins):
            for q in range(columns.bins):
                at = (p * columns.bins + q) * lanes + lane
                i, j, corner = _argmax_of(numbers[at], bits, rows, columns, p, q)
                if corner < 0:
                    continue
                g = float(gradients[at])
                fy, fx = rows.weight[i], columns.weight[j]
                has_below, has_beside = rows.region[i] % 2 == 1, columns.region[j] % 2 == 1
                for other in range(1 if takes_corners else 4):
                    which = corner if takes_corners else other
                    below, beside = which // 2, which % 2
                    if (has_below >= below) & (has_beside >= beside):
                        wy, wx = fy if below else 1.0 - fy, fx if beside else 1.0 - fx
                        pixel = (rows.region[i] // 2 + below) * stride + columns.region[j] // 2 + beside
                        value = g * float(load(pixels, pixel * lanes + lane))
                        # `value` times the derivatives of the pixel's weight.
                        along_x, along_y = value * (wy if beside else -wy), value * (wx if below else -wx)
                        x1, y1 = x1 + along_x * columns.d_start[j], y1 + along_y * rows.d_start[i]
                        x2, y2 = x2 + along_x * columns.d_end[j], y2 + along_y * rows.d_end[i]
        drois[0], drois[1], drois[2], drois[3] = x1, y1, x2, y2
