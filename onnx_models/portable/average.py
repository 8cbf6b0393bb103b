"""The average over each bin: a region Y = A_y X A_x^T of two tables, and what follows from it for the gradients.

`Loop` goes over regions, so that no more is in memory than one of them asks for, and of the map only the region is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onnx_models.portable import weight_matrices
from onnx_models.portable.graph import Kind, Value, concat, zeros
from onnx_models.portable.regions import Regions

ROIS_PER_PRODUCT = 32
"""Regions whose gradient is computed in one product. Each product is added to a whole map, which is the dearer the fewer."""


def forward(regions: Regions, outside: Value | None) -> Value:
    """Y [R, C, PH, PW], where a sample off the map is `outside`, 0 if None."""
    a_y, a_x = weight_matrices.mean_weights(regions, "scatter")
    y = _each(regions, lambda part: part.rows_of(a_y) @ part.pixels @ part.columns_of(a_x).transpose(1, 0))
    return with_outside(y.reshape(*regions.output_lengths), regions, outside)


def with_outside(y: Value, regions: Regions, outside: Value | None) -> Value:
    """Y with the part of its samples that is off the map as `outside` instead of 0."""
    if outside is None:
        return y
    on_map = weight_matrices.inside(regions.y).unsqueeze(2) * weight_matrices.inside(regions.x).unsqueeze(1)
    part = (1.0 - on_map).cast(y.kind).unsqueeze(1)
    # A product would make NaN of an infinite value where no sample is off the map.
    return (part > 0.0).where(y + part * outside, y)


def gradient(regions: Regions, dy: Value) -> Value:
    """The gradient dX [N, C, H, W] of dY [R, C, PH, PW]: for each image the sum of A_y^T dY A_x over its regions."""
    a_y, a_x = weight_matrices.mean_weights(regions, "scatter")
    _, channels, height, width = regions.map_lengths

    def of_chunk(chunk: Value) -> Value:
        count = chunk.length(0)
        t = dy.gather(chunk).transpose(1, 0, 2, 3) @ a_x.gather(chunk)
        rows = count * regions.y.bins
        left = a_y.gather(chunk).reshape(rows, height).transpose(1, 0)
        return left @ t.reshape(channels, rows, width)

    return sum_by_image(regions.batch_indices, regions.map_lengths, dy.kind, of_chunk, ROIS_PER_PRODUCT)


def sum_by_image(
    of_regions: Value,
    map_lengths: tuple[Value, Value, Value, Value],
    kind: Kind,
    of_chunk: Callable[[Value], Value],
    per_call: int,
) -> Value:
    """For each image the sum of what its regions add to it, [N, C, H, W].

    Args:
        of_regions: [R], int64: the image of each region.
        map_lengths: N, C, H, W, int64[1] each.
        kind: the element type.
        of_chunk: from the numbers of some regions of an image, int64, to what they add, [C, H, W].
        per_call: how many numbers it is given at most.
    """
    images, channels, height, width = map_lengths
    graph = of_regions.graph
    empty = zeros(kind, channels, height, width)
    step = graph.constant([per_call], "int64")

    def of_image(n: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
        own = graph.op("NonZero", [of_regions.equals(n)], "int64").reshape(-1)

        def of_next(i: Value, total: list[Value]) -> tuple[list[Value], list[Value]]:
            return [total[0] + of_chunk(own.slice(0, i * step, (i + 1) * step))], []

        return [], graph.loop((own.length(0) + (per_call - 1)) // step, of_next, [empty])

    # As in `trip_count`.
    (dx,) = graph.loop(trip_count(images, channels), of_image)
    return dx.reshape(*map_lengths)


def roi_gradient(regions: Regions, dy: Value) -> Value:
    """The gradient by the regions' coordinates, [R, 4], of dY [R, C, PH, PW].

    By the tables it is ``sum_c dY A_x X^T`` and ``sum_c dY^T A_y X``, and the coordinates move a table by its slopes.
    """
    derivatives = weight_matrices.mean_weight_derivatives(regions, "scatter")
    if derivatives is None:
        return zeros(dy.kind, regions.count, 4)
    a_y, a_x = weight_matrices.mean_weights(regions, "scatter")
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
    """[R, columns] of what has been found in `trip_count`: zeros where there are no channels, for then none were computed."""
    done = trip_count(count, channels)
    return concat(0, found.reshape(done, columns), zeros(found.kind, count - done, columns))


@dataclass(frozen=True)
class _Part:
    """One region: its number, its part of the map [C, h, w], and its first pixels and those after the last, int64[1]."""

    number: Value
    pixels: Value
    rows: tuple[Value, Value]
    columns: tuple[Value, Value]

    def of(self, value: Value) -> Value:
        """Its entry of a value with one for each region."""
        return value.gather(self.number).squeeze(0)

    def rows_of(self, table: Value) -> Value:
        """Its part of a table of y, [PH, h]."""
        return self.of(table).slice(1, *self.rows)

    def columns_of(self, table: Value) -> Value:
        """Its part of a table of x, [PW, w]."""
        return self.of(table).slice(1, *self.columns)


def _each(regions: Regions, body: Callable[[_Part], Value]) -> Value:
    """What `body` makes of each region, stacked."""
    feature_map, images = regions.feature_map(), regions.batch_indices
    windows = [weight_matrices.window(samples, 1, 2, 3) for samples in (regions.y, regions.x)]

    def of_region(r: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
        image = images.gather(r)
        rows, columns = ((low.gather(r), high.gather(r)) for low, high in windows)
        pixels = feature_map.part({0: (image, image + 1), 2: rows, 3: columns})
        return [], [body(_Part(r, pixels.squeeze(0).cast(regions.sums), rows, columns))]

    (stacked,) = images.graph.loop(trip_count(regions.count, regions.map_lengths[1]), of_region)
    return stacked


def trip_count(count: Value, channels: Value) -> Value:
    """As many as count, or 0 where there are no channels: ONNX Runtime 1.31.1 has no product of 0 matrices with one."""
    return count * channels.at_most(1)
