# SPDX-License-Identifier: MIT
"""The bodies of multi-scale deformable attention and of its gradient: the four pixels around each point, gathered.

Levels' sizes are data, so no GridSample for each level can take part. A zero pixel after the last of each image stands for
all pixels off the map.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import product

from onnx_models.portable.attributes import BodyRequest
from onnx_models.portable.graph import Value, arange, concat, zeros


def outputs(given: Mapping[str, Value], request: BodyRequest) -> dict[str, Value]:
    """Return the wanted outputs by name."""
    kind, value = request.sums, given["value"].cast(request.sums)
    locations, weights = given["sampling_locations"].cast("double"), given["attention_weights"].cast(kind).unsqueeze(5)
    images, pixels, heads, channels = value.lengths(4)
    _, queries, _, levels, _ = given["attention_weights"].lengths(5)
    one = value.graph.constant([1], "int64")
    rows = concat(1, value, zeros(kind, images, 1, heads, channels)).reshape(images * (pixels + 1) * heads, channels)
    height, width = (each.reshape(levels, 1) for each in given["spatial_shapes"].cast("int64").entries(2, axis=1))
    start = _start(given, height * width, levels)
    end = start + height * width
    is_valid = (height > 0) & (width > 0) & (start >= 0) & (end <= pixels)
    last = concat(0, value.graph.constant([0], "int64"), end.reshape(levels)).slice(0, levels, levels + one)
    is_valid = is_valid & ((height * width).sum(0) <= pixels)
    if "level_start_index" not in given:
        is_valid = is_valid & last.equals(pixels)
    x, y = (entry.squeeze(5) for entry in locations.entries(2, axis=5))
    x, y = x * width.cast("double") - 0.5, y * height.cast("double") - 0.5
    is_on_map = (x >= -1.0) & (x < width.cast("double")) & (y >= -1.0) & (y < height.cast("double"))
    x, y = is_on_map.where(x, -1.0), is_on_map.where(y, -1.0)
    left, top = x.floor(), y.floor()
    fx, fy = ((each - first).cast(kind).unsqueeze(5) for each, first in ((x, left), (y, top)))
    image, head = arange(images).unsqueeze(1, 2, 3, 4), arange(heads).unsqueeze(1, 2)
    numbers: dict[tuple[int, int], Value] = {}
    for down, right in product(range(2), range(2)):
        row, column = top.cast("int64") + down, left.cast("int64") + right
        is_pixel = is_on_map & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        # An invalid level reads a row that does not exist, which ONNX Runtime refuses on the CPU.
        pixel = is_valid.where(is_pixel.where(start + row * width + column, pixels), images * (pixels + 1))
        numbers[down, right] = (image * (pixels + 1) + pixel) * heads + head
    around = {corner: rows.gather(number) for corner, number in numbers.items()}
    shares = {(down, right): _part(fy, down) * _part(fx, right) for down, right in numbers}
    sample = _sum(around[corner] * shares[corner] for corner in numbers)
    if not request.operator.is_gradient:
        return {"Y": (sample * weights).sum(3, 4).reshape(images, queries, heads * channels)}
    g = given["dY"].cast(kind).reshape(images, queries, heads, 1, 1, channels)
    gradients: dict[str, Value] = {}
    if "dweights" in request.wanted:
        gradients["dweights"] = (g * sample).sum(5)
    if "dlocations" in request.wanted:
        across = _sum((around[down, 1] - around[down, 0]) * _part(fy, down) for down in range(2))
        along = _sum((around[1, right] - around[0, right]) * _part(fx, right) for right in range(2))
        slopes = [
            (g * slope).sum(5).unsqueeze(5) * weights * length.cast(kind).unsqueeze(2)
            for slope, length in ((across, width), (along, height))
        ]
        gradients["dlocations"] = is_on_map.unsqueeze(5).where(concat(5, *slopes), 0.0)
    if "dvalue" in request.wanted:
        total = zeros(kind, images * (pixels + 1) * heads, channels)
        for corner, number in numbers.items():
            added = (g * weights * shares[corner]).reshape(number.op("Size", kind="int64").reshape(1), channels)
            total = total.op("ScatterND", number.reshape(-1).unsqueeze(1), added, reduction="add")
        every = total.reshape(images, pixels + 1, heads, channels)
        gradients["dvalue"] = every.slice(1, value.graph.constant([0], "int64"), pixels)
    return gradients


def _start(given: Mapping[str, Value], sizes: Value, levels: Value) -> Value:
    """Return the first pixel of each level, [L, 1]."""
    if "level_start_index" in given:
        return given["level_start_index"].cast("int64").reshape(levels, 1)
    return sizes.op("CumSum", sizes.graph.constant(0, "int64"), exclusive=1)


def _part(fraction: Value, is_second: int) -> Value:
    """Return the weight of the first or of the second of two pixels."""
    return fraction if is_second else 1.0 - fraction


def _sum(values: Iterable[Value]) -> Value:
    return reduce(Value.__add__, values)
