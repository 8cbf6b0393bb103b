# SPDX-License-Identifier: MIT
"""Multi-scale deformable attention and its gradient, point by point.

Source: Zhu et al. 2020, Deformable DETR (arXiv 2010.04159), equation 3; `torch.nn.functional.grid_sample` with padding_mode
"zeros" and align_corners False, as the paper's `ms_deform_attn_core_pytorch` samples the levels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Level(NamedTuple):
    """A map among the pixels of all levels."""

    height: int
    width: int
    start: int


class Corner(NamedTuple):
    """A pixel that a sample reads.

    pixel: its number among the pixels of all levels.
    weight: its weight.
    along_x, along_y: the derivatives of its weight by the sample's coordinates on the map.
    """

    pixel: int
    weight: float
    along_x: float
    along_y: float


def ms_deform_attn(
    value: Array,
    spatial_shapes: Integers,
    level_start_index: Integers | None,
    sampling_locations: Array,
    attention_weights: Array,
) -> Array:
    """The sums of weighted samples [N, Q, M*D].

    Raises:
        ValueError: a level does not lie in the pixels of value, or the levels do not fill them.
    """
    levels = levels_of(value, spatial_shapes, level_start_index)
    images, _, heads, channels = value.shape
    y = np.zeros((images, sampling_locations.shape[1], heads, channels))
    with np.errstate(all="ignore"):
        for n, q, m, level, p in np.ndindex(attention_weights.shape):
            sample = np.zeros(channels)
            for corner in corners(sampling_locations[n, q, m, level, p], levels[level]):
                sample += corner.weight * value[n, corner.pixel, m]
            y[n, q, m] += attention_weights[n, q, m, level, p] * sample
    return y.reshape(*y.shape[:2], heads * channels)


def ms_deform_attn_grad(
    dy: Array,
    value: Array,
    spatial_shapes: Integers,
    level_start_index: Integers | None,
    sampling_locations: Array,
    attention_weights: Array,
    *,
    outputs: Sequence[str] = ("dvalue", "dlocations", "dweights"),
) -> tuple[Array | None, ...]:
    """The gradients of `sum(dy * ms_deform_attn(value, ...))` by value, the stored locations and the weights.

    Raises:
        ValueError: as `ms_deform_attn`.
    """
    levels = levels_of(value, spatial_shapes, level_start_index)
    images, _, heads, channels = value.shape
    gradients = dy.reshape(images, dy.shape[1], heads, channels)
    dvalue, dlocations = np.zeros(value.shape), np.zeros(sampling_locations.shape)
    dweights = np.zeros(attention_weights.shape)
    with np.errstate(all="ignore"):
        for n, q, m, level, p in np.ndindex(attention_weights.shape):
            g, weight, size = gradients[n, q, m], attention_weights[n, q, m, level, p], levels[level]
            sample, along_x, along_y = np.zeros((3, channels))
            read = list(corners(sampling_locations[n, q, m, level, p], size))
            for corner in read:
                pixel = value[n, corner.pixel, m]
                sample += corner.weight * pixel
                along_x += corner.along_x * pixel
                along_y += corner.along_y * pixel
                dvalue[n, corner.pixel, m] += weight * corner.weight * g
            dweights[n, q, m, level, p] = (g * sample).sum()
            if read:
                slopes = size.width * (g * along_x).sum(), size.height * (g * along_y).sum()
                dlocations[n, q, m, level, p] = weight * np.array(slopes)
    results = {"dvalue": dvalue, "dlocations": dlocations, "dweights": dweights}
    return tuple(result if name in outputs else None for name, result in results.items())


def levels_of(value: Array, spatial_shapes: Integers, level_start_index: Integers | None) -> list[Level]:
    """The levels.

    Raises:
        ValueError: a height or a width is below 1, a level does not lie in the pixels of value, the levels have more pixels
            than value, or they do not fill it where there is no level_start_index.
    """
    pixels, end, levels = value.shape[1], 0, []
    for i, (height, width) in enumerate(spatial_shapes.tolist()):
        start = end if level_start_index is None else int(level_start_index[i])
        if min(height, width) < 1:
            raise ValueError(f"spatial_shapes[{i}] = {[height, width]}: must be >= 1")
        end = start + height * width
        if start < 0 or end > pixels:
            raise ValueError(f"spatial_shapes[{i}] = {[height, width]} from pixel {start}: must lie in {pixels} pixels")
        levels.append(Level(height, width, start))
    if sum(level.height * level.width for level in levels) > pixels:
        raise ValueError(f"spatial_shapes = {spatial_shapes.tolist()}: all levels must have at most {pixels} pixels")
    if level_start_index is None and end != pixels:
        raise ValueError(f"spatial_shapes has {end} pixels: must be {pixels}, those of value")
    return levels


def coordinate(fraction: float, length: int) -> float:
    """The coordinate on a map of `length` pixels, in which pixel i is at i, of a fraction of its size."""
    return fraction * length - 0.5


def taps(at: float) -> list[tuple[int, float, float]]:
    """The two pixels around a finite coordinate, with their weights and the weights' derivatives."""
    first = math.floor(at)
    return [(first, first + 1 - at, -1.0), (first + 1, at - first, 1.0)]


def corners(location: Any, level: Level) -> Iterator[Corner]:
    """The pixels on the map that a sample reads; none if the point is off the map."""
    x, y = coordinate(float(location[0]), level.width), coordinate(float(location[1]), level.height)
    if not (math.isfinite(x) and math.isfinite(y)):
        return
    for (row, of_row, down), (column, of_column, right) in itertools.product(taps(y), taps(x)):
        if 0 <= row < level.height and 0 <= column < level.width:
            pixel = level.start + row * level.width + column
            yield Corner(pixel, of_row * of_column, of_row * right, down * of_column)
