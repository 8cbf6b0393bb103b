"""What the bodies of all RoI operators are made of: the map's lengths, the regions' coordinates and their images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from onnx_models.portable.graph import Kind, Value, numbers
from onnx_models.portable.sampling import Samples

LARGEST: dict[Kind, float] = {"float": 3.4028234663852886e38, "double": 1.7976931348623157e308}


@dataclass(frozen=True)
class Regions:
    """Regions of a batch of images.

    images: [R], int64: the image of each region.
    map_lengths: N, C, H, W, int64[1] each.
    y, x: the samples along the two axes.
    sums: the element type of sums.
    map: [N, C, H, W] in any element type; None where it is not read.
    """

    images: Value
    map_lengths: tuple[Value, Value, Value, Value]
    y: Samples
    x: Samples
    sums: Kind
    map: Value | None = None

    @property
    def count(self) -> Value:
        """R, int64[1]."""
        return self.images.length(0)

    @property
    def output_lengths(self) -> tuple[Value, Value, Value, Value]:
        """R, C, PH, PW, int64[1] each."""
        return self.count, self.map_lengths[1], self.y.bins, self.x.bins

    def feature_map(self) -> Value:
        """The map, where there is one."""
        if self.map is None:
            raise ValueError("the feature map is not an input of the body that reads it")
        return self.map


def coordinates(rois: Value, most_rank: int, kind: Kind) -> Value:
    """The stored coordinates x1 y1 x2 y2, [R, 4], from a tensor of rank up to `most_rank`."""
    *_, count, columns = rois.lengths_up_to(most_rank)
    return rois.cast(kind).reshape(count, columns)


def checked(
    rois: Value, indices: Value, images: Value, conditions: Sequence[Value]
) -> tuple[tuple[Value, Value, Value, Value], Value]:
    """Coordinates and images of regions that can be pooled; others fail at run time.

    A body cannot say what is wrong. It reads an image that does not exist, which ONNX Runtime refuses on the CPU.

    Args:
        rois: [R, 4].
        indices: [R], int64: the image of each region as it is given.
        images: int64[1], how many there are.
        conditions: bool[1] each, what else has to hold where there are regions.

    Returns:
        x1, y1, x2, y2, [R, 1, 1] each, and the images [R].
    """
    finite = (abs(rois) <= LARGEST[rois.kind]).cast("int64").min(1).equals(1)
    right = reduce(Value.__and__, [finite, indices >= 0, rois.length(0).equals(indices.length(0)), *conditions])
    x1, y1, x2, y2 = right.unsqueeze(1).where(rois, 0.0).unsqueeze(2).entries(4, axis=1)
    return (x1, y1, x2, y2), numbers(images).gather(right.where(indices, images))
