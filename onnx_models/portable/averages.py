# SPDX-License-Identifier: MIT
"""The average over each bin, as two products for each region, Y = A_y X A_x^T, and its gradients.

A_y and A_x are the weight matrices of a region, with the weight of each pixel in each bin, [P, L]. There are two ways:

- `Loop` iterates over the regions, so that memory holds the values of one region, and reads only its part of the map.
- Without loops, the regions share one matrix along an axis, which has the pixels of all images as columns. Memory holds the
  products along one axis, [R, P, C, L].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onnx_models.portable.graph import Kind, Value, arange, concat, zeros
from onnx_models.portable.regions import Regions
from onnx_models.portable.samples import add_outside
from onnx_models.portable.sampling import Samples

ROIS_PER_PRODUCT = 32
"""Regions whose gradient is one product. Each product is added to a whole map, so few regions at a time are slow."""


def forward(regions: Regions, outside: Value | None, *, without_loops: bool) -> Value:
    """Return Y [R, C, PH, PW]. A sample off the map is `outside`, or 0 if that is None."""
    a_y, a_x = _mean_weights(regions)
    count, channels, bins_y, bins_x = regions.output_lengths
    if without_loops:
        rows = _along(regions, a_y, 2) @ a_x.transpose(0, 2, 1)
        y = rows.reshape(count, bins_y, channels, bins_x).transpose(0, 2, 1, 3)
    else:
        y = _each(regions, lambda part: part.rows_of(a_y) @ part.pixels @ part.columns_of(a_x).transpose(1, 0))
        y = y.reshape(*regions.output_lengths)
    if outside is None:
        return y
    on_map = regions.y.shares.sum(2).unsqueeze(2) * regions.x.shares.sum(2).unsqueeze(1)
    return add_outside(y, on_map.unsqueeze(1), outside)


def gradient(regions: Regions, dy: Value, *, without_loops: bool) -> Value:
    """Return dX [N, C, H, W] for dY [R, C, PH, PW]: for each image, the sum of A_y^T dY A_x over its regions."""
    a_y, a_x = _mean_weights(regions)
    images, channels, height, width = regions.map_lengths
    if without_loops:
        shared = _shared(regions, a_y)
        rows = _rows(regions, dy, 2) @ a_x
        dx = shared.transpose(1, 0) @ rows.reshape(shared.length(0), channels * width)
        return dx.reshape(images, height, channels, width).transpose(0, 2, 1, 3)

    def of_chunk(chunk: Value) -> Value:
        t = dy.gather(chunk).transpose(1, 0, 2, 3) @ a_x.gather(chunk)
        rows = chunk.length(0) * regions.y.bins
        left = a_y.gather(chunk).reshape(rows, height).transpose(1, 0)
        return left @ t.reshape(channels, rows, width)

    return sum_by_image(regions.batch_indices, regions.map_lengths, dy.kind, of_chunk, ROIS_PER_PRODUCT)


def roi_gradient(regions: Regions, dy: Value, *, without_loops: bool) -> Value:
    """Return the gradient for the regions' coordinates, [R, 4], for dY [R, C, PH, PW].

    The gradients for A_y and A_x are ``sum_c dY A_x X^T`` and ``sum_c dY^T A_y X``. They are multiplied by the derivatives
    of A_y and A_x by the coordinates.
    """
    a_y, a_x = _mean_weights(regions)
    (y1, y2), (x1, x2) = (_derivatives(samples, regions.sums) for samples in (regions.y, regions.x))
    count, channels, bins_y, bins_x = regions.output_lengths
    if without_loops:
        by_x = _rows(regions, dy, 2).transpose(0, 2, 1) @ _along(regions, a_y, 2)
        by_y = _rows(regions, dy, 3).transpose(0, 2, 1) @ _along(regions, a_x, 3)
        return concat(1, *(part.sum(1, 2).unsqueeze(1) for part in (by_x * x1, by_y * y1, by_x * x2, by_y * y2)))
    rows, columns = channels * bins_y, channels * bins_x

    def of_region(part: _Part) -> Value:
        upstream, height, width = part.of(dy), part.pixels.length(1), part.pixels.length(2)
        along_x = part.rows_of(a_y) @ part.pixels
        along_y = part.columns_of(a_x) @ part.pixels.transpose(0, 2, 1)
        by_x = upstream.reshape(rows, bins_x).transpose(1, 0) @ along_x.reshape(rows, width)
        by_y = upstream.transpose(1, 0, 2).reshape(bins_y, columns) @ along_y.reshape(columns, height)
        each = (
            by_x * part.columns_of(x1),
            by_y * part.rows_of(y1),
            by_x * part.columns_of(x2),
            by_y * part.rows_of(y2),
        )
        return concat(0, *(value.sum(0, 1).reshape(1) for value in each))

    # Zeros if there are no channels.
    done = _trip_count(count, channels)
    return concat(0, _each(regions, of_region).reshape(done, 4), zeros(dy.kind, count - done, 4))


def sum_by_image(
    batch_indices: Value,
    map_lengths: tuple[Value, Value, Value, Value],
    kind: Kind,
    of_chunk: Callable[[Value], Value],
    per_call: int,
) -> Value:
    """Sum the contributions of the regions of each image, [N, C, H, W].

    `of_chunk` takes the indices of at most `per_call` regions of an image, int64, and returns the sum of their
    contributions, [C, H, W].
    """
    images, channels, height, width = map_lengths
    graph = batch_indices.graph
    empty = zeros(kind, channels, height, width)
    step = graph.constant([per_call], "int64")

    def of_image(n: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
        chosen = batch_indices.equals(n).op("NonZero", kind="int64").reshape(-1)

        def of_next(i: Value, total: list[Value]) -> tuple[list[Value], list[Value]]:
            return [total[0] + of_chunk(chosen.slice(0, i * step, (i + 1) * step))], []

        return [], graph.loop((chosen.length(0) + (per_call - 1)) // step, of_next, [empty])

    (dx,) = graph.loop(_trip_count(images, channels), of_image)
    return dx.reshape(*map_lengths)


def _trip_count(count: Value, channels: Value) -> Value:
    """Return count, or 0 without channels: ONNX Runtime 1.31.1 cannot multiply 0 matrices with one."""
    return count * channels.at_most(1)


@dataclass(frozen=True)
class _Part:
    """One region: its index, its part of the map [C, h, w], and the first pixel and the end of its rows and columns."""

    number: Value
    pixels: Value
    rows: tuple[Value, Value]
    columns: tuple[Value, Value]

    def of(self, value: Value) -> Value:
        """Return the region's entry of a value with one entry for each region."""
        return value.gather(self.number).squeeze(0)

    def rows_of(self, table: Value) -> Value:
        """Return the region's part of a weight matrix along y, [PH, h]."""
        return self.of(table).slice(1, *self.rows)

    def columns_of(self, table: Value) -> Value:
        """Return the region's part of a weight matrix along x, [PW, w]."""
        return self.of(table).slice(1, *self.columns)


def _each(regions: Regions, body: Callable[[_Part], Value]) -> Value:
    """Return the stacked results of `body` for each region."""
    windows = [_window(samples) for samples in (regions.y, regions.x)]

    def of_region(r: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
        image = regions.batch_indices.gather(r)
        rows, columns = ((low.gather(r), high.gather(r)) for low, high in windows)
        pixels = regions.pixels(image, rows, columns).squeeze(0).cast(regions.sums)
        return [], [body(_Part(r, pixels, rows, columns))]

    (stacked,) = regions.count.graph.loop(_trip_count(regions.count, regions.map_lengths[1]), of_region)
    return stacked


def _window(samples: Samples) -> tuple[Value, Value]:
    """Return the first pixel that each region's samples read and the one after the last, [R]; any one if none."""
    first, last = samples.taps.pixels[0].cast("int64"), samples.taps.pixels[-1].cast("int64")
    low = samples.inside.where(first, samples.length - 1).min(1, 2)
    high = samples.inside.where(last, 0).max(1, 2)
    return low.at_most(high), high + 1


def _mean_weights(regions: Regions) -> tuple[Value, Value]:
    """Return A_y and A_x of all regions, [R, P, L] each, in the type of sums."""
    y, x = (
        _filled(samples, [weight * samples.shares for weight in samples.taps.weights]).cast(regions.sums)
        for samples in (regions.y, regions.x)
    )
    return y, x


def _derivatives(samples: Samples, kind: Kind) -> tuple[Value, Value]:
    """Return the derivatives of a weight matrix by the region's two stored coordinates, [R, P, L] each."""
    first, second = (
        _filled(samples, [weight * (samples.shares * step) for weight in samples.taps.weight_derivatives]).cast(kind)
        for step in samples.coordinate_derivatives or ()
    )
    return first, second


def _filled(samples: Samples, values: list[Value]) -> Value:
    """Sum values of the taps, [R, P, K] each, by pixel."""
    pixels = concat(2, *samples.taps.pixels).cast("int64")
    empty = zeros(values[0].kind, pixels.length(0), pixels.length(1), samples.length)
    return empty.op("ScatterElements", pixels, concat(2, *values), axis=2, reduction="add")


def _along(regions: Regions, weights: Value, axis: int) -> Value:
    """Return the products of weights [R, P, L] with the map along one of its axes, [R, P C, other axis]."""
    images, channels, *sides = regions.map_lengths
    length, other = sides[axis - 2], sides[3 - axis]
    pixels = regions.whole_map().transpose(0, axis, 1, 5 - axis).reshape(images * length, channels * other)
    return (_shared(regions, weights) @ pixels).reshape(regions.count, weights.length(1) * channels, other)


def _shared(regions: Regions, weights: Value) -> Value:
    """Return the matrix of all regions for all images, [R P, N L], for weights [R, P, L]."""
    images = regions.map_lengths[0]
    is_own = regions.batch_indices.unsqueeze(1).equals(arange(images)).cast(weights.kind)
    placed = weights.unsqueeze(2) * is_own.unsqueeze(1, 3)
    return placed.reshape(regions.count * weights.length(1), images * weights.length(2))


def _rows(regions: Regions, dy: Value, axis: int) -> Value:
    """Return dY [R, C, PH, PW] as [R, P C, other axis], with the bins along `axis` first."""
    count, channels, *bins = regions.output_lengths
    return dy.transpose(0, axis, 1, 5 - axis).reshape(count, bins[axis - 2] * channels, bins[3 - axis])
