"""Samples as matrices: what each bin of a region takes of each pixel along an axis, [R, P, L]."""

from __future__ import annotations

from typing import Literal

from onnx_models.portable.graph import Value, arange, zeros
from onnx_models.portable.regions import Regions
from onnx_models.portable.sampling import Samples

Fill = Literal["scatter", "compare"]
"""How a table is filled: by ScatterElements, or by comparing each tap with each pixel, R P K T L numbers in between."""


def axis_mean_weights(samples: Samples, fill: Fill) -> Value:
    """The mean over a bin's samples: its row times a column of pixels is the bin's value."""
    return _filled(samples, samples.weights * _share(samples).unsqueeze(3), fill)


def axis_derivatives(samples: Samples, fill: Fill) -> tuple[Value, Value] | None:
    """The derivatives of `axis_mean_weights` by the region's two stored coordinates; None where there are none."""
    if samples.weight_derivatives is None or samples.coordinate_derivatives is None:
        return None
    share, slope = _share(samples), samples.weight_derivatives
    first, second = (
        _filled(samples, slope * (share * move).unsqueeze(3), fill) for move in samples.coordinate_derivatives
    )
    return first, second


def mean_weights(regions: Regions, fill: Fill) -> tuple[Value, Value]:
    """`axis_mean_weights` along y and along x, in the type of sums."""
    y, x = (axis_mean_weights(samples, fill).cast(regions.sums) for samples in (regions.y, regions.x))
    return y, x


def mean_weight_derivatives(regions: Regions, fill: Fill) -> tuple[tuple[Value, Value], tuple[Value, Value]] | None:
    """`axis_derivatives` along y and along x, in the type of sums."""
    y, x = axis_derivatives(regions.y, fill), axis_derivatives(regions.x, fill)
    if y is None or x is None:
        return None
    return (y[0].cast(regions.sums), y[1].cast(regions.sums)), (x[0].cast(regions.sums), x[1].cast(regions.sums))


def inside(samples: Samples) -> Value:
    """The part of a bin's samples that is on the map, [R, P]."""
    return _share(samples).sum(2)


def window(samples: Samples, *axes: int) -> tuple[Value, Value]:
    """The first pixel that samples read and the one after the last, int64, over these axes of [R, P, K, T].

    One pixel where they read none.
    """
    read = samples.inside.unsqueeze(3)
    low = read.where(samples.pixels, samples.length - 1).min(*axes)
    high = read.where(samples.pixels, 0).max(*axes)
    return low.at_most(high), high + 1


def _share(samples: Samples) -> Value:
    return samples.inside.cast(samples.per_bin.kind) / samples.per_bin


def _filled(samples: Samples, values: Value, fill: Fill) -> Value:
    """The sum of `values` by pixel."""
    pixels = samples.pixels
    regions, bins, listed = (pixels.length(axis) for axis in range(3))
    shape = regions, bins, listed * samples.taps
    flat_pixels, flat_values = pixels.reshape(*shape), values.reshape(*shape)
    if fill == "scatter":
        empty = zeros(values.kind, regions, bins, samples.length)
        inputs = [empty, flat_pixels, flat_values]
        return values.graph.op("ScatterElements", inputs, values.kind, axis=2, reduction="add")
    matches = flat_pixels.unsqueeze(3).equals(arange(samples.length))
    return matches.where(flat_values.unsqueeze(3), 0.0).sum(2)
