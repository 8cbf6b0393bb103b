"""Weight matrices: the weight of each pixel in each bin of a region along an axis, [R, P, L]."""

from __future__ import annotations

from onnx_models.portable.at_once import add_outside
from onnx_models.portable.graph import Value, zeros
from onnx_models.portable.regions import Regions
from onnx_models.portable.sampling import Samples


def axis_mean_weights(samples: Samples) -> Value:
    """Return the weights of the mean over a bin's samples: a row times the pixels is the bin's value."""
    return _filled(samples, samples.weights * _sample_weight(samples).unsqueeze(3))


def axis_derivatives(samples: Samples) -> tuple[Value, Value] | None:
    """Return the derivatives of `axis_mean_weights` by the region's two stored coordinates; None for nearest pixels."""
    if samples.weight_derivatives is None or samples.coordinate_derivatives is None:
        return None
    sample_weight, by_coordinate = _sample_weight(samples), samples.weight_derivatives
    first, second = (
        _filled(samples, by_coordinate * (sample_weight * step).unsqueeze(3)) for step in samples.coordinate_derivatives
    )
    return first, second


def mean_weights(regions: Regions) -> tuple[Value, Value]:
    """Return `axis_mean_weights` along y and along x, in the type of sums."""
    y, x = (axis_mean_weights(samples).cast(regions.sums) for samples in (regions.y, regions.x))
    return y, x


def mean_weight_derivatives(regions: Regions) -> tuple[tuple[Value, Value], tuple[Value, Value]] | None:
    """Return `axis_derivatives` along y and along x, in the type of sums."""
    y, x = axis_derivatives(regions.y), axis_derivatives(regions.x)
    if y is None or x is None:
        return None
    return (y[0].cast(regions.sums), y[1].cast(regions.sums)), (x[0].cast(regions.sums), x[1].cast(regions.sums))


def with_outside(regions: Regions, y: Value, outside: Value | None) -> Value:
    """Return averages [R, C, PH, PW] whose samples off the map are `outside`, given those that have 0 there."""
    if outside is None:
        return y
    return add_outside(y, inside(regions.y).unsqueeze(2) * inside(regions.x).unsqueeze(1), outside)


def inside(samples: Samples) -> Value:
    """Return the fraction of a bin's samples that is on the map, [R, P]."""
    return _sample_weight(samples).sum(2)


def window(samples: Samples, *axes: int) -> tuple[Value, Value]:
    """Return the first pixel that samples read and the one after the last, int64, over these axes of [R, P, K, T].

    It is one pixel if they read none.
    """
    read = samples.inside.unsqueeze(3)
    low = read.where(samples.pixels, samples.length - 1).min(*axes)
    high = read.where(samples.pixels, 0).max(*axes)
    return low.at_most(high), high + 1


def _sample_weight(samples: Samples) -> Value:
    return samples.inside.cast(samples.per_bin.kind) / samples.per_bin


def _filled(samples: Samples, values: Value) -> Value:
    """Sum `values` by pixel."""
    pixels = samples.pixels
    regions, bins, listed = (pixels.length(axis) for axis in range(3))
    shape = regions, bins, listed * samples.taps
    flat_pixels, flat_values = pixels.reshape(*shape), values.reshape(*shape)
    empty = zeros(values.kind, regions, bins, samples.length)
    return empty.op("ScatterElements", flat_pixels, flat_values, axis=2, reduction="add")
