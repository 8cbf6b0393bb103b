"""Random cases of operators with RoIs: what RoiAlign, DmlRoiAlign, MaxRoiPool and RoIAlignRotated share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from conformance.case import Array, Case
from conformance.families.upright.geometry import Geometry
from ortops.spec import AttributeValue, Operator

if TYPE_CHECKING:
    from conformance.families.random_draw import DrawnCase, RandomDraw


class Sizes(NamedTuple):
    """The lengths of a case with RoIs; `ratio` is the number of samples of a bin along an axis, 0 for adaptive."""

    images: int
    channels: int
    height: int
    width: int
    rois: int
    bins_y: int
    bins_x: int
    ratio: int


LARGEST = Sizes(images=300, channels=300, height=1000, width=1000, rois=300, bins_y=70, bins_x=70, ratio=33)
"""The largest lengths that occur in practice."""


OFTEN = (*Sizes._fields, "images", "channels", "channels", "rois", "rois")
"""The axes that may be large in a large case; those listed twice are more likely."""


KINDS = ("inside", "across", "mirrored", "flat", "point", "outside", "huge")
"""The positions and shapes of random RoIs."""


def random_sizes(draw: RandomDraw) -> Sizes:
    """Draw small lengths. In some cases one or two are large, and the others are then even smaller."""
    is_large = draw.is_large()
    bins, ratios = ((1, 2, 4), (0, 1, 2)) if draw.exact else ((1, 2, 3, 4, 7), (0, 0, 1, 2, 3, 5))
    few = 2 if is_large else len(ratios)
    x_shape = draw.integer(1, 3), draw.integer(0, few) or 1, draw.integer(1, 9), draw.integer(1, 9)
    rois, bins_y, bins_x = draw.integer(is_large, few), draw.choice(bins[:few]), draw.choice(bins[:few])
    sizes = Sizes(*x_shape, rois, bins_y, bins_x, draw.choice(ratios[: few + 1]))
    names = [draw.choice(OFTEN) for _ in range(draw.integer(1, 2) if is_large else 0)]
    if is_large and draw.chance(0.2):
        names = ["height", "width"]
    for name in names:
        # If two axes are large, each is shorter; height and width less so.
        part = 1 if len(names) == 1 else 3 if name in ("height", "width") else 4
        sizes = sizes._replace(**{name: draw.length(getattr(LARGEST, name) // part + 1)})
    return sizes


def random_rois(draw: RandomDraw, sizes: Sizes, scale_y: float, scale_x: float) -> Array:
    """Draw RoIs x1, y1, x2, y2 in stored coordinates, [R, 4]."""
    count, ends = sizes.rois, np.array([sizes.width, sizes.height] * 2)
    corners = np.sort(draw.uniform(0, 1, (count, 2, 2)), axis=1)
    if draw.chance(0.5):  # sizes of several orders of magnitude, as in large maps
        middle = corners.mean(axis=1, keepdims=True)
        corners = middle + (corners - middle) * np.exp(draw.uniform(-4, 0, (count, 1, 1)))
    kinds = ("inside", draw.choice(KINDS), draw.choice(KINDS))
    rois = np.array([_moved(draw, roi, draw.choice(kinds)) for roi in corners.reshape(-1, 4)]).reshape(-1, 4) * ends
    if draw.exact:
        rois = np.round(np.clip(rois, -512, 512) * 4) / 4
    if draw.chance(0.1):  # bins slightly larger than a whole number of pixels, which adaptive sampling rounds up
        whole = draw.integers(0, 3, (count, 2)) * [sizes.bins_x, sizes.bins_y]
        rois[:, 2:] = rois[:, :2] + whole + draw.choice((1 / 64, 1e-3))
    if draw.chance(0.15):  # the same box more than once
        rois = rois[draw.integers(0, max(count // 2, 1) - 1, (count,)).astype(int)]
    largest = 6e4 if draw.dtype == np.float16 else np.inf
    return np.asarray(np.clip(rois / np.array([scale_x, scale_y] * 2), -largest, largest))


def _moved(draw: RandomDraw, roi: Array, kind: str) -> Array:
    """Move or reshape a RoI to one of the `KINDS`; the map reaches from 0 to 1."""
    if kind == "mirrored":
        roi = roi[list(draw.choice(((2, 3, 0, 1), (2, 1, 0, 3), (0, 3, 2, 1))))]
    if kind == "flat":
        roi = roi[list(draw.choice(((0, 1, 2, 1), (0, 1, 0, 3))))]
    return {
        "across": roi * 2 - 0.5,
        "point": roi[[0, 1, 0, 1]],
        "outside": roi + draw.integer(-3, 3),
        "huge": (roi - 0.5) * draw.choice((30.0, 1e3, 1e6)),
    }.get(kind, roi)


def random_indices(draw: RandomDraw, images: int, count: int) -> Array:
    """Draw the images of RoIs, [R]: from all images or only some of them, in random or ascending order."""
    some = draw.some(draw.integer(1, images), images) if draw.chance(0.4) else np.arange(images)
    indices = some[draw.integers(0, len(some) - 1, (count,)).astype(int)]
    return np.sort(indices) if draw.chance(0.3) else indices


def with_tensors(
    draw: RandomDraw,
    operator: Operator,
    attributes: dict[str, AttributeValue],
    names: Mapping[str, str],
    sizes: Sizes,
    x: Array,
    rois: Array,
    indices: Array,
) -> DrawnCase:
    """The parts of a case of an operator with RoIs; for a gradient this draws dY and the outputs.

    Args:
        draw: the random choices.
        operator: the definition.
        attributes: the drawn attributes.
        names: the names of the tensors by role, see `conformance.families.upright.geometry`.
        sizes: the drawn lengths.
        x: the map, [N, C, H, W].
        rois: RoIs in stored coordinates, [R, 4] or [R, 5].
        indices: the image of each RoI, [R].
    """
    outputs = tuple(tensor.name for tensor in operator.outputs)
    inputs = {names["x"]: x, names["rois"]: rois, names["indices"]: indices}
    if not operator.is_gradient:
        return attributes, inputs, outputs
    outputs = draw.choice((outputs, outputs[:1], outputs[1:]))
    inputs |= {names["dy"]: draw.values((sizes.rois, sizes.channels, *sizes[5:7])), "x_shape": np.array(sizes[:4])}
    (optional,) = (tensor for tensor in operator.inputs if tensor.optional)
    if operator.why_required(optional, attributes, outputs) is None and draw.chance(0.5):
        del inputs[names["x"]]
    return attributes, inputs, outputs


def work(case: Case) -> float:
    """An estimate of the number of samples that the reference computes for a valid case."""
    geometry = Geometry(case)
    _, channels, height, width = geometry.x_shape
    # The reference converts the image to a list for each RoI, and computes the corners of a sample once for all channels.
    lists = len(geometry.rois) * channels * height * width / 300
    return lists + sum(y.on_map * x.on_map for y, x in geometry.placed()) * (channels + 2)
