# SPDX-License-Identifier: MIT
"""The bodies of MaxRoiPool and of its gradient: maxima of samples that read one pixel each."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_models.portable import samples
from onnx_models.portable.attributes import BodyRequest
from onnx_models.portable.graph import Value, arange
from onnx_models.portable.regions import RoiInputs, check_rois
from onnx_models.portable.samples import Bins, Pooling, SampleGrid
from onnx_models.portable.sampling import AxisTaps, largest_count
from ortops.operators.max_roi_pool import MAX_COORDINATE


def outputs(given: Mapping[str, Value], request: BodyRequest) -> dict[str, Value]:
    """Return the wanted outputs by name."""
    if not request.operator.is_gradient:
        bins_y, bins_x = (request.attributes.entry("pooled_shape", axis, "int64") for axis in range(2))
        return {"Y": samples.forward(_pooling(given, request, (bins_y, bins_x), []), None)}
    count, channels, bins_y, bins_x = given["dY"].lengths(4)
    is_like_x = channels.equals(given["X"].lengths(4)[1])
    conditions = [bins_y > 0, bins_x > 0, count.equals(given["rois"].length(0)), is_like_x]
    pooling = _pooling(given, request, (bins_y, bins_x), conditions)
    dy = given["dY"].cast(request.sums).reshape(*pooling.roi_inputs.output_lengths)
    dx, _ = samples.gradients(pooling, dy, by_map=True, by_rois=0)
    return {} if dx is None else {"dX": dx}


def _pooling(
    given: Mapping[str, Value], request: BodyRequest, bins: tuple[Value, Value], conditions: list[Value]
) -> Pooling:
    """Return the pixels of all bins as samples of one pixel each."""
    rois, scale = given["rois"], request.attributes.number("spatial_scale", "double")
    images, channels, height, width = given["X"].lengths(4)
    count, columns = rois.lengths(2)
    stored = rois.cast("double").reshape(count, columns)
    batch_id, *_ = stored.entries(5, axis=1)
    batch_id = batch_id.reshape(count)
    conditions = [height > 0, width > 0, batch_id.floor().equals(batch_id), *conditions]
    (_, x1, y1, x2, y2), batch_indices = check_rois(stored, batch_id.cast("int64"), images, conditions, 5)
    roi_inputs = RoiInputs((), batch_indices, (images, channels, height, width), bins, request.sums, given["X"], None)
    (y, counts_y), (x, counts_x) = (
        _pixels(y1 * scale, y2 * scale, bins[0], height),
        _pixels(x1 * scale, x2 * scale, bins[1], width),
    )
    share = scale.graph.constant(1.0, "double")

    def grid(of: Bins) -> SampleGrid:
        along_y, along_x = of.along_y(y), of.along_x(x)
        exists = (along_y >= 0) & (along_x >= 0)
        taps_y, taps_x = (AxisTaps([along.at_least(0)], [], []) for along in (along_y, along_x))
        return SampleGrid(of, taps_y, taps_x, exists, exists, share, lambda *_: [])

    return Pooling(roi_inputs, (counts_y, counts_x), grid, "max", request.without_loops)


def _pixels(first: Value, last: Value, bins: Value, length: Value) -> tuple[Value, Value]:
    """Return the pixels of bins along an axis and their number, at least 1, [R, P, K] and [R, P], int64.

    A bin of fewer pixels than others has -1 after them.

    Args:
        first: the first pixel of each region, [R, 1, 1], not rounded yet.
        last: the last pixel, likewise.
        bins: P, int64[1].
        length: the length of the axis, int64[1].
    """
    start, end = _rounded(first), _rounded(last)
    zero = start.graph.constant(0, "int64")
    # Not Max and Min, which are wrong for int64 beyond 32 bits in ONNX Runtime 1.31.1.
    size = (start < end).where(end - start, zero) + 1
    p = arange(bins)
    low = start + p * size // bins
    # Rounded up.
    high = start + ((p + 1) * size + bins - 1) // bins
    low, high = ((end > 0).where((end < length).where(end, length), zero).squeeze(1) for end in (low, high))
    counts = (low < high).where(high - low, 1)
    pixel = low.unsqueeze(2) + arange(largest_count(counts))
    return (pixel < high.unsqueeze(2)).where(pixel, -1), counts


def _rounded(end: Value) -> Value:
    """Round to whole pixels, int64, and halves away from 0."""
    size = abs(end).at_most(float(MAX_COORDINATE))
    # Not floor(size + 0.5), since the sum may round up to the next integer.
    below = size.floor()
    whole = (below + (size - below >= 0.5).cast("double")).cast("int64")
    return (end < 0.0).where(whole * -1, whole)
