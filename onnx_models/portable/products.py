"""The average over each bin of all regions at once, and its gradients, as products with the weight matrices of the regions.

It is for `onnx_models.lower`, for bins with many samples or an unknown number of them. Along an axis, the regions share one
matrix, which has the pixels of all images as columns. Memory holds the products along one axis, [R, P, C, L].
"""

from __future__ import annotations

from onnx_models.portable import weight_matrices
from onnx_models.portable.graph import Value, arange, concat, zeros
from onnx_models.portable.regions import Regions


def forward(regions: Regions, outside: Value | None) -> Value:
    """Return Y [R, C, PH, PW]. A sample off the map is `outside`, or 0 if that is None."""
    a_y, a_x = weight_matrices.mean_weights(regions)
    count, channels, bins_y, bins_x = regions.output_lengths
    rows = _along(regions, a_y, 2) @ a_x.transpose(0, 2, 1)
    y = rows.reshape(count, bins_y, channels, bins_x).transpose(0, 2, 1, 3)
    return weight_matrices.with_outside(regions, y, outside)


def gradient(regions: Regions, dy: Value) -> Value:
    """Return dX [N, C, H, W] for dY [R, C, PH, PW]: the sum of A_y^T dY A_x over the regions."""
    a_y, a_x = weight_matrices.mean_weights(regions)
    images, channels, height, width = regions.map_lengths
    shared = _shared(regions, a_y)
    rows = _rows(regions, dy, 2) @ a_x
    found = shared.transpose(1, 0) @ rows.reshape(shared.length(0), channels * width)
    return found.reshape(images, height, channels, width).transpose(0, 2, 1, 3)


def roi_gradient(regions: Regions, dy: Value) -> Value:
    """Return the gradient for the regions' coordinates, [R, 4], for dY [R, C, PH, PW]; see `average.roi_gradient`."""
    derivatives = weight_matrices.mean_weight_derivatives(regions)
    if derivatives is None:
        return zeros(dy.kind, regions.count, 4)
    a_y, a_x = weight_matrices.mean_weights(regions)
    by_x = _rows(regions, dy, 2).transpose(0, 2, 1) @ _along(regions, a_y, 2)
    by_y = _rows(regions, dy, 3).transpose(0, 2, 1) @ _along(regions, a_x, 3)
    (y_by_y1, y_by_y2), (x_by_x1, x_by_x2) = derivatives
    each = by_x * x_by_x1, by_y * y_by_y1, by_x * x_by_x2, by_y * y_by_y2
    return concat(1, *(one.sum(1, 2).unsqueeze(1) for one in each))


def _along(regions: Regions, weights: Value, axis: int) -> Value:
    """Return the products of weights [R, P, L] with the map along one of its axes, [R, P C, other axis]."""
    images, channels, *sides = regions.map_lengths
    length, other = sides[axis - 2], sides[3 - axis]
    pixels = regions.whole_map().transpose(0, axis, 1, 5 - axis).reshape(images * length, channels * other)
    return (_shared(regions, weights) @ pixels).reshape(regions.count, weights.length(1) * channels, other)


def _shared(regions: Regions, weights: Value) -> Value:
    """Return the matrix of all regions for all images, [R P, N L], for weights [R, P, L]."""
    images = regions.map_lengths[0]
    is_own = regions.batch_indices.unsqueeze(1).equals(arange(images)).cast(weights.kind)
    placed = weights.unsqueeze(2) * is_own.unsqueeze(1, 3)
    return placed.reshape(regions.count * weights.length(1), images * weights.length(2))


def _rows(regions: Regions, dy: Value, axis: int) -> Value:
    """Return dY [R, C, PH, PW] as [R, P C, other axis], with the bins along `axis` first."""
    count, channels, *bins = regions.output_lengths
    return dy.transpose(0, axis, 1, 5 - axis).reshape(count, bins[axis - 2] * channels, bins[3 - axis])
