"""The bodies of RoIAlignRotated and of its gradient.

The weights of a bin are a row of a matrix A [PH PW, h w] of its region, where h x w are the pixels that the region can read.
So Y is A X, dX is A^T dY, and the gradient for A, from which that for the region follows, is dY^T X. `Loop` iterates over
regions, and an inner one over rows of bins: memory holds one matrix and the samples of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx_models.portable import at_once
from onnx_models.portable.at_once import SampleGrid
from onnx_models.portable.attributes import BodyRequest
from onnx_models.portable.average import pad_to_count, sum_by_image, trip_count
from onnx_models.portable.graph import Value, arange, concat, zeros
from onnx_models.portable.regions import RoiInputs, name_gradients, read_roi_inputs
from onnx_models.portable.rotated_grid import Grid, Window, grid
from onnx_models.portable.sampling import AxisTaps


def outputs(given: Mapping[str, Value], request: BodyRequest) -> dict[str, Value]:
    """Return the wanted outputs by name."""
    a = request.attributes
    by_rois = "drois" in request.wanted
    roi_inputs = read_roi_inputs(given, request, reads_map=by_rois)
    samples_grid = grid(
        roi_inputs,
        aligned=a.number("aligned", "double"),
        clockwise=a.number("clockwise", "double"),
        scale=a.number("spatial_scale", "double"),
        ratio=a.number("sampling_ratio", "double"),
        listed=request.few_samples("sampling_ratio"),
    )
    if request.at_once:
        every = _at_once(roi_inputs, samples_grid.all_bins())
        if not request.operator.is_gradient:
            return {"Y": at_once.forward(every, "avg", None)}
        gradients = at_once.gradients(
            every, "avg", roi_inputs.gradient(), by_map="dX" in request.wanted, by_rois=by_rois
        )
        return name_gradients(given, request, *gradients)
    body = _Body(roi_inputs, samples_grid, samples_grid.windows())
    if not request.operator.is_gradient:
        return {"Y": body.forward()}
    dx = body.gradient() if "dX" in request.wanted else None
    return name_gradients(given, request, dx, body.roi_gradient() if by_rois else None)


def _at_once(roi_inputs: RoiInputs, every: Grid) -> SampleGrid:
    exists = every.height.exists & every.width.exists
    return SampleGrid(
        roi_inputs, *every.axis_taps(), exists, every.inside(), every.sample_weights(), every.roi_derivatives
    )


@dataclass(frozen=True)
class _Part:
    """One region: its index, int64[1], and the pixels that it can read, the first and the one after the last."""

    number: Value
    rows: tuple[Value, Value]
    columns: tuple[Value, Value]

    @property
    def width(self) -> Value:
        """The width w of these pixels, int64[1]."""
        return self.columns[1] - self.columns[0]

    @property
    def area(self) -> Value:
        """The number h w of these pixels, int64[1]."""
        return (self.rows[1] - self.rows[0]) * self.width

    def corners(self, y: AxisTaps, x: AxisTaps) -> list[Value]:
        """Return the pixels that samples read, as flat indices within the part."""
        rows, columns = (
            # Rounding can move a sample of a very large region out of its part.
            [(pixel.cast("int64") - ends[0]).at_least(0).at_most(ends[1] - ends[0] - 1) for pixel in taps.pixels]
            for taps, ends in ((y, self.rows), (x, self.columns))
        )
        return [row * self.width + column for row in rows for column in columns]


@dataclass(frozen=True)
class _Body:
    """The body; `windows` are the grid's."""

    roi_inputs: RoiInputs
    grid: Grid
    windows: tuple[Window, Window]

    def forward(self) -> Value:
        """Return Y [R, C, PH, PW]."""

        def of_region(part: _Part) -> Value:
            return self._pixels(part) @ self._matrix(part).transpose(1, 0)

        return self._each(of_region).reshape(*self.roi_inputs.output_lengths)

    def gradient(self) -> Value:
        """Return dX [N, C, H, W]."""
        _, channels, height, width = self.roi_inputs.map_lengths
        none = self.roi_inputs.batch_indices.graph.constant([0], "int64")
        after_rows, after_columns = height - self.windows[0][1], width - self.windows[1][1]

        def of_one(number: Value) -> Value:
            part = self._part(number.reshape(1))
            found = self._dy(part) @ self._matrix(part)
            found = found.reshape(channels, part.rows[1] - part.rows[0], part.width)
            after = after_rows.gather(part.number), after_columns.gather(part.number)
            ends = [none, part.rows[0], part.columns[0], none, *after]
            return found.op("Pad", concat(0, *ends))

        return sum_by_image(self.roi_inputs.batch_indices, self.roi_inputs.map_lengths, self.roi_inputs.sums, of_one, 1)

    def roi_gradient(self) -> Value:
        """Return the gradient for the regions' coordinates, [R, 5]."""
        bins_y, bins_x = self.roi_inputs.bins

        def of_region(part: _Part) -> Value:
            weight_gradients = self._dy(part).transpose(1, 0) @ self._pixels(part)
            weight_gradients = weight_gradients.reshape(bins_y, bins_x * part.area).cast("double")

            def of_row(row: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
                return [], [self._roi_derivatives(part, row, weight_gradients.gather(row).squeeze(0))]

            (derivatives,) = weight_gradients.graph.loop(bins_y, of_row)
            return derivatives.sum(0).cast(self.roi_inputs.sums)

        channels = self.roi_inputs.map_lengths[1]
        return pad_to_count(self._each(of_region), self.roi_inputs.count, channels, 5)

    def _matrix(self, part: _Part) -> Value:
        """Return the matrix A of a region, [PH PW, h w]."""
        bins_y, bins_x = self.roi_inputs.bins
        graph = part.number.graph

        def of_row(row: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
            here = self.grid.row_of_bins(part.number, row)
            y, x = here.axis_taps()
            sample_weights = here.sample_weights()
            values = [sample_weights * along_y * along_x for along_y in y.weights for along_x in x.weights]
            empty = zeros(sample_weights.kind, bins_x, part.area)
            indices, updates = (
                concat(1, *(value.reshape(bins_x, _samples(sample_weights)) for value in each))
                for each in (part.corners(y, x), values)
            )
            return [], [
                empty.op("ScatterElements", indices, updates, axis=1, reduction="add").cast(self.roi_inputs.sums)
            ]

        (rows,) = graph.loop(bins_y, of_row)
        return rows.reshape(bins_y * bins_x, part.area)

    def _roi_derivatives(self, part: _Part, row: Value, weight_gradients: Value) -> Value:
        """Return the gradient for a region's coordinates, [5], given that for a row of bins' weights, [PW h w]."""
        here = self.grid.row_of_bins(part.number, row)
        y, x = here.axis_taps()
        start = (arange(self.roi_inputs.bins[1]) * part.area).unsqueeze(1, 2)
        read = [weight_gradients.gather(start + corner) for corner in part.corners(y, x)]
        sample_weights = here.sample_weights()

        def by(along_y: list[Value], along_x: list[Value]) -> Value:
            low, high = (read[2 * i] * along_x[0] + read[2 * i + 1] * along_x[1] for i in range(2))
            # A product with 0 is not enough: unread pixels may be infinite.
            return (sample_weights > 0.0).where((low * along_y[0] + high * along_y[1]) * sample_weights, 0.0)

        derivatives = here.roi_derivatives(by(y.weight_derivatives, x.weights), by(y.weights, x.weight_derivatives))
        return concat(0, *(one.sum(0, 1, 2).reshape(1) for one in derivatives))

    def _pixels(self, part: _Part) -> Value:
        """Return a region's pixels, [C, h w]."""
        image = self.roi_inputs.batch_indices.gather(part.number)
        pixels = self.roi_inputs.pixels(image, part.rows, part.columns).cast(self.roi_inputs.sums)
        return pixels.reshape(self.roi_inputs.map_lengths[1], part.area)

    def _dy(self, part: _Part) -> Value:
        """Return a region's dY, [C, PH PW]."""
        bins_y, bins_x = self.roi_inputs.bins
        return self.roi_inputs.gradient().gather(part.number).reshape(self.roi_inputs.map_lengths[1], bins_y * bins_x)

    def _each(self, body: Callable[[_Part], Value]) -> Value:
        """Return the stacked results of `body` for each region."""

        def of_region(number: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
            return [], [body(self._part(number))]

        images = self.roi_inputs.batch_indices
        count = trip_count(self.roi_inputs.count, self.roi_inputs.map_lengths[1])
        (stacked,) = images.graph.loop(count, of_region)
        return stacked

    def _part(self, number: Value) -> _Part:
        rows, columns = ((first.gather(number), end.gather(number)) for first, end in self.windows)
        return _Part(number, rows, columns)


def _samples(of: Value) -> Value:
    """Return the number of samples of a bin in values [PW, KY, KX]."""
    return of.length(1) * of.length(2)
