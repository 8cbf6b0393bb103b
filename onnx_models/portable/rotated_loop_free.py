"""RoIAlignRotated without control flow, for execution providers without `Loop` and scatter: one matrix for all regions.

Memory holds R PH PW (N H W + KY KX (H + W)) numbers, so this suits few small maps.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx_models.portable.graph import Kind, Value, arange, concat
from onnx_models.portable.regions import RoiInputs
from onnx_models.portable.rotated_grid import Grid


@dataclass(frozen=True)
class LoopFree:
    """The body without control flow."""

    roi_inputs: RoiInputs
    grid: Grid
    sums: Kind

    def forward(self) -> Value:
        """Return Y [R, C, PH, PW]."""
        count, channels, bins_y, bins_x = self.roi_inputs.output_lengths
        y = self._pixels() @ self._matrix().transpose(1, 0)
        return y.reshape(channels, count, bins_y, bins_x).transpose(1, 0, 2, 3)

    def gradient(self) -> Value:
        """Return dX [N, C, H, W]."""
        images, channels, height, width = self.roi_inputs.map_lengths
        dx = (self._dy() @ self._matrix()).reshape(channels, images, height, width)
        # ONNX Runtime 1.31.1 returns uninitialized memory for a product that sums over a length of 0.
        return (self.roi_inputs.batch_indices.length(0) > 0).where(dx, 0.0).transpose(1, 0, 2, 3)

    def roi_gradient(self) -> Value:
        """Return the gradient for the regions' coordinates, [R, 5]."""
        count, _, bins_y, bins_x = self.roi_inputs.output_lengths
        images, _, height, width = self.roi_inputs.map_lengths
        every = self._dy().transpose(1, 0) @ self._pixels()
        every = every.reshape(count, bins_y * bins_x, images, height * width)
        weight_gradients = self._own().where(every, 0.0).sum(2).reshape(count, bins_y, bins_x, height, width)
        grid = self.grid.every_bin()
        y, x = grid.axis_taps()
        sample_weights = grid.sample_weights()
        by_y = (self._table(x.pixels, x.weights, width) @ weight_gradients.transpose(0, 1, 2, 4, 3)) * (
            self._table(y.pixels, y.weight_derivatives, height)
        )
        by_x = (self._table(y.pixels, y.weights, height) @ weight_gradients) * self._table(
            x.pixels, x.weight_derivatives, width
        )
        derivatives = grid.roi_derivatives(
            *(by.sum(4).shaped_as(sample_weights) * sample_weights for by in (by_y, by_x))
        )
        return concat(1, *(one.sum(1, 2, 3, 4).unsqueeze(1) for one in derivatives))

    def _matrix(self) -> Value:
        """Return the weights of all pixels of all images in all bins, [R PH PW, N H W]."""
        count, _, bins_y, bins_x = self.roi_inputs.output_lengths
        images, _, height, width = self.roi_inputs.map_lengths
        grid = self.grid.every_bin()
        y, x = grid.axis_taps()
        sample_weights = grid.sample_weights()
        rows = self._table(y.pixels, [weight * sample_weights for weight in y.weights], height)
        columns = self._table(x.pixels, x.weights, width)
        taken = rows.transpose(0, 1, 2, 4, 3) @ columns
        spread = self._own().where(taken.reshape(count, bins_y * bins_x, 1, height * width), 0.0)
        return spread.reshape(count * bins_y * bins_x, images * height * width)

    def _table(self, pixels: list[Value], values: list[Value], length: Value) -> Value:
        """Return the weights of the pixels along an axis in each sample, [R, PH, PW, KY KX, L]."""
        count, _, bins_y, bins_x = self.roi_inputs.output_lengths
        line = arange(length)

        def of_tap(pixel: Value, value: Value) -> Value:
            samples = pixel.length(3) * pixel.length(4)
            shape = count, bins_y, bins_x, samples, 1
            matches = pixel.cast("int64").reshape(*shape).equals(line)
            return matches.where(value.reshape(*shape), 0.0)

        low, high = map(of_tap, pixels, values)
        return low + high

    def _own(self) -> Value:
        """Return whether an image is a region's own, [R, 1, N, 1]."""
        return self.roi_inputs.batch_indices.unsqueeze(1).equals(arange(self.roi_inputs.map_lengths[0])).unsqueeze(1, 3)

    def _pixels(self) -> Value:
        """Return the map as [C, N H W]."""
        images, channels, height, width = self.roi_inputs.map_lengths
        pixels = self.roi_inputs.feature_map().cast(self.sums).transpose(1, 0, 2, 3)
        return pixels.reshape(channels, images * height * width)

    def _dy(self) -> Value:
        """Return dY as [C, R PH PW]."""
        count, channels, bins_y, bins_x = self.roi_inputs.output_lengths
        return self.roi_inputs.gradient().transpose(1, 0, 2, 3).reshape(channels, count * bins_y * bins_x)
