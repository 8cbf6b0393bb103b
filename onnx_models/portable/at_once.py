"""Pooling of all regions at once, by Gather of the pixels that their samples read: for `onnx_models.lower`, without `Loop`.

Sizes: B = R PH PW bins, S = KY KX listed samples of a bin. A sample reads up to four corners. Memory holds the pixels at one
corner of all samples, [B, S, C]; for a maximum at all four.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

from onnx_models.portable.graph import Value, arange, concat, zeros
from onnx_models.portable.regions import Regions, RoiInputs
from onnx_models.portable.sampling import AxisTaps, Samples

Mode = Literal["avg", "max", "max_interpolated"]


@dataclass(frozen=True)
class SampleGrid:
    """The samples of all bins; the values broadcast to [R, PH, PW, KY, KX], and `inside` has this shape.

    roi_inputs: the inputs of the operator.
    y, x: what the samples read along the axes of the map.
    exists: False where a bin has fewer samples than are listed.
    inside: whether a sample is on the map.
    shares: the weight of each sample in the mean of its bin, 0 off the map.
    roi_derivatives: takes the derivatives by the samples' y and x, and returns those by the region's coordinates.
    """

    roi_inputs: RoiInputs
    y: AxisTaps
    x: AxisTaps
    exists: Value
    inside: Value
    shares: Value
    roi_derivatives: Callable[[Value, Value], list[Value]]

    @property
    def bins(self) -> Value:
        """B, int64[1]."""
        count, _, bins_y, bins_x = self.roi_inputs.output_lengths
        return count * bins_y * bins_x

    @property
    def listed(self) -> Value:
        """S, int64[1]."""
        return self.inside.length(3) * self.inside.length(4)

    def rows(self) -> Value:
        """Return the map's pixels in the type of sums, [N H W, C]."""
        images, channels, height, width = self.roi_inputs.map_lengths
        pixels = self.roi_inputs.whole_map().transpose(0, 2, 3, 1)
        return pixels.reshape(images * height * width, channels)

    def column(self, value: Value) -> Value:
        """Return the values of all samples as [B, S, 1]; numbers in the type of sums."""
        value = value.cast(self.roi_inputs.sums) if value.kind == "double" else value
        return value.op("Expand", self.inside.shape()).reshape(self.bins, self.listed, 1)

    def as_output(self, y: Value) -> Value:
        """Return values of all bins, B C elements, as [R, C, PH, PW]."""
        count, channels, bins_y, bins_x = self.roi_inputs.output_lengths
        return y.reshape(count, bins_y, bins_x, channels).transpose(0, 3, 1, 2)


@dataclass(frozen=True)
class _Corner:
    """One of the pixels that each sample reads.

    pixels: [B, S], indices of rows of the map.
    weight, by_y, by_x: its weight and the derivatives of that by the coordinates; None where there are none.
    """

    pixels: Value
    weight: Value
    by_y: Value | None
    by_x: Value | None


def upright_grid(regions: Regions) -> SampleGrid:
    """Return the samples of upright regions."""
    y, x = regions.y, regions.x

    def spread(value: Value, samples: Samples) -> Value:
        return value.unsqueeze(2, 4) if samples is y else value.unsqueeze(1, 3)

    def taps(samples: Samples) -> AxisTaps:
        return AxisTaps(*([spread(one, samples) for one in values] for values in vars(samples.read).values()))

    def shares(samples: Samples) -> Value:
        return spread(samples.inside.cast("double") / samples.per_bin, samples)

    def roi_derivatives(by_y: Value, by_x: Value) -> list[Value]:
        pairs = zip(x.coordinate_derivatives or (), y.coordinate_derivatives or (), strict=True)
        return [one for step_x, step_y in pairs for one in (by_x * spread(step_x, x), by_y * spread(step_y, y))]

    return SampleGrid(
        regions,
        taps(y),
        taps(x),
        spread(y.exists, y) & spread(x.exists, x),
        spread(y.inside, y) & spread(x.inside, x),
        shares(y) * shares(x),
        roi_derivatives,
    )


def forward(grid: SampleGrid, mode: Mode, outside: Value | None) -> Value:
    """Return Y [R, C, PH, PW]. A sample off the map is `outside`, or 0 if that is None; a bin without samples is 0."""
    if mode != "avg":
        candidates = _candidates(grid, mode, outside)
        best = candidates[0].op("Max", *candidates[1:]) if len(candidates) > 1 else candidates[0]
        has_samples = (grid.exists.cast("int64").max(3, 4) > 0).unsqueeze(1)
        return has_samples.where(grid.as_output(best.max(1)), 0.0)
    rows = grid.rows()
    means = [grid.column(one.weight).transpose(0, 2, 1) @ rows.gather(one.pixels) for one in _corners(grid, mode)]
    y = grid.as_output(reduce(Value.__add__, means))
    return y if outside is None else add_outside(y, grid.shares.sum(3, 4), outside)


def add_outside(y: Value, on_map: Value, outside: Value) -> Value:
    """Add `outside` for the samples off the map to averages [R, C, PH, PW], given the fraction on the map [R, PH, PW]."""
    part = (1.0 - on_map).cast(y.kind).unsqueeze(1)
    # A product would make NaN of an infinite value where no sample is off the map.
    return (part > 0.0).where(y + part * outside, y)


def gradients(
    grid: SampleGrid, mode: Mode, dy: Value, *, by_map: bool, by_rois: bool
) -> tuple[Value | None, Value | None]:
    """Return dX [N, C, H, W] and the gradient for the regions' coordinates, [R, 4] or [R, 5], or None for either.

    An element of dY [R, C, PH, PW] goes to all samples, or to the first of the largest candidates, ordered by sample and
    then by pixel; if that is off the map, it has no effect.
    """
    images, channels, height, width = grid.roi_inputs.map_lengths
    own = dy.transpose(0, 2, 3, 1).reshape(grid.bins, 1, channels)
    corners = _corners(grid, mode)
    wins = [None] * len(corners) if mode == "avg" else _winners(grid, mode, len(corners))

    def of_winner(win: Value | None, value: Value) -> Value:
        # A product with 0 is not enough: unread pixels may be infinite.
        return value if win is None else win.where(value, 0.0)

    dx = drois = None
    if by_map:
        dx = zeros(dy.kind, images * height * width, channels)
        for corner, win in zip(corners, wins, strict=True):
            part = of_winner(win, own * grid.column(corner.weight))
            pixels = corner.pixels.unsqueeze(2).op("Expand", part.shape())
            # Not ScatterND, whose additions race with each other in ONNX Runtime 1.32.0.
            flat = (one.reshape(grid.bins * grid.listed, channels) for one in (pixels, part))
            dx = dx.op("ScatterElements", *flat, axis=0, reduction="add")
        dx = dx.reshape(images, height, width, channels).transpose(0, 3, 1, 2)
    if by_rois:
        rows = grid.rows()
        by_y, by_x = [], []
        for corner, win in zip(corners, wins, strict=True):
            pull = of_winner(win, rows.gather(corner.pixels) * own).sum(2).shaped_as(grid.inside).cast("double")
            if corner.by_y is not None and corner.by_x is not None:
                by_y.append(pull * corner.by_y)
                by_x.append(pull * corner.by_x)
        drois = (
            concat(
                1,
                *(
                    one.sum(1, 2, 3, 4).unsqueeze(1)
                    for one in grid.roi_derivatives(reduce(Value.__add__, by_y), reduce(Value.__add__, by_x))
                ),
            ).cast(dy.kind)
            if by_y
            else zeros(dy.kind, grid.roi_inputs.count, 4)
        )
    return dx, drois


def _corners(grid: SampleGrid, mode: Mode) -> list[_Corner]:
    """Return the corners of samples, in row-major order; the weights for an average are those in the mean of a bin."""
    y, x = grid.y, grid.x
    if mode == "avg":
        weights, derivatives = ([grid.shares * one for one in values] for values in (y.weights, y.weight_derivatives))
        y = replace(y, weights=weights, weight_derivatives=derivatives)
    _, _, height, width = grid.roi_inputs.map_lengths
    image = (grid.roi_inputs.batch_indices * height).unsqueeze(1, 2, 3, 4)
    return [
        _Corner(
            ((image + row.cast("int64")) * width + column.cast("int64")).reshape(grid.bins, grid.listed),
            y.weights[i] * x.weights[j],
            y.weight_derivatives[i] * x.weights[j] if y.weight_derivatives else None,
            y.weights[i] * x.weight_derivatives[j] if x.weight_derivatives else None,
        )
        for i, row in enumerate(y.pixels)
        for j, column in enumerate(x.pixels)
    ]


def _candidates(grid: SampleGrid, mode: Mode, outside: Value | None) -> list[Value]:
    """Return the candidates for the maximum of each bin, [B, S, C] each: one for each corner, or one.

    They are `outside` or 0 for samples off the map, and minus infinity for missing ones.
    """
    rows = grid.rows()
    found = [rows.gather(one.pixels) * grid.column(one.weight) for one in _corners(grid, mode)]
    if mode == "max_interpolated":
        found = [reduce(Value.__add__, found)]
    missing = grid.exists.where(rows.graph.constant(0.0, rows.kind) if outside is None else outside, -math.inf)
    inside, missing = grid.column(grid.inside), grid.column(missing)
    return [inside.where(one, missing) for one in found]


def _winners(grid: SampleGrid, mode: Mode, corners: int) -> Sequence[Value]:
    """Return for each corner whether it is of the first of the largest candidates of a bin and on the map, [B, S, C]."""
    candidates = _candidates(grid, mode, None)
    m = len(candidates)
    channels = grid.roi_inputs.map_lengths[1]
    ordered = concat(2, *(one.unsqueeze(2) for one in candidates)).reshape(grid.bins, grid.listed * m, channels)
    winner = ordered.op("ArgMax", kind="int64", axis=1, keepdims=1)
    first, inside = arange(grid.listed).unsqueeze(1) * m, grid.column(grid.inside)
    return [inside & winner.equals(first + (corner if m > 1 else 0)) for corner in range(corners)]
