# SPDX-License-Identifier: MIT
"""ONNX's GridSample, location by location."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

CUBIC = -0.75
"""The parameter of cubic interpolation, which the text leaves open: that of ONNX's evaluator and of PyTorch."""


CUBIC_MODES = ("cubic", "bicubic")
"""The names of cubic interpolation since opset 20 and at opset 16."""


class Rule(NamedTuple):
    """The attributes of a node."""

    mode: str
    padding: str
    align_corners: bool


class Tap(NamedTuple):
    """A pixel that a location reads along an axis, and its weight; None for a pixel off the map, which is 0."""

    pixel: int | None
    weight: float


def grid_sample(
    x: npt.NDArray[np.float64],
    grid: npt.NDArray[np.float64],
    *,
    align_corners: int,
    mode: str,
    padding_mode: str,
) -> npt.NDArray[np.float64]:
    """Interpolate a map at the locations of a grid.

    A location lists a number for each spatial axis of the map, the last axis first. Along an axis of L pixels, -1 and 1 are
    the centres of the first and the last pixel if `align_corners`, and else their outer edges. Where the text is silent or
    can be read in two ways, these rules hold:

    - Cubic interpolation has the parameter -0.75, as in ONNX's evaluator and PyTorch.
    - Halves are rounded to even by `nearest` at opset 16 too, whose text does not say it. They are rounded before padding:
      the evaluator and ONNX Runtime do so, and only a half beyond an outer edge shows it, where PyTorch pads first.
    - The text's example of reflection, -3.5 to 1.5 to 0.5 by borders -1 and 1, is about numbers of the grid. Its sentence
      about the indices -1 and 1 holds only with `align_corners`: else the border is the edge, and index -1 is index 0.
    - `border` moves each pixel that cubic interpolation reads, as in PyTorch and ONNX Runtime. The text can also be read as
      if it moved locations that are out of bounds, as in the evaluator. Within bounds, and in the other modes, both agree.
    - A pixel off the map with `zeros` is 0 by itself: a location near the edge fades to 0, as in all implementations.
    - The pixels off an axis of one pixel are that pixel with `reflection` about its centre, which would never end, as in
      PyTorch. Only cubic interpolation reads such pixels.
    - A coordinate that is NaN or infinite is off the map, with `border` for infinity as well. PyTorch gives 0 or NaN with
      `zeros`. For NaN with the other paddings, and for the reflection of infinity, there is no rule.

    Args:
        x: the map, [N, C, D1, ..., Dr], with at least one pixel along each spatial axis.
        grid: [N, D1_out, ..., Dr_out, r].
        align_corners: 0 or 1.
        mode: linear, nearest or cubic, or a name of opset 16, bilinear or bicubic.
        padding_mode: zeros, border or reflection.

    Returns:
        [N, C, D1_out, ..., Dr_out].

    Raises:
        ValueError: an image has no pixels.

    Source:
        ONNX GridSample-16, -20 and -22; for the rules above, `onnx.reference.ops.op_grid_sample` and
        `torch.nn.functional.grid_sample`, to which the text refers.
    """
    check_map(x)
    rule = Rule(mode, padding_mode, bool(align_corners))
    y = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for n, *place in np.ndindex(*grid.shape[:-1]):
        axes = taps_of(grid[(n, *place)].tolist(), x.shape[2:], rule)
        for c, channel in enumerate(x[n]):
            y[(n, c, *place)] = interpolated(channel, axes)
    return y


grid_sample_5d = grid_sample


def check_map(x: npt.NDArray[np.float64]) -> None:
    """Check that an image has pixels.

    Raises:
        ValueError: it has none.
    """
    if 0 in x.shape[2:]:
        raise ValueError(f"X has shape {list(x.shape)}: its spatial lengths must be >= 1")


def interpolated(channel: npt.NDArray[np.float64], axes: Sequence[Sequence[Tap]]) -> float:
    """The sum of the pixels that a location reads, times their weights along each axis."""
    total = 0.0
    for taps in itertools.product(*axes):
        pixel = tuple(tap.pixel for tap in taps if tap.pixel is not None)
        if len(pixel) == len(taps):
            total += math.prod(tap.weight for tap in taps) * float(channel[pixel])
    return total


def taps_of(location: Sequence[float], lengths: Sequence[int], rule: Rule) -> list[list[Tap]]:
    """The pixels that a location reads along each axis of the map, in the order of the map's axes."""
    return [taps_along(g, length, rule) for g, length in zip(reversed(location), lengths, strict=True)]


def taps_along(g: float, length: int, rule: Rule) -> list[Tap]:
    """The pixels that a number of the grid reads along an axis of `length` pixels."""
    c = place_of(g, length, rule)
    # Farther from the map all pixels are 0, and infinity and NaN have no cell.
    if not -2 <= c <= length + 1:
        return [Tap(None, 1.0)]
    low = math.floor(c)
    weights = weights_of(c - low, rule.mode)
    first = low - (len(weights) - 1) // 2
    return [Tap(pixel_at(first + k, length, rule), weight) for k, weight in enumerate(weights)]


def place_of(g: float, length: int, rule: Rule) -> float:
    """The coordinate in pixels that a number of the grid stands for, after rounding and padding."""
    c = coordinate(g, length, rule.align_corners)
    if rule.padding == "border" and rule.mode in CUBIC_MODES:
        # Each pixel is moved by itself. Farther from the map all of them are the same.
        return min(max(c, -2.0), length + 1.0)
    return padded(nearest(c) if rule.mode == "nearest" else c, length, rule)


def coordinate(g: float, length: int, align_corners: bool) -> float:
    """The coordinate in pixels: a pixel's centre has its index as coordinate."""
    if align_corners:
        return (g + 1) / 2 * (length - 1)
    return ((g + 1) * length - 1) / 2


def nearest(c: float) -> float:
    """The nearest whole number, halves to even."""
    return float(np.rint(c))


def bounds_of(length: int, align_corners: bool) -> tuple[float, float]:
    """The first and the last coordinate that is in bounds: centres of pixels, or their outer edges."""
    return (0.0, length - 1.0) if align_corners else (-0.5, length - 0.5)


def padded(c: float, length: int, rule: Rule) -> float:
    """A coordinate, moved into the bounds of the map by `border` and by `reflection`."""
    low, high = bounds_of(length, rule.align_corners)
    if rule.padding == "zeros" or low <= c <= high:
        return c
    if rule.padding == "border":
        return clamped(c, length)
    return reflected(c, low, high)


def clamped(c: float, length: int) -> float:
    """The nearest coordinate between the centres of the first and the last pixel; NaN for NaN."""
    return c if math.isnan(c) else min(max(c, 0.0), length - 1.0)


def reflected(c: float, low: float, high: float) -> float:
    """A coordinate reflected about both bounds until it lies between them; NaN if it is infinite."""
    if low == high:
        return low
    around = (c - low) % (2 * (high - low))
    return low + min(around, 2 * (high - low) - around)


def pixel_at(i: int, length: int, rule: Rule) -> int | None:
    """The pixel that stands for index `i`, which may be off the map; None for 0."""
    if 0 <= i < length:
        return i
    return None if rule.padding == "zeros" else int(padded(i, length, rule))


def weights_of(t: float, mode: str) -> tuple[float, ...]:
    """The weights of the pixels that a location reads at `t` between two pixels."""
    if mode == "nearest":
        return (1.0,)
    return cubic(t) if mode in CUBIC_MODES else linear(t)


def linear(t: float) -> tuple[float, float]:
    """The weights of the pixels at 0 and 1 at `t` between them."""
    return 1 - t, t


def cubic(t: float) -> tuple[float, float, float, float]:
    """The weights of the pixels at -1, 0, 1 and 2 at `t` between 0 and 1: Keys' cubic convolution."""
    return outer(1 + t), inner(t), inner(1 - t), outer(2 - t)


def inner(d: float) -> float:
    """The weight of a pixel at a distance of at most 1."""
    return ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1


def outer(d: float) -> float:
    """The weight of a pixel at a distance between 1 and 2."""
    return ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC
