"""The average without control flow, for execution providers without `Loop` and scatter: a few products for all regions.

The weight matrices along y are one matrix for all images, AM [R PH, N H], which is 0 outside of a region's own image. Memory
holds C R PH W numbers, and work grows with the number of images, so this suits few regions of few images.
"""

from __future__ import annotations

from onnx_models.portable import weight_matrices
from onnx_models.portable.average import with_outside
from onnx_models.portable.graph import Value, arange, concat, zeros
from onnx_models.portable.regions import Regions


def forward(regions: Regions, outside: Value | None) -> Value:
    """Return Y [R, C, PH, PW]. A sample off the map is `outside`, or 0 if that is None."""
    a_y, a_x = weight_matrices.mean_weights(regions, "compare")
    y = _along_y(regions, a_y) @ a_x.transpose(0, 2, 1)
    return with_outside(y.transpose(1, 0, 2, 3), regions, outside)


def gradient(regions: Regions, dy: Value) -> Value:
    """Return dX [N, C, H, W] for dY [R, C, PH, PW]."""
    a_y, a_x = weight_matrices.mean_weights(regions, "compare")
    images, channels, height, width = regions.map_lengths
    left = _spread(regions, a_y).transpose(1, 0)
    dx = (left @ _dy_along_x(regions, dy, a_x)).reshape(channels, images, height, width)
    # ONNX Runtime 1.31.1 returns uninitialized memory for a product that sums over a length of 0.
    return (regions.count > 0).where(dx, 0.0).transpose(1, 0, 2, 3)


def roi_gradient(regions: Regions, dy: Value) -> Value:
    """Return the gradient for the regions' coordinates, [R, 4], for dY [R, C, PH, PW], as `average` does."""
    derivatives = weight_matrices.mean_weight_derivatives(regions, "compare")
    if derivatives is None:
        return zeros(dy.kind, regions.count, 4)
    a_y, a_x = weight_matrices.mean_weights(regions, "compare")
    count, channels, bins_y, bins_x = regions.output_lengths
    images, _, height, width = regions.map_lengths
    rows, bands = count * bins_y, images * height
    # The gradient for A_x: for each region the sum over channels and bins of y.
    left = dy.transpose(0, 3, 1, 2).reshape(count, bins_x, channels * bins_y)
    right = _along_y(regions, a_y).transpose(1, 0, 2, 3).reshape(count, channels * bins_y, width)
    by_x = left @ right
    # The gradient for AM: the sum over channels and columns, of which only the region's own image is used.
    t = _dy_along_x(regions, dy, a_x).transpose(1, 0, 2).reshape(rows, channels * width)
    pixels = _rows_of_images(regions).transpose(0, 2, 1).reshape(channels * width, bands)
    by_y = t @ pixels
    (y_by_y1, y_by_y2), (x_by_x1, x_by_x2) = derivatives

    def along_y(table: Value) -> Value:
        return (by_y * _spread(regions, table)).sum(1).reshape(count, bins_y).sum(1)

    each = [(by_x * x_by_x1).sum(1, 2), along_y(y_by_y1), (by_x * x_by_x2).sum(1, 2), along_y(y_by_y2)]
    return concat(1, *(one.unsqueeze(1) for one in each))


def _spread(regions: Regions, table: Value) -> Value:
    """Return weights along y [R, PH, H] as [R PH, N H], in the columns of each region's image."""
    images, _, height, _ = regions.map_lengths
    own = regions.batch_indices.unsqueeze(1).equals(arange(images)).cast(table.kind)
    spread = table.unsqueeze(2) * own.unsqueeze(1, 3)
    return spread.reshape(regions.count * regions.y.bins, images * height)


def _rows_of_images(regions: Regions) -> Value:
    """Return the map as [C, N H, W]."""
    images, channels, height, width = regions.map_lengths
    pixels = regions.feature_map().cast(regions.sums)
    return pixels.transpose(1, 0, 2, 3).reshape(channels, images * height, width)


def _along_y(regions: Regions, a_y: Value) -> Value:
    """Return A_y X for each region, [C, R, PH, W]."""
    count, channels, bins_y, _ = regions.output_lengths
    product = _spread(regions, a_y) @ _rows_of_images(regions)
    return product.reshape(channels, count, bins_y, regions.map_lengths[3])


def _dy_along_x(regions: Regions, dy: Value, a_x: Value) -> Value:
    """Return dY A_x for each region, [C, R PH, W]."""
    count, channels, bins_y, _ = regions.output_lengths
    product = dy.transpose(1, 0, 2, 3) @ a_x
    return product.reshape(channels, count * bins_y, regions.map_lengths[3])
