# SPDX-License-Identifier: MIT
"""Pooling by Gather of the pixels that samples read: of all bins at once, or in a `Loop` over parts of the rows of bins.

Sizes: n rows of bins, B bins, S = KY KX listed samples of a bin. A sample reads up to four corners. Memory holds the
pixels at one corner of all samples of a part, [B, S, C]; for the gradient of a maximum those at all four.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

from onnx_models.portable.graph import Value, arange, concat, zeros
from onnx_models.portable.regions import Regions, RoiInputs
from onnx_models.portable.sampling import AxisTaps, Samples, largest_count

Mode = Literal["avg", "max", "max_interpolated"]

MAX_PIXELS = 2**18
"""The number of pixels at one corner, in all channels, that an iteration reads, unless a single row of bins reads more."""


@dataclass(frozen=True)
class Bins:
    """The bins whose samples are read at once: all of them, or some rows, where a row has the bins at one y of a region.

    roi_inputs: the inputs of the operator.
    rows: [n], int64, the indices of the rows among the R PH rows of all regions; None for all.
    listed: the numbers of samples to read of each bin along y and along x, int64[1] each; None for all that are listed.
    """

    roi_inputs: RoiInputs
    rows: Value | None = None
    listed: tuple[Value, Value] | None = None

    @property
    def count(self) -> Value:
        """B, int64[1]."""
        count, _, bins_y, bins_x = self.roi_inputs.output_lengths
        return (count * bins_y if self.rows is None else self.rows.length(0)) * bins_x

    def of_rows(self, values: Value) -> Value:
        """Take the entries of the rows of bins from [R PH, ...]."""
        return values if self.rows is None else values.gather(self.rows)

    def of_regions(self, values: Value) -> Value:
        """Take the value of each row's region from [R, 1, 1]: [n, 1, 1, 1, 1]; [R, 1, 1, 1, 1] for all bins."""
        return self._regions_of_rows(values).unsqueeze(3, 4)

    def along_y(self, values: Value) -> Value:
        """Take the values of samples along y from [R, PH, K]: [n, 1, 1, KY, 1]; [R, PH, 1, KY, 1] for all bins."""
        if self.rows is None or self.listed is None:
            return values.unsqueeze(2, 4)
        each = values.op("GatherND", row_places(self.rows, self.roi_inputs))
        return _first(each, 1, self.listed[0]).unsqueeze(1, 2, 4)

    def along_x(self, values: Value) -> Value:
        """Take the values of samples along x from [R, PW, K]: [n, 1, PW, 1, KX]; [R, 1, PW, 1, KX] for all bins."""
        values = self._regions_of_rows(values)
        return (values if self.listed is None else _first(values, 2, self.listed[1])).unsqueeze(1, 3)

    def _regions_of_rows(self, values: Value) -> Value:
        return values if self.rows is None else values.gather(self.rows // self.roi_inputs.bins[0])


def row_places(rows: Value, roi_inputs: RoiInputs) -> Value:
    """Return the region of each row of bins and its place among the rows of the region, [n, 2]."""
    bins_y = roi_inputs.bins[0]
    return concat(1, (rows // bins_y).unsqueeze(1), (rows % bins_y).unsqueeze(1))


def _first(values: Value, axis: int, count: Value) -> Value:
    return values.slice(axis, count.graph.constant([0], "int64"), count)


@dataclass(frozen=True)
class _Corner:
    """One of the pixels that each sample reads.

    pixels: [B, S], indices of rows of the map.
    weight, by_y, by_x: its weight and the derivatives of that by the coordinates; None where a weight is always 1.
    """

    pixels: Value
    weight: Value | None
    by_y: Value | None
    by_x: Value | None


@dataclass(frozen=True)
class SampleGrid:
    """The samples of some bins; the values broadcast to [n, PH, PW, KY, KX], and `inside` has this shape.

    bins: the bins.
    y, x: what the samples read along the axes of the map. They have no weights if these are 1.
    exists: False where a bin has fewer samples than are listed.
    inside: whether a sample is on the map.
    shares: the weight of each sample in the mean of its bin, 0 off the map.
    roi_derivatives: takes the derivatives by the samples' y and x, and returns those by the region's coordinates.
    """

    bins: Bins
    y: AxisTaps
    x: AxisTaps
    exists: Value
    inside: Value
    shares: Value
    roi_derivatives: Callable[[Value, Value], list[Value]]

    @property
    def listed(self) -> Value:
        """S, int64[1]."""
        return self.inside.length(3) * self.inside.length(4)

    def table(self, value: Value) -> Value:
        """Return the values of all samples as [B, S]; numbers in the type of sums."""
        value = value.cast(self.bins.roi_inputs.sums) if value.kind == "double" else value
        return value.op("Expand", self.inside.shape()).reshape(self.bins.count, self.listed)

    def side_by_side(self, values: Sequence[Value], *channels: Value) -> Value:
        """Return m values [B, S] or [B, S, C], with the channels C, as [B, S m] or [B, S m, C]."""
        if len(values) == 1:
            return values[0]
        each = concat(2, *(value.unsqueeze(2) for value in values))
        return each.reshape(self.bins.count, self.listed * len(values), *channels)

    def at(self, table: Value, place: Value, m: int = 1) -> Value:
        """Take entries of each row of a table [B, S m], for each channel of `place` [B, C]."""
        # Not GatherElements, which ONNX's reference evaluator (1.23 at least) computes wrongly for more than 32 entries.
        start = arange(self.bins.count).unsqueeze(1) * (self.listed * m)
        return table.reshape(-1).gather(start + place)

    def weighted(self, pixels: Value, weight: Value | None) -> Value:
        """Multiply pixels [B, S, C] or [B, 1, C] by the weights of the samples."""
        return pixels if weight is None else pixels * self.table(weight).unsqueeze(2)

    def corners(self, mode: Mode) -> list[_Corner]:
        """Return the corners of samples, in row-major order; the weights for an average are those in the mean of a bin."""
        y, x = self.y, self.x
        if mode == "avg":
            weights, derivatives = (
                [self.shares * weight for weight in values] for values in (y.weights, y.weight_derivatives)
            )
            y = replace(y, weights=weights, weight_derivatives=derivatives)
        roi_inputs = self.bins.roi_inputs
        _, _, height, width = roi_inputs.map_lengths
        image = self.bins.of_regions((roi_inputs.batch_indices * height).unsqueeze(1, 2))
        return [
            _Corner(
                self.table((image + row.cast("int64")) * width + column.cast("int64")),
                y.weights[i] * x.weights[j] if y.weights else None,
                y.weight_derivatives[i] * x.weights[j] if y.weight_derivatives else None,
                y.weights[i] * x.weight_derivatives[j] if x.weight_derivatives else None,
            )
            for i, row in enumerate(y.pixels)
            for j, column in enumerate(x.pixels)
        ]


@dataclass(frozen=True)
class Pooling:
    """How an operator pools samples.

    roi_inputs: the inputs of the operator.
    counts: the number of listed samples that each bin needs along y and along x, int64 [R, PH] and [R, PW].
    grid: returns the samples of some bins.
    mode: how a bin combines its samples.
    without_loops: whether all bins are pooled at once.
    """

    roi_inputs: RoiInputs
    counts: tuple[Value, Value]
    grid: Callable[[Bins], SampleGrid]
    mode: Mode
    without_loops: bool

    def largest_x(self) -> Value:
        """Return the number of samples that some bin of each region needs along x, [R]."""
        return self.counts[1].max(1)

    def bins(self, rows: Value) -> Bins:
        """Return some rows of bins, by their indices."""
        listed_y = self.counts[0].op("GatherND", row_places(rows, self.roi_inputs)).max(0).reshape(1)
        listed_x = self.largest_x().gather(rows // self.roi_inputs.bins[0]).max(0).reshape(1)
        return Bins(self.roi_inputs, rows, (listed_y, listed_x))

    def each_row(self, body: Callable[[Bins], list[tuple[Value, Value]]]) -> list[Value]:
        """Return results for all rows of bins, [R PH, width] each; `body` returns those of some rows and their widths."""
        count, channels, bins_y, bins_x = self.roi_inputs.output_lengths
        total, graph = count * bins_y, count.graph
        if self.without_loops:
            return [value.reshape(total, width) for value, width in body(Bins(self.roi_inputs))]
        pixels = bins_x * largest_count(self.counts[0]) * largest_count(self.largest_x()) * channels
        each = graph.constant([MAX_PIXELS], "int64") // pixels.at_least(1)
        each = each.at_least(1).at_most(total.at_least(1))
        places, widths = arange(each), list[Value]()

        def of_part(i: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
            # The last part repeats the last row.
            results = body(self.bins((i * each + places).at_most(total - 1)))
            widths.extend(width for _, width in results)
            return [], [value.reshape(each, width) for value, width in results]

        parts = (total + each - 1) // each
        stacked = zip(graph.loop(parts, of_part), widths, strict=True)
        return [_first(value.reshape(parts * each, width), 0, total) for value, width in stacked]


def upright_grid(regions: Regions, bins: Bins) -> SampleGrid:
    """Return the samples of upright regions."""
    y, x = regions.y, regions.x

    def taps(samples: Samples, view: Callable[[Value], Value]) -> AxisTaps:
        return AxisTaps(*([view(value) for value in values] for values in vars(samples.taps).values()))

    def roi_derivatives(by_y: Value, by_x: Value) -> list[Value]:
        pairs = zip(x.coordinate_derivatives or (), y.coordinate_derivatives or (), strict=True)
        return [
            derivative
            for step_x, step_y in pairs
            for derivative in (by_x * bins.along_x(step_x), by_y * bins.along_y(step_y))
        ]

    return SampleGrid(
        bins,
        taps(y, bins.along_y),
        taps(x, bins.along_x),
        bins.along_y(y.exists) & bins.along_x(x.exists),
        bins.along_y(y.inside) & bins.along_x(x.inside),
        bins.along_y(y.shares) * bins.along_x(x.shares),
        roi_derivatives,
    )


def forward(pooling: Pooling, outside: Value | None) -> Value:
    """Return Y [R, C, PH, PW]. A sample off the map is `outside`, or 0 if that is None; a bin without samples is 0."""
    count, channels, bins_y, bins_x = pooling.roi_inputs.output_lengths
    pixels, width = pooling.roi_inputs.pixel_rows(), bins_x * channels

    def of_bins(bins: Bins) -> list[tuple[Value, Value]]:
        grid = pooling.grid(bins)
        if pooling.mode != "avg":
            best = [
                candidate.max(1)
                for candidate in _candidates(grid, pooling.mode, grid.corners(pooling.mode), pixels, outside)
            ]
            has_samples = (grid.exists.cast("int64").max(3, 4) > 0).reshape(-1, 1)
            return [(has_samples.where(best[0].op("Max", *best[1:]) if len(best) > 1 else best[0], 0.0), width)]
        means = [
            grid.table(corner.weight).unsqueeze(1) @ pixels.gather(corner.pixels)
            for corner in grid.corners("avg")
            if corner.weight is not None
        ]
        y = reduce(Value.__add__, means)
        return [(y if outside is None else add_outside(y, grid.shares.sum(3, 4).reshape(-1, 1, 1), outside), width)]

    (y,) = pooling.each_row(of_bins)
    return y.reshape(count, bins_y, bins_x, channels).transpose(0, 3, 1, 2)


def add_outside(y: Value, on_map: Value, outside: Value) -> Value:
    """Add `outside` for the samples off the map to averages, given the fractions on the map, which broadcast to them."""
    part = (1.0 - on_map).cast(y.kind)
    # A product would make NaN of an infinite value where no sample is off the map.
    return (part > 0.0).where(y + part * outside, y)


def gradients(pooling: Pooling, dy: Value, *, by_map: bool, by_rois: int) -> tuple[Value | None, Value | None]:
    """Return dX [N, C, H, W] and the gradient for the regions' coordinates, or None for either, for dY [R, C, PH, PW].

    An element of dY goes to all samples, or to the first of the largest candidates, ordered by sample and then by pixel; if
    that is off the map, it has no effect.

    Args:
        pooling: the pooling; that of an average must be without loops if dX is wanted.
        dy: dY.
        by_map: whether dX is wanted.
        by_rois: the number of a region's coordinates if their gradient is wanted, else 0.
    """
    roi_inputs, mode = pooling.roi_inputs, pooling.mode
    count, channels, bins_y, bins_x = roi_inputs.output_lengths
    rows = dy.transpose(0, 2, 3, 1).reshape(count * bins_y, bins_x * channels)
    pairs, drois = _spread(pooling, rows) if by_map and mode == "avg" else [], None
    if by_rois or (by_map and mode != "avg"):
        pixels = roi_inputs.pixel_rows()

        def of_bins(bins: Bins) -> list[tuple[Value, Value]]:
            grid, upstream = pooling.grid(bins), bins.of_rows(rows).reshape(bins.count, channels)
            corners, results = grid.corners(mode), list[tuple[Value, Value]]()
            if mode == "avg":
                pulls = [(pixels.gather(corner.pixels) * upstream.unsqueeze(1)).sum(2) for corner in corners]
            else:
                winners = _winners(grid, mode, corners, pixels)
                upstream = winners.on_map.where(upstream, 0.0)
                results += [(value, bins_x * channels) for value in winners.spread(upstream)] if by_map else []
                pulls = winners.pulls(pixels, upstream) if by_rois else []
            if by_rois:
                results.append((_by_coordinates(grid, corners, pulls), count.graph.constant([by_rois], "int64")))
            return results

        stacked = pooling.each_row(of_bins)
        if by_rois:
            drois = stacked.pop().reshape(count, bins_y, by_rois).sum(1).cast(dy.kind)
        flat = [value.reshape(count * bins_y * bins_x, channels) for value in stacked]
        pairs += zip(flat[::2], flat[1::2], strict=True)
    if not by_map:
        return None, drois
    images, _, height, width = roi_inputs.map_lengths
    dx = zeros(dy.kind, images * height * width, channels)
    for places, values in pairs:
        # Not ScatterND, whose additions race with each other in ONNX Runtime 1.32.0.
        dx = dx.op("ScatterElements", places, values, axis=0, reduction="add")
    return dx.reshape(images, height, width, channels).transpose(0, 3, 1, 2), drois


def _spread(pooling: Pooling, rows: Value) -> list[tuple[Value, Value]]:
    """Return the places and the parts of the gradient of an average, [B S, C] each, for each corner."""
    bins = Bins(pooling.roi_inputs)
    grid, channels = pooling.grid(bins), pooling.roi_inputs.map_lengths[1]
    upstream, pairs = rows.reshape(bins.count, 1, channels), []
    for corner in grid.corners("avg"):
        parts = grid.weighted(upstream, corner.weight)
        both = corner.pixels.unsqueeze(2).op("Expand", parts.shape()), parts
        places, values = (value.reshape(bins.count * grid.listed, channels) for value in both)
        pairs.append((places, values))
    return pairs


def _by_coordinates(grid: SampleGrid, corners: Sequence[_Corner], pulls: Sequence[Value]) -> Value:
    """Return the gradient for the coordinates by row of bins, given that for each corner's weights, B S elements each."""
    pairs = [(pull.cast("double").shaped_as(grid.inside), corner) for pull, corner in zip(pulls, corners, strict=True)]
    by_y = reduce(Value.__add__, [pull * corner.by_y for pull, corner in pairs if corner.by_y is not None])
    by_x = reduce(Value.__add__, [pull * corner.by_x for pull, corner in pairs if corner.by_x is not None])
    return concat(2, *(derivative.sum(3, 4).sum(2).unsqueeze(2) for derivative in grid.roi_derivatives(by_y, by_x)))


def _candidates(
    grid: SampleGrid, mode: Mode, corners: Sequence[_Corner], pixels: Value, outside: Value | None
) -> list[Value]:
    """Return the candidates for the maximum of each bin, [B, S, C] each: one for each corner, or one.

    They are `outside` or 0 for samples off the map, and minus infinity for missing ones.
    """
    candidates = [grid.weighted(pixels.gather(corner.pixels), corner.weight) for corner in corners]
    if mode == "max_interpolated":
        candidates = [reduce(Value.__add__, candidates)]
    missing = grid.exists.where(pixels.graph.constant(0.0, pixels.kind) if outside is None else outside, -math.inf)
    inside, missing = (grid.table(value).unsqueeze(2) for value in (grid.inside, missing))
    return [inside.where(candidate, missing) for candidate in candidates]


@dataclass(frozen=True)
class _Winners:
    """The first of the largest candidates of each bin in each channel.

    grid: the samples.
    taps: for each pixel that a candidate reads, the corners of the candidates of a sample, m of them.
    place: [B, C], int64, of the winner among the S m candidates of its bin.
    on_map: [B, C], whether its sample is on the map.
    """

    grid: SampleGrid
    taps: list[list[_Corner]]
    place: Value
    on_map: Value

    def spread(self, upstream: Value) -> list[Value]:
        """Return where the gradient of Y, [B, C], goes and its parts, in turn for each tap, [B, C] each."""
        pairs = [(self._rows(corners), self._weighted(upstream, corners)) for corners in self.taps]
        return [value for pair in pairs for value in pair]

    def pulls(self, pixels: Value, upstream: Value) -> list[Value]:
        """Return the gradient for the weights of each corner, B S elements each."""
        pulls = []
        for corners in self.taps:
            channels = pixels.length(1)
            read = pixels.reshape(-1).gather(self._rows(corners) * channels + arange(channels)) * upstream
            count, candidates, m = self.grid.bins.count, self.grid.listed * len(corners), len(corners)
            by_weight = zeros(upstream.kind, count, candidates).op(
                "ScatterElements", self.place, self.on_map.where(read, 0.0), axis=1, reduction="add"
            )
            pulls += by_weight.reshape(count, self.grid.listed, m).entries(m, axis=2)
        return pulls

    def _rows(self, corners: Sequence[_Corner]) -> Value:
        return self.grid.at(self.grid.side_by_side([corner.pixels for corner in corners]), self.place, len(corners))

    def _weighted(self, upstream: Value, corners: Sequence[_Corner]) -> Value:
        weights = [self.grid.table(corner.weight) for corner in corners if corner.weight is not None]
        return (
            upstream * self.grid.at(self.grid.side_by_side(weights), self.place, len(weights)) if weights else upstream
        )


def _winners(grid: SampleGrid, mode: Mode, corners: list[_Corner], pixels: Value) -> _Winners:
    candidates = _candidates(grid, mode, corners, pixels, None)
    ordered = grid.side_by_side(candidates, grid.bins.roi_inputs.map_lengths[1])
    place = ordered.op("ArgMax", kind="int64", axis=1, keepdims=0)
    taps = [corners] if mode == "max" else [[corner] for corner in corners]
    return _Winners(grid, taps, place, grid.at(grid.table(grid.inside), place // len(taps[0])))
