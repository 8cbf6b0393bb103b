"""The body of RoIAlignRotated, and of its gradient.

What a bin takes of each pixel is a row of a matrix A [PH PW, h w] of its region, h x w being the pixels that the region can
read. So Y is A X, dX is A^T dY, and dY^T X is what the regions' numbers are moved by. `Loop` goes over regions and in each
over rows of bins: in memory are one matrix and the samples of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx_models.portable.average import filled_up, rounds, summed_by_image
from onnx_models.portable.bodies import Demand
from onnx_models.portable.graph import Kind, Value, joined, numbers, zeros
from onnx_models.portable.regions import Request, named, requested
from onnx_models.portable.rotated_grid import Grid, Reach, Window, grid
from onnx_models.portable.rotated_loop_free import Flat


def outputs(given: Mapping[str, Value], demand: Demand) -> dict[str, Value]:
    """The wanted outputs by name."""
    a, kind = demand.attributes, demand.coordinates
    by_rois = "drois" in demand.wanted
    request = requested(given, demand, reads_map=by_rois)
    laid = grid(
        request,
        aligned=a.number("aligned", kind),
        clockwise=a.number("clockwise", kind),
        scale=a.number("spatial_scale", kind),
        ratio=a.number("sampling_ratio", kind),
    )
    way = _Loops(request, laid, laid.windows(), demand.sums) if demand.loops else Flat(request, laid, demand.sums)
    if not demand.operator.is_gradient:
        return {"Y": way.forward()}
    dx = way.gradient() if "dX" in demand.wanted else None
    return named(given, demand, dx, way.roi_gradient() if by_rois else None)


@dataclass(frozen=True)
class _Part:
    """One region: its number, int64[1], and the pixels that it can read, the first and the one after the last."""

    number: Value
    rows: tuple[Value, Value]
    columns: tuple[Value, Value]

    @property
    def width(self) -> Value:
        """Their width w, int64[1]."""
        return self.columns[1] - self.columns[0]

    @property
    def area(self) -> Value:
        """How many they are, h w, int64[1]."""
        return (self.rows[1] - self.rows[0]) * self.width

    def corners(self, y: Reach, x: Reach) -> list[Value]:
        """The pixels that samples read, as numbered within the part."""
        rows, columns = (
            # Roundings can put a sample of a region that is large enough beyond its part.
            [(pixel.cast("int64") - ends[0]).at_least(0).at_most(ends[1] - ends[0] - 1) for pixel in reach.pixels]
            for reach, ends in ((y, self.rows), (x, self.columns))
        )
        return [row * self.width + column for row in rows for column in columns]


@dataclass(frozen=True)
class _Loops:
    """The body with control flow; `windows` are the grid's."""

    request: Request
    grid: Grid
    windows: tuple[Window, Window]
    sums: Kind

    def forward(self) -> Value:
        """Y [R, C, PH, PW]."""

        def of_region(part: _Part) -> Value:
            return self._pixels(part) @ self._matrix(part).transpose(1, 0)

        return self._each(of_region).reshape(*self.request.output_lengths)

    def gradient(self) -> Value:
        """The gradient dX [N, C, H, W]."""
        _, channels, height, width = self.request.map_lengths
        none = self.request.images.graph.constant([0], "int64")
        after_rows, after_columns = height - self.windows[0][1], width - self.windows[1][1]

        def of_one(number: Value) -> Value:
            part = self._part(number)
            found = self._dy(part) @ self._matrix(part)
            found = found.reshape(channels, part.rows[1] - part.rows[0], part.width)
            after = after_rows.gather(number), after_columns.gather(number)
            ends = [none, part.rows[0], part.columns[0], none, *after]
            return found.graph.op("Pad", [found, joined(0, *ends)], found.kind)

        return summed_by_image(self.request.images, self.request.map_lengths, self.sums, of_one, 1)

    def roi_gradient(self) -> Value:
        """The gradient by the regions' numbers, [R, 5]."""
        bins_y, bins_x = self.request.bins

        def of_region(part: _Part) -> Value:
            pulls = self._dy(part).transpose(1, 0) @ self._pixels(part)
            pulls = pulls.reshape(bins_y, bins_x * part.area).cast(self.grid.scale.kind)

            def of_row(row: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
                return [], [self._moved(part, row, pulls.gather(row).squeeze(0))]

            (moved,) = pulls.graph.loop(bins_y, of_row)
            return moved.sum(0).cast(self.sums)

        channels = self.request.map_lengths[1]
        return filled_up(self._each(of_region), self.request.images.length(0), channels, 5)

    def _matrix(self, part: _Part) -> Value:
        """A of a region, [PH PW, h w]."""
        bins_y, bins_x = self.request.bins
        graph = part.number.graph

        def of_row(row: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
            here = self.grid.row_of_bins(part.number, row)
            y, x = here.reaches()
            share = here.part_inside()
            values = [share * along_y * along_x for along_y in y.weights for along_x in x.weights]
            empty = zeros(share.kind, bins_x, part.area)
            indices, updates = (
                joined(1, *(value.reshape(bins_x, _samples(share)) for value in each))
                for each in (part.corners(y, x), values)
            )
            filled = graph.op("ScatterElements", [empty, indices, updates], share.kind, axis=1, reduction="add")
            return [], [filled.cast(self.sums)]

        (rows,) = graph.loop(bins_y, of_row)
        return rows.reshape(bins_y * bins_x, part.area)

    def _moved(self, part: _Part, row: Value, pulls: Value) -> Value:
        """The gradient by a region's numbers, [5], of a row of bins that pull at pixels, [PW h w]."""
        here = self.grid.row_of_bins(part.number, row)
        y, x = here.reaches()
        start = (numbers(self.request.bins[1]) * part.area).unsqueeze(1, 2)
        read = [pulls.gather(start + corner) for corner in part.corners(y, x)]
        share = here.part_inside()

        def by(along_y: list[Value], along_x: list[Value]) -> Value:
            low, high = (read[2 * i] * along_x[0] + read[2 * i + 1] * along_x[1] for i in range(2))
            # Not a product with 0 alone: pixels that are not read may be infinite.
            return (share > 0.0).where((low * along_y[0] + high * along_y[1]) * share, 0.0)

        moved = here.moved(by(y.slopes, x.weights), by(y.weights, x.slopes))
        return joined(0, *(one.sum(0, 1, 2).reshape(1) for one in moved))

    def _pixels(self, part: _Part) -> Value:
        """A region's pixels, [C, h w]."""
        image = self.request.images.gather(part.number)
        spans = {0: (image, image + 1), 2: part.rows, 3: part.columns}
        pixels = self.request.feature_map().part(spans).cast(self.sums)
        return pixels.reshape(self.request.map_lengths[1], part.area)

    def _dy(self, part: _Part) -> Value:
        """A region's dY, [C, PH PW]."""
        bins_y, bins_x = self.request.bins
        return self.request.gradient().gather(part.number).reshape(self.request.map_lengths[1], bins_y * bins_x)

    def _each(self, body: Callable[[_Part], Value]) -> Value:
        """What `body` makes of each region, stacked."""

        def of_region(number: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
            return [], [body(self._part(number))]

        images = self.request.images
        count = rounds(images.length(0), self.request.map_lengths[1])
        (stacked,) = images.graph.loop(count, of_region)
        return stacked

    def _part(self, number: Value) -> _Part:
        rows, columns = ((first.gather(number), end.gather(number)) for first, end in self.windows)
        return _Part(number, rows, columns)


def _samples(of: Value) -> Value:
    """How many samples a bin has, of values [PW, KY, KX]."""
    return of.length(1) * of.length(2)
