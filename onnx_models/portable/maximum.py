"""The maximum of each bin, and its gradient.

Each sample has candidates for the maximum: its weighted pixels in mode ``max``, its interpolated value in mode
``max_interpolated``. So along an axis a sample has m candidates of t taps, m t = T. `Loop` iterates over the rows of bins of
all regions, and memory holds the candidates of one row, [C, K m, PW K m].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from onnx_models.portable import weight_matrices
from onnx_models.portable.graph import Kind, Value, arange, concat, zeros
from onnx_models.portable.regions import Regions
from onnx_models.portable.sampling import Samples

Mode = Literal["max", "max_interpolated"]


def forward(regions: Regions, mode: Mode, outside: Value | None) -> Value:
    """Return Y [R, C, PH, PW]. A sample off the map is `outside`, or 0 if that is None; a bin without samples is 0."""

    def of_row(row: _Row) -> list[Value]:
        best = row.candidates(outside).max(4, 5).max(1, 2)
        return [(row.y.any_exists() & row.x.any_exists()).where(best, 0.0)]

    (y,) = _each(regions, mode, of_row)
    count, channels, bins_y, bins_x = regions.output_lengths
    return y.reshape(count, bins_y, channels, bins_x).transpose(0, 2, 1, 3)


def gradients(
    regions: Regions, mode: Mode, dy: Value, *, by_map: bool, by_rois: bool
) -> tuple[Value | None, Value | None]:
    """Return dX [N, C, H, W] and the gradient for the regions' coordinates [R, 4], or None, for dY [R, C, PH, PW].

    An element of dY goes to the first of the largest candidates, ordered by sample and then by pixel; if that is off the
    map, it has no effect.
    """
    count, channels, bins_y, bins_x = regions.output_lengths
    rows = dy.transpose(0, 2, 1, 3).reshape(count * bins_y, channels, bins_x)
    with_derivatives = by_rois and regions.y.weight_derivatives is not None
    if not by_map and not with_derivatives:
        return None, zeros(dy.kind, count, 4)

    def of_row(row: _Row) -> list[Value]:
        winner = _winner(row)
        own = winner.on_map.where(rows.gather(row.number).squeeze(0), 0.0)
        found = _spread(regions, row, winner, own) if by_map else []
        return found + ([_roi_derivatives(row, winner, own)] if with_derivatives else [])

    found = _each(regions, mode, of_row)
    dx = drois = None
    if by_map:
        lengths = regions.map_lengths
        empty = zeros(dy.kind, lengths[0] * lengths[1] * lengths[2] * lengths[3])
        pixels, parts = found[0].reshape(-1), found[1].reshape(-1)
        dx = empty.op("ScatterElements", pixels, parts, axis=0, reduction="add").reshape(*lengths)
    if by_rois:
        drois = found[-1].reshape(count, bins_y, 4).sum(1) if with_derivatives else zeros(dy.kind, count, 4)
    return dx, drois


@dataclass(frozen=True)
class _Line:
    """The samples along one axis of one row of bins: B bins (PW or 1) of K samples each.

    start, count: the range of pixels that they read, int64[1].
    exists, inside: [B, K].
    pixels, weights, weight_derivatives: [B, K, T]; the last is None for nearest pixels.
    coordinate_derivatives: [B, K] each.
    m, t: the numbers of candidates of a sample and of taps of a candidate.
    """

    start: Value
    count: Value
    exists: Value
    inside: Value
    pixels: Value
    weights: Value
    weight_derivatives: Value | None
    coordinate_derivatives: tuple[Value, Value] | None
    m: int
    t: int

    @property
    def local(self) -> Value:
        """`pixels` relative to `start`; a sample off the map reads any pixel."""
        return (self.pixels - self.start).at_least(0).at_most(self.count - 1)

    @property
    def bins(self) -> Value:
        """B, int64[1]."""
        return self.exists.length(0)

    @property
    def listed(self) -> Value:
        """K, int64[1]."""
        return self.exists.length(1)

    def any_exists(self) -> Value:
        """Return whether a bin has samples, [B]."""
        return self.exists.cast("int64").max(1) > 0

    def read(self, pixels: Value, axis: int) -> Value:
        """Return the B K m candidates along an axis of `pixels`, which has three axes."""
        read = pixels.gather(self.local.reshape(-1), axis)
        if self.m * self.t == 1:
            return read
        weights = self.weights.reshape(-1)
        read = read * weights.unsqueeze(*range(1, 3 - axis))
        if self.t == 1:
            return read
        lengths: list[Value | int] = [read.length(i) for i in range(3)]
        lengths[axis : axis + 1] = [self.bins * self.listed, self.t]
        return read.reshape(*lengths).sum(axis + 1)

    def at(self, values: Value, candidate: Value) -> Value:
        """Take, from `values` [B, K, T], those of the taps of candidates [C, PW]: [C, PW, t]."""
        return values.reshape(self.bins * self.listed * self.m, self.t).gather(candidate)


@dataclass(frozen=True)
class _Row:
    """One row of bins of one region: its index among all rows, its image, its pixels [C, h, w] and its samples."""

    number: Value
    image: Value
    pixels: Value
    y: _Line
    x: _Line

    def candidates(self, outside: Value | None = None) -> Value:
        """Return [C, Ky, m, PW, Kx, m]: `outside` or 0 for samples off the map, minus infinity for missing ones."""
        m = self.y.m
        read = self.x.read(self.y.read(self.pixels, 1), 2)
        read = read.reshape(self.pixels.length(0), self.y.listed, m, self.x.bins, self.x.listed, m)
        exists = self._of_pairs(self.y.exists, self.x.exists)
        value = read.graph.constant(0.0, read.kind) if outside is None else outside
        return self._of_pairs(self.y.inside, self.x.inside).where(read, exists.where(value, -math.inf))

    def _of_pairs(self, along_y: Value, along_x: Value) -> Value:
        """Return the conjunction for each pair of samples, [Ky, 1, PW, Kx, 1]."""
        return along_y.reshape(self.y.listed, 1, 1, 1, 1) & along_x.unsqueeze(2)


def _each(regions: Regions, mode: Mode, body: Callable[[_Row], list[Value]]) -> list[Value]:
    """Return the stacked results of `body` for each row of bins."""
    bins = regions.bins[0]
    windows_y = [pixel.reshape(-1) for pixel in weight_matrices.window(regions.y, 2, 3)]
    windows_x = weight_matrices.window(regions.x, 1, 2, 3)
    counts_y, counts_x = regions.y.counts.reshape(-1), regions.x.counts.max(1)

    def of_row(number: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
        r, p = number // bins, number % bins
        image = regions.batch_indices.gather(r)
        y = _line(
            regions.y, r, counts_y.gather(number), [one.gather(number) for one in windows_y], mode, regions.sums, only=p
        )
        x = _line(regions.x, r, counts_x.gather(r), [one.gather(r) for one in windows_x], mode, regions.sums)
        rows, columns = (y.start, y.start + y.count), (x.start, x.start + x.count)
        return [], body(_Row(number, image, regions.pixels(image, rows, columns).squeeze(0).cast(regions.sums), y, x))

    return bins.graph.loop(regions.count * bins, of_row)


def _line(
    samples: Samples,
    r: Value,
    listed: Value,
    window: Sequence[Value],
    mode: Mode,
    sums: Kind,
    only: Value | None = None,
) -> _Line:
    """Return the first `listed` samples of each bin of region r, or of bin `only`."""
    graph = r.graph

    def part(values: Value) -> Value:
        own = values.gather(r).squeeze(0)
        own = own if only is None else own.gather(only)
        return own.slice(1, graph.constant([0], "int64"), listed)

    start, end = window
    m, t = (samples.taps, 1) if mode == "max" else (1, samples.taps)
    return _Line(
        start=start,
        count=end - start,
        exists=part(samples.exists),
        inside=part(samples.inside),
        pixels=part(samples.pixels),
        weights=part(samples.weights).cast(sums),
        weight_derivatives=None if samples.weight_derivatives is None else part(samples.weight_derivatives).cast(sums),
        coordinate_derivatives=None
        if samples.coordinate_derivatives is None
        else (part(samples.coordinate_derivatives[0]).cast(sums), part(samples.coordinate_derivatives[1]).cast(sums)),
        m=m,
        t=t,
    )


@dataclass(frozen=True)
class _Winner:
    """The maximum of each bin, [C, PW] each: the indices of its sample and candidate along both axes of the row."""

    sample_y: Value
    sample_x: Value
    candidate_y: Value
    candidate_x: Value
    on_map: Value


def _winner(row: _Row) -> _Winner:
    m, bins, listed = row.y.m, row.x.bins, row.x.listed
    # Ordered by sample and then by pixel: [C, PW, Ky, Kx, m, m].
    ordered = row.candidates().transpose(0, 3, 1, 4, 2, 5)
    flat = ordered.reshape(row.pixels.length(0), bins, row.y.listed * listed * (m * m))
    k = flat.op("ArgMax", kind="int64", axis=2, keepdims=0)
    sample, corner = k // (m * m), k % (m * m)
    y, x = sample // listed, arange(bins) * listed + sample % listed
    on_map = row.y.inside.reshape(-1).gather(y) & row.x.inside.reshape(-1).gather(x)
    return _Winner(y, x, y * m + corner // m, x * m + corner % m, on_map)


def _spread(regions: Regions, row: _Row, winner: _Winner, own: Value) -> list[Value]:
    """Return the flat indices of the winners' pixels and their parts of `own`, [C, PW]: [C, PW, t, t] each."""
    y, x = winner.candidate_y, winner.candidate_x
    parts = own.unsqueeze(2, 3) * _corners(row.y.at(row.y.weights, y), row.x.at(row.x.weights, x))
    _, channels, height, width = regions.map_lengths
    planes = (row.image * channels + arange(channels)).unsqueeze(1, 2, 3)
    pixels_y, pixels_x = row.y.at(row.y.pixels, y).unsqueeze(3), row.x.at(row.x.pixels, x).unsqueeze(2)
    return [(planes * height + pixels_y) * width + pixels_x, parts]


def _roi_derivatives(row: _Row, winner: _Winner, own: Value) -> Value:
    """Return the gradient for the region's coordinates, [4], for `own`, [C, PW]."""
    y, x = winner.candidate_y, winner.candidate_x
    planes = arange(row.pixels.length(0)).unsqueeze(1, 2, 3)
    local_y, local_x = row.y.at(row.y.local, y).unsqueeze(3), row.x.at(row.x.local, x).unsqueeze(2)
    pixels = row.pixels.reshape(-1).gather((planes * row.y.count + local_y) * row.x.count + local_x)

    def by(along_y: Value, along_x: Value) -> Value:
        pull = (pixels * _corners(row.y.at(along_y, y), row.x.at(along_x, x))).sum(2, 3)
        # A product with 0 is not enough: unread pixels may be infinite.
        return winner.on_map.where(pull * own, 0.0)

    if (
        row.y.weight_derivatives is None
        or row.x.weight_derivatives is None
        or row.y.coordinate_derivatives is None
        or row.x.coordinate_derivatives is None
    ):
        raise ValueError("the samples have been listed without their derivatives")
    by_y, by_x = by(row.y.weight_derivatives, row.x.weights), by(row.y.weights, row.x.weight_derivatives)
    parts = []
    for step_y, step_x in zip(row.y.coordinate_derivatives, row.x.coordinate_derivatives, strict=True):
        parts.append(by_x * step_x.reshape(-1).gather(winner.sample_x))
        parts.append(by_y * step_y.reshape(-1).gather(winner.sample_y))
    return concat(0, *(part.sum(0, 1).reshape(1) for part in parts))


def _corners(along_y: Value, along_x: Value) -> Value:
    """Return the products of [C, PW, t] along y and along x, [C, PW, t, t]."""
    return along_y.unsqueeze(3) * along_x.unsqueeze(2)
