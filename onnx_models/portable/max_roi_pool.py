"""The bodies of MaxRoiPool and of its gradient.

`Loop` iterates over the rows of bins of all regions. Memory holds the part of the map under one row, [C, h, w], and its
columns for each bin, [C, PW, w].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx_models.portable import at_once
from onnx_models.portable.at_once import SampleGrid
from onnx_models.portable.attributes import BodyRequest
from onnx_models.portable.graph import Value, arange, zeros
from onnx_models.portable.regions import RoiInputs, check_rois
from onnx_models.portable.sampling import AxisTaps, largest_count
from ortops.operators.max_roi_pool import MAX_COORDINATE


def outputs(given: Mapping[str, Value], request: BodyRequest) -> dict[str, Value]:
    """Return the wanted outputs by name."""
    if not request.operator.is_gradient:
        bins_y, bins_x = (request.attributes.entry("pooled_shape", axis, "int64") for axis in range(2))
        regions = _regions(given, request, (bins_y, bins_x), [])
        if request.at_once:
            return {"Y": at_once.forward(_grid(regions), "max", None)}
        return {"Y": _forward(regions)}
    count, channels, bins_y, bins_x = given["dY"].lengths(4)
    is_like_x = channels.equals(given["X"].lengths(4)[1])
    conditions = [bins_y > 0, bins_x > 0, count.equals(given["rois"].length(0)), is_like_x]
    regions = _regions(given, request, (bins_y, bins_x), conditions)
    if request.at_once:
        dy = given["dY"].cast(request.sums)
        dx, _ = at_once.gradients(_grid(regions), "max", dy, by_map=True, by_rois=False)
        return {} if dx is None else {"dX": dx}
    return {"dX": _gradient(regions, given["dY"])}


@dataclass(frozen=True)
class _Ends:
    """Bins along an axis: the first pixel of each and the one after its last, int64; both are equal for an empty bin."""

    low: Value
    high: Value

    def gather(self, index: Value) -> _Ends:
        """Return the bins of one region, or one bin, by its index, int64[1]."""
        return _Ends(self.low.gather(index), self.high.gather(index))

    def has_pixels(self) -> Value:
        """Return whether a bin has pixels."""
        return self.low < self.high

    def span(self, length: Value) -> tuple[Value, Value]:
        """Return the first pixel of all bins and the one after the last, int64[1] each; any pixel if all are empty."""
        low, high = self.low.reshape(-1).min(0).reshape(1), self.high.reshape(-1).max(0).reshape(1)
        low = low.at_most(length - 1)
        return low, high.at_least(low + 1)


@dataclass(frozen=True)
class _Regions(RoiInputs):
    """Regions of a batch of images, and the ends of their bins: y [R, PH] and x [R, PW]."""

    y: _Ends
    x: _Ends


def _regions(
    given: Mapping[str, Value], request: BodyRequest, bins: tuple[Value, Value], conditions: list[Value]
) -> _Regions:
    rois, scale = given["rois"], request.attributes.number("spatial_scale", "double")
    images, channels, height, width = given["X"].lengths(4)
    count, columns = rois.lengths(2)
    stored = rois.cast("double").reshape(count, columns)
    batch_id, *_ = stored.entries(5, axis=1)
    batch_id = batch_id.reshape(count)
    conditions = [height > 0, width > 0, batch_id.floor().equals(batch_id), *conditions]
    (_, x1, y1, x2, y2), own = check_rois(stored, batch_id.cast("int64"), images, conditions, 5)
    y = _ends(y1 * scale, y2 * scale, bins[0], height)
    x = _ends(x1 * scale, x2 * scale, bins[1], width)
    return _Regions((), own, (images, channels, height, width), bins, request.sums, given["X"], None, y, x)


def _ends(first: Value, last: Value, bins: Value, length: Value) -> _Ends:
    """Return the bins of regions whose first and last pixels, [R, 1, 1] each, are not rounded yet."""
    start, end = _rounded(first), _rounded(last)
    zero = start.graph.constant(0, "int64")
    # Not Max and Min, which are wrong for int64 beyond 32 bits in ONNX Runtime 1.31.1.
    size = (start < end).where(end - start, zero) + 1
    p = arange(bins)
    low = start + p * size // bins
    # Rounded up.
    high = start + ((p + 1) * size + bins - 1) // bins
    low, high = ((end > 0).where((end < length).where(end, length), zero).squeeze(1) for end in (low, high))
    return _Ends(low, high)


def _rounded(end: Value) -> Value:
    """Round to whole pixels, int64, and halves away from 0."""
    size = abs(end).at_most(float(MAX_COORDINATE))
    # Not floor(size + 0.5), since the sum may round up to the next integer.
    below = size.floor()
    whole = (below + (size - below >= 0.5).cast("double")).cast("int64")
    return (end < 0.0).where(whole * -1, whole)


def _grid(regions: _Regions) -> SampleGrid:
    """Return the pixels of all bins as samples of one pixel each. A bin of fewer pixels than others repeats its last one."""
    graph = regions.count.graph
    one = graph.constant(1.0, "double")

    def pixels(ends: _Ends, length: Value) -> Value:
        low, high = ends.low.unsqueeze(2), ends.high.unsqueeze(2)
        place = low + arange(largest_count(high - low))
        return (place < high).where(place, high - 1).at_least(0).at_most(length - 1)

    *_, height, width = regions.map_lengths
    y, x = pixels(regions.y, height).unsqueeze(2, 4), pixels(regions.x, width).unsqueeze(1, 3)
    has_pixels = regions.y.has_pixels().unsqueeze(2, 3, 4) & regions.x.has_pixels().unsqueeze(1, 3, 4)
    inside = has_pixels & (y + x >= 0)
    return SampleGrid(regions, AxisTaps([y], [one], []), AxisTaps([x], [one], []), inside, inside, one, lambda *_: [])


@dataclass(frozen=True)
class _Row:
    """One row of bins of a region.

    number: its index among all rows, int64[1].
    image: its image, int64[1].
    start: the y and x of the first of `pixels`, int64[1] each.
    pixels: [C, h, w].
    is_own: [PW, w], whether a column belongs to a bin.
    has_pixels: [PW].
    """

    number: Value
    image: Value
    start: tuple[Value, Value]
    pixels: Value
    is_own: Value
    has_pixels: Value

    def columns(self) -> Value:
        """Return the largest pixel of each column, [C, 1, w]."""
        return self.pixels.max(1).unsqueeze(1)

    def largest(self) -> Value:
        """Return the largest pixel of each bin, [C, PW]; minus infinity for an empty bin."""
        return self.is_own.where(self.columns(), -math.inf).max(2)

    def winner(self) -> tuple[Value, Value]:
        """Return y and x of the first largest pixel of each bin in row-major order, [C, PW]; any for an empty bin."""
        height, width = self.pixels.length(1), self.pixels.length(2)
        first = self.pixels.op("ArgMax", kind="int64", axis=1, keepdims=1)
        place = first * width + arange(width)
        wins = self.is_own & self.columns().equals(self.largest().unsqueeze(2))
        found = wins.where(place, height * width - 1).min(2)
        return self.start[0] + found // width, self.start[1] + found % width


def _forward(regions: _Regions) -> Value:
    """Return Y [R, C, PH, PW]."""
    (y,) = _each(regions, lambda row: [row.has_pixels.where(row.largest(), 0.0)])
    count, channels, bins_y, bins_x = regions.output_lengths
    return y.reshape(count, bins_y, channels, bins_x).transpose(0, 2, 1, 3)


def _gradient(regions: _Regions, dy: Value) -> Value:
    """Return dX [N, C, H, W] for dY [R, C, PH, PW]."""
    count, channels, bins_y, bins_x = regions.output_lengths
    images, _, height, width = regions.map_lengths
    rows = dy.cast(regions.sums).reshape(*regions.output_lengths).transpose(0, 2, 1, 3)
    rows = rows.reshape(count * bins_y, channels, bins_x)

    def of_row(row: _Row) -> list[Value]:
        y, x = row.winner()
        planes = (row.image * channels + arange(channels)).unsqueeze(1)
        own = row.has_pixels.where(rows.gather(row.number).squeeze(0), 0.0)
        return [(planes * height + y) * width + x, own]

    pixels, own = _each(regions, of_row)
    empty = zeros(regions.sums, images * channels * height * width)
    dx = empty.op("ScatterElements", pixels.reshape(-1), own.reshape(-1), axis=0, reduction="add")
    return dx.reshape(*regions.map_lengths)


def _each(regions: _Regions, body: Callable[[_Row], list[Value]]) -> list[Value]:
    """Return the stacked results of `body` for each row of bins."""
    bins_y = regions.bins[0]
    _, _, height, width = regions.map_lengths

    def of_row(number: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
        r = number // bins_y
        image = regions.batch_indices.gather(r)
        y = _Ends(regions.y.low.reshape(-1), regions.y.high.reshape(-1)).gather(number)
        x = regions.x.gather(r)
        rows, columns = y.span(height), x.span(width)
        column = columns[0] + arange(columns[1] - columns[0])
        low, high = (end.squeeze(0).unsqueeze(1) for end in (x.low, x.high))
        pixels = regions.pixels(image, rows, columns).squeeze(0).cast(regions.sums)
        is_own = (column >= low) & (column < high) & y.has_pixels()
        has_pixels = x.has_pixels().squeeze(0) & y.has_pixels()
        return [], body(_Row(number, image, (rows[0], columns[0]), pixels, is_own, has_pixels))

    return regions.count.graph.loop(regions.count * bins_y, of_row)
