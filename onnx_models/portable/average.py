"""The average over each bin, as two products for each region, Y = A_y X A_x^T, and its gradients.

A_y and A_x are the weight matrices of the region along y and along x. `Loop` iterates over regions, so that memory holds the
values of one region, and reads only the region's part of the map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onnx_models.portable import weight_matrices
from onnx_models.portable.graph import Kind, Value, concat, zeros
from onnx_models.portable.regions import Regions

ROIS_PER_PRODUCT = 32
"""Regions whose gradient is one product. Each product is added to a whole map, so few regions at a time are slow."""


def forward(regions: Regions, outside: Value | None) -> Value:
    """Return Y [R, C, PH, PW]. A sample off the map is `outside`, or 0 if that is None."""
    a_y, a_x = weight_matrices.mean_weights(regions)
    y = _each(regions, lambda part: part.rows_of(a_y) @ part.pixels @ part.columns_of(a_x).transpose(1, 0))
    return weight_matrices.with_outside(regions, y.reshape(*regions.output_lengths), outside)


def gradient(regions: Regions, dy: Value) -> Value:
    """Return dX [N, C, H, W] for dY [R, C, PH, PW]: for each image, the sum of A_y^T dY A_x over its regions."""
    a_y, a_x = weight_matrices.mean_weights(regions)
    _, channels, height, width = regions.map_lengths

    def of_chunk(chunk: Value) -> Value:
        count = chunk.length(0)
        t = dy.gather(chunk).transpose(1, 0, 2, 3) @ a_x.gather(chunk)
        rows = count * regions.y.bins
        left = a_y.gather(chunk).reshape(rows, height).transpose(1, 0)
        return left @ t.reshape(channels, rows, width)

    return sum_by_image(regions.batch_indices, regions.map_lengths, dy.kind, of_chunk, ROIS_PER_PRODUCT)


def sum_by_image(
    batch_indices: Value,
    map_lengths: tuple[Value, Value, Value, Value],
    kind: Kind,
    of_chunk: Callable[[Value], Value],
    per_call: int,
) -> Value:
    """Sum the contributions of the regions of each image, [N, C, H, W].

    Args:
        batch_indices: the image of each region, [R], int64.
        map_lengths: N, C, H, W, int64[1] each.
        kind: the element type.
        of_chunk: takes the indices of some regions of an image, int64, and returns the sum of their contributions,
            [C, H, W].
        per_call: the largest number of regions that it gets at once.
    """
    images, channels, height, width = map_lengths
    graph = batch_indices.graph
    empty = zeros(kind, channels, height, width)
    step = graph.constant([per_call], "int64")

    def of_image(n: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
        own = batch_indices.equals(n).op("NonZero", kind="int64").reshape(-1)

        def of_next(i: Value, total: list[Value]) -> tuple[list[Value], list[Value]]:
            return [total[0] + of_chunk(own.slice(0, i * step, (i + 1) * step))], []

        return [], graph.loop((own.length(0) + (per_call - 1)) // step, of_next, [empty])

    # See `trip_count`.
    (dx,) = graph.loop(trip_count(images, channels), of_image)
    return dx.reshape(*map_lengths)


def roi_gradient(regions: Regions, dy: Value) -> Value:
    """Return the gradient for the regions' coordinates, [R, 4], for dY [R, C, PH, PW].

    The gradients for A_y and A_x are ``sum_c dY A_x X^T`` and ``sum_c dY^T A_y X``. They are multiplied by the derivatives
    of A_y and A_x by the coordinates.
    """
    derivatives = weight_matrices.mean_weight_derivatives(regions)
    if derivatives is None:
        return zeros(dy.kind, regions.count, 4)
    a_y, a_x = weight_matrices.mean_weights(regions)
    (y_by_y1, y_by_y2), (x_by_x1, x_by_x2) = derivatives
    _, channels, bins_y, bins_x = regions.output_lengths
    rows, columns = channels * bins_y, channels * bins_x

    def of_region(part: _Part) -> Value:
        own = part.of(dy)
        height, width = part.pixels.length(1), part.pixels.length(2)
        along_x = part.rows_of(a_y) @ part.pixels
        along_y = part.columns_of(a_x) @ part.pixels.transpose(0, 2, 1)
        by_x = own.reshape(rows, bins_x).transpose(1, 0) @ along_x.reshape(rows, width)
        by_y = own.transpose(1, 0, 2).reshape(bins_y, columns) @ along_y.reshape(columns, height)
        each = [
            by_x * part.columns_of(x_by_x1),
            by_y * part.rows_of(y_by_y1),
            by_x * part.columns_of(x_by_x2),
            by_y * part.rows_of(y_by_y2),
        ]
        return concat(0, *(one.sum(0, 1).reshape(1) for one in each))

    return pad_to_count(_each(regions, of_region), regions.count, channels, 4)


def pad_to_count(found: Value, count: Value, channels: Value, columns: int) -> Value:
    """Return the results of `trip_count` iterations as [R, columns], zeros if there are no channels."""
    done = trip_count(count, channels)
    return concat(0, found.reshape(done, columns), zeros(found.kind, count - done, columns))


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
    windows = [weight_matrices.window(samples, 1, 2, 3) for samples in (regions.y, regions.x)]

    def of_region(r: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
        image = regions.batch_indices.gather(r)
        rows, columns = ((low.gather(r), high.gather(r)) for low, high in windows)
        pixels = regions.pixels(image, rows, columns).squeeze(0).cast(regions.sums)
        return [], [body(_Part(r, pixels, rows, columns))]

    (stacked,) = regions.count.graph.loop(trip_count(regions.count, regions.map_lengths[1]), of_region)
    return stacked


def trip_count(count: Value, channels: Value) -> Value:
    """Return count, or 0 without channels: ONNX Runtime 1.31.1 cannot multiply 0 matrices with one."""
    return count * channels.at_most(1)
