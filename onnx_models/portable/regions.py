# SPDX-License-Identifier: MIT
"""The inputs of the bodies of all RoI operators: the map's lengths, the regions' coordinates and their images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from onnx_models.portable.attributes import BodyRequest
from onnx_models.portable.graph import Kind, Value, arange
from onnx_models.portable.sampling import Samples

LARGEST = float(np.finfo(np.float64).max)
"""The largest coordinate, which is a double."""


@dataclass(frozen=True)
class RoiInputs:
    """The checked inputs of an RoI operator or of its gradient.

    coordinates: the coordinates of each region, [R, 1, 1] each.
    batch_indices: [R], int64: the image of each region.
    map_lengths: N, C, H, W, int64[1] each.
    bins: PH and PW, int64[1] each.
    sums: the element type of sums.
    map: [N, C, H, W] in any element type; None if the node has none.
    dy: [R, C, PH, PW] in the type of sums; None for a forward operator.
    """

    coordinates: tuple[Value, ...]
    batch_indices: Value
    map_lengths: tuple[Value, Value, Value, Value]
    bins: tuple[Value, Value]
    sums: Kind
    map: Value | None
    dy: Value | None

    @property
    def count(self) -> Value:
        """R, int64[1]."""
        return self.batch_indices.length(0)

    @property
    def output_lengths(self) -> tuple[Value, Value, Value, Value]:
        """R, C, PH, PW, int64[1] each."""
        return self.count, self.map_lengths[1], *self.bins

    def pixels(self, image: Value, rows: tuple[Value, Value], columns: tuple[Value, Value]) -> Value:
        """Return a part of an image, [1, C, h, w]; each axis from its first pixel to before its end."""
        return _present(self.map, "the feature map").block({0: (image, image + 1), 2: rows, 3: columns})

    def whole_map(self) -> Value:
        """Return the map in the type of sums, [N, C, H, W]."""
        return _present(self.map, "the feature map").cast(self.sums)

    def pixel_rows(self) -> Value:
        """Return the map's pixels in the type of sums, [N H W, C]."""
        images, channels, height, width = self.map_lengths
        return self.whole_map().transpose(0, 2, 3, 1).reshape(images * height * width, channels)

    def gradient(self) -> Value:
        """Return dY; a ValueError if there is none."""
        return _present(self.dy, "dY")


@dataclass(frozen=True)
class Regions(RoiInputs):
    """Upright regions with their samples along the two axes."""

    y: Samples
    x: Samples


def _present(value: Value | None, name: str) -> Value:
    if value is None:
        raise ValueError(f"{name} is not an input of the body that reads it")
    return value


def read_roi_inputs(given: Mapping[str, Value], request: BodyRequest, *, reads_map: bool) -> RoiInputs:
    """Read and check the inputs of an RoI operator or of its gradient.

    Args:
        given: the inputs by name: map, regions and indices, or for a gradient dY, regions, indices, shape and map.
        request: the requested body.
        reads_map: whether a gradient reads the map, whose shape is then checked.
    """
    operator = request.operator
    dy: Value | None = None
    feature_map: Value | None
    conditions: list[Value] = []
    if operator.is_gradient:
        dy, rois, indices, x_shape = (given[tensor.name] for tensor in operator.inputs[:4])
        feature_map = given.get(operator.inputs[4].name)
        images, channels, height, width = x_shape.cast("int64").entries(4)
        *_, bins_y, bins_x = dy.lengths(4)
        conditions += [bins_y > 0, bins_x > 0]
        if feature_map is not None and reads_map:
            conditions.append(feature_map.shape().equals(x_shape.cast("int64")).cast("int64").min(0).reshape(1) > 0)
    else:
        feature_map, rois, indices = (given[tensor.name] for tensor in operator.inputs)
        images, channels, height, width = feature_map.lengths(4)
        bins_y, bins_x = (
            request.attributes.number(f"output_{size}", "int64").reshape(1) for size in ("height", "width")
        )
    regions, images_of_regions = operator.inputs[1:3]
    *_, count, columns = rois.lengths_up_to(regions.ranks[-1])
    rows = rois.cast("double").reshape(count, columns)
    indices = indices.cast("int64").reshape(indices.lengths_up_to(images_of_regions.ranks[-1])[-1])
    conditions += [height > 0, width > 0]
    of_regions, of_images = check_rois(rows, indices, images, conditions, int(regions.shape[-1]))
    if dy is not None:
        dy = dy.cast(request.sums).reshape(of_images.length(0), channels, bins_y, bins_x)
    lengths = images, channels, height, width
    return RoiInputs(of_regions, of_images, lengths, (bins_y, bins_x), request.sums, feature_map, dy)


def name_gradients(
    given: Mapping[str, Value], request: BodyRequest, dx: Value | None, drois: Value | None
) -> dict[str, Value]:
    """Return the gradients that are not None by the names of outputs, with drois in the shape of the RoIs."""
    if drois is not None:
        drois = drois.shaped_as(given[request.operator.inputs[1].name])
    gradients = zip(request.operator.outputs, (dx, drois), strict=True)
    return {tensor.name: value for tensor, value in gradients if value is not None}


def check_rois(
    rois: Value, indices: Value, images: Value, conditions: Sequence[Value], columns: int
) -> tuple[tuple[Value, ...], Value]:
    """Return the coordinates of regions, [R, 1, 1] each, and their images [R], and make invalid ones fail at run time.

    A body cannot raise an error. It reads an image that does not exist instead, which ONNX Runtime refuses on the CPU.
    `rois` are [R, columns], `indices` the unchecked images [R] of `images`, int64[1], and `conditions` further ones on
    valid regions, bool[1] or [R].
    """
    finite = (abs(rois) <= LARGEST).cast("int64").min(1).equals(1)
    right = reduce(Value.__and__, [finite, indices >= 0, rois.length(0).equals(indices.length(0)), *conditions])
    each = right.unsqueeze(1).where(rois, 0.0).unsqueeze(2).entries(columns, axis=1)
    return tuple(each), arange(images).gather(right.where(indices, images))
