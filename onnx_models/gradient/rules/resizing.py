# SPDX-License-Identifier: MIT
"""The rule of Resize: by a convolution, by DmlResampleGrad, or by one matrix product for each axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
import onnx

from onnx_models.gradient.graph import GradientGraph, Node
from onnx_models.gradient.ours import DML_RESAMPLE_GRAD, AttributeValue
from onnx_models.gradient.registry import Gradients, rule
from onnx_models.gradient.rules.own import add_operator
from onnx_models.resize import resample_attributes
from onnx_models.tools.nodes import downcast, upcast

_ROI, _SCALES, _SIZES = 1, 2, 3
"""Indices of the inputs."""

_PARTS = 64
"""With scales that are multiples of 1/64, the coordinates that mode nearest rounds are exact in float32."""


@rule("Resize")
def resize(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The gradient by a convolution, by DmlResampleGrad or by a matrix product for each axis.

    Where all axes grow by integers, a convolution with a stride gathers dY. Other scales take DmlResampleGrad, with ratios
    of lengths as scales if the node has sizes. In other cases, such as cubic, antialias, scales that are known at run time
    only, and align_corners where axes grow by integers, each axis is multiplied by its interpolation matrix, whose size is
    the product of the lengths of X and Y along the axis.
    """
    for i, name in enumerate(node.inputs):
        if i > 0 and node.wants(i):
            what = "region" if i == _ROI else "scale"
            raise ValueError(
                f"{node} has no gradient with respect to its input {name!r}, a {what}: only X of Resize has one"
            )
    axes = _axes(graph, node)
    try:
        attributes = _resample_attributes(graph, node, axes)
    except ValueError as error:
        if _has_sizes(graph, node) and _policy(node) != "stretch":
            # One axis determines the scale of all others, which a matrix for each axis cannot express.
            raise ValueError(
                f"{node} has no gradient for keep_aspect_ratio_policy = {_policy(node)!r} in this case: {error}"
            ) from error
        return [_by_axes(graph, node, dy, axes)]
    if (scales := _integers(axes)) is not None:
        if node.attribute("coordinate_transformation_mode") == "align_corners":
            return [_by_axes(graph, node, dy, axes)]
        by_convolution = upsampling_gradient(
            graph, node.input(0), dy, [reads(attributes, i, scale) for i, scale in enumerate(scales)]
        )
        if by_convolution is not None:
            return [by_convolution]
    x_shape = graph.shape(node.input(0))
    if not _may_shrink_to_one(node, axes):
        return add_operator(graph, DML_RESAMPLE_GRAD, [dy, x_shape], [True], attributes)
    # If Y has one pixel, pytorch_half_pixel reads the first pixel of X, as if X had no other.
    one = graph.ints([1])
    read = graph.op("Where", graph.op("Equal", graph.op("Shape", dy), one), one, x_shape)
    (by_read,) = add_operator(graph, DML_RESAMPLE_GRAD, [dy, read], [True], attributes)
    zeros = graph.ints([0] * len(axes))
    rest = graph.op("Concat", zeros, graph.op("Sub", x_shape, read), axis=0)
    return [graph.op("Pad", str(by_read), rest)]


@dataclass(frozen=True)
class _Axis:
    """What is known about an axis before the model runs.

    x, y: its lengths, None if unknown. is_kept: whether it is never resized, whatever its length.
    scale: from the node's scales, None if it has sizes. size: from the node's sizes, None if these are not constant.
    place: its index in scales, sizes and the halves of roi, None if these have no value for it.
    is_cropped: whether only a part of it is read, or may be.
    """

    x: int | None
    y: int | None
    is_kept: bool
    is_cropped: bool
    scale: float | None
    size: int | None
    place: int | None

    @property
    def argument(self) -> int | None:
        """The length of X to compute the attributes for; 1 for an axis that is kept, where it does not matter."""
        if self.is_kept and self.x is None:
            return 1
        is_sized = self.scale is None and self.place is not None
        return None if is_sized and self.size is None and self.y is None else self.x

    @property
    def wanted(self) -> int:
        """The length of Y to compute the attributes for; if it is unknown, `argument` is None."""
        if self.is_kept and self.x is None:
            return 1
        return next((length for length in (self.size, self.y) if length is not None), 1)


def _axes(graph: GradientGraph, node: Node) -> list[_Axis]:
    x = node.input(0)
    rank = graph.rank(x, node)
    if rank == 0:
        raise ValueError(f"{node}: {x!r} has rank 0: must have axes")
    lengths = [graph.lengths(name) or [None] * rank for name in (x, node.outputs[0])]
    chosen = [axis % rank for axis in node.attribute("axes") or range(rank)]
    scales, sizes = _constant(graph, node, _SCALES), _constant(graph, node, _SIZES)
    cropped = _cropped(graph, node, chosen)
    axes = []
    for axis, (before, after) in enumerate(zip(*lengths, strict=True)):
        place, is_cropped = chosen.index(axis) if axis in chosen else None, axis in cropped
        scale = float(scales[place]) if scales and place is not None else None
        size = int(sizes[place]) if sizes and not scales and place is not None else None
        is_same = place is None or scale == 1 or (_has_sizes(graph, node) and before is not None and before == after)
        x_length, y_length = (length if isinstance(length, int) else None for length in (before, after))
        axes.append(_Axis(x_length, y_length, is_same and not is_cropped, is_cropped, scale, size, place))
    return axes


def _integers(axes: list[_Axis]) -> list[int] | None:
    """The integers by which the axes grow; None if some axis does not, or if none does."""
    scales = []
    for axis in axes:
        if axis.is_cropped:
            return None
        length = axis.y if axis.size is None else axis.size
        ratio = Fraction(length, axis.x) if length and axis.x else Fraction(0)
        scales.append(Fraction(1) if axis.is_kept else ratio if axis.scale is None else Fraction(axis.scale))
    is_growing = all(scale.denominator == 1 and scale >= 1 for scale in scales) and max(scales) > 1
    return [int(scale) for scale in scales] if is_growing else None


def _has_sizes(graph: GradientGraph, node: Node) -> bool:
    """Whether the node has sizes instead of scales; the other of the two may be an empty tensor."""
    return bool(node.input(_SIZES)) and graph.lengths(node.input(_SIZES)) != [0]


def _policy(node: Node) -> str:
    return str(node.attribute("keep_aspect_ratio_policy", "stretch"))


def _constant(graph: GradientGraph, node: Node, i: int) -> list[float]:
    """The values of an input; [] if it is omitted or not constant."""
    value = graph.constant(node.input(i)) if node.input(i) else None
    return [] if value is None else list(value.tolist())


def _cropped(graph: GradientGraph, node: Node, chosen: list[int]) -> list[int]:
    """The axes of which only a part is read, or may be."""
    if node.attribute("coordinate_transformation_mode") != "tf_crop_and_resize":
        return []
    roi = _constant(graph, node, _ROI)
    if len(roi) != 2 * len(chosen):
        return chosen
    parts = zip(chosen, roi[: len(chosen)], roi[len(chosen) :], strict=True)
    return [axis for axis, start, end in parts if (start, end) != (0, 1)]


def _may_shrink_to_one(node: Node, axes: list[_Axis]) -> bool:
    """Whether Y may have one pixel along an axis at run time, a special case of pytorch_half_pixel."""
    if node.attribute("coordinate_transformation_mode") != "pytorch_half_pixel":
        return False
    opened = [axis for axis in axes if axis.y is None and axis.size is None and not axis.is_kept]
    return any(axis.scale is None or axis.scale < 1 for axis in opened)


def _may_be_copied(axes: list[_Axis]) -> bool:
    """Whether ONNX Runtime (1.31 at least) may copy X although scales or regions change it.

    It copies X if Y has the same shape, and it copies an axis whose scale is 1 even if it is cropped.
    """
    resized = [axis for axis in axes if not axis.is_kept]

    def may(axis: _Axis) -> bool:
        if axis.x is not None and axis.y is not None:
            return axis.x == axis.y
        return axis.is_cropped or (axis.scale is not None and 1 < axis.scale < 2)

    if any(axis.is_cropped and (axis.scale == 1 or (axis.scale is None and may(axis))) for axis in resized):
        return True
    # With a scale of 1.5 or more, an axis whose length does not change has one pixel.
    has_one = all(axis.x is None and not axis.is_cropped and (axis.scale or 0) >= 1.5 for axis in resized)
    return bool(resized) and all(may(axis) for axis in resized) and not has_one


def _is_exact(graph: GradientGraph, node: Node, axes: list[_Axis]) -> bool:
    """Whether coordinates are exact in float32; if not, runtimes may read another pixel for mode nearest."""
    simple = ("half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn")
    if node.attribute("coordinate_transformation_mode", "half_pixel") not in simple:
        return False
    policy, ratios = _policy(node), []
    for axis in axes:
        size = axis.size if axis.y is None or policy != "stretch" else axis.y
        if axis.place is None or (axis.is_kept and policy == "stretch"):
            continue
        if axis.scale is None and not (size and axis.x):
            return False
        ratios.append(Fraction(axis.scale) if axis.scale is not None else Fraction(size or 0, axis.x or 1))
    if policy != "stretch" and _has_sizes(graph, node):
        ratios = [min(ratios) if policy == "not_larger" else max(ratios)]
    return all((ratio * _PARTS).denominator == 1 for ratio in ratios)


def _resample_attributes(graph: GradientGraph, node: Node, axes: list[_Axis]) -> dict[str, AttributeValue]:
    """The attributes of DmlResampleGrad.

    Raises:
        ValueError: it cannot compute the gradient of this node.
    """
    if not _has_sizes(graph, node) and not _constant(graph, node, _SCALES):
        raise ValueError(f"scales = {node.input(_SCALES)!r} must be a constant")
    if not _constant(graph, node, _SIZES) and _has_sizes(graph, node) and _policy(node) != "stretch":
        raise ValueError(f"sizes = {node.input(_SIZES)!r} must be a constant")
    if _may_be_copied(axes):
        raise ValueError("Y must not have the shape of X, since runtimes then copy X")
    of_node = dict(node.attributes)
    if _may_shrink_to_one(node, axes):
        of_node["coordinate_transformation_mode"] = "half_pixel"
    chosen = [axes[axis % len(axes)] for axis in node.attribute("axes") or range(len(axes))]
    scales = [axis.scale for axis in chosen if axis.scale is not None]
    attributes = resample_attributes(
        of_node,
        [axis.argument for axis in axes],
        scales=scales,
        sizes=[] if scales else [axis.wanted for axis in chosen],
        roi=_constant(graph, node, _ROI),
        opset=node.version,
    )
    if node.attribute("mode", "nearest") == "nearest" and not _is_exact(graph, node, axes):
        raise ValueError("coordinates for mode nearest must be exact in float32")
    del attributes["output_sizes"]
    return attributes


def _by_axes(graph: GradientGraph, node: Node, dy: str, axes: list[_Axis]) -> str:
    """The gradient of X, one axis after the other, by matrices that the node itself computes from unit columns."""
    x, y = node.input(0), node.output(0)
    gradient = upcast(graph, dy)
    before, after, one = graph.op("Shape", x), graph.op("Shape", y), graph.ints([1])
    # ONNX Runtime (1.31 at least) copies X if Y has its shape, whatever the attributes say: the columns get a width of 2, so
    # that the shapes differ, unless the node itself copies.
    is_copy = graph.op("ReduceMin", graph.op("Cast", graph.op("Equal", before, after), to=onnx.TensorProto.INT64))
    width = graph.op("Sub", graph.ints([2]), graph.op("Reshape", is_copy, one))
    for number, axis in enumerate(axes):
        if axis.place is None or axis.is_kept:
            continue
        lengths = tuple(graph.op("Gather", shape, graph.ints([number])) for shape in (before, after))
        # The axes before this one have the lengths of X by now.
        done, rest = graph.op("Shape", x, end=number), graph.op("Shape", y, start=number + 1)
        first, last = (graph.op("ReduceProd", part, keepdims=1) for part in (done, rest))
        gradient = graph.in_shape(gradient, first, lengths[1], last)
        column = _Column(graph, node, axis.place, lengths[0], lengths[1], width)
        matrix = graph.op("Transpose", column.matrix(gradient), perm=[1, 0])
        # A product of two matrices: ONNX Runtime fails at a batched one without samples.
        rows = graph.op("Transpose", gradient, perm=[0, 2, 1])
        lines = graph.in_shape(rows, graph.op("Mul", first, last), lengths[1])
        multiplied = graph.in_shape(graph.op("MatMul", lines, matrix), first, last, lengths[0])
        gradient = graph.op("Transpose", multiplied, perm=[0, 2, 1])
        gradient = graph.in_shape(gradient, done, lengths[0], rest)
    return downcast(graph, gradient, x)


@dataclass(frozen=True)
class _Column:
    """A node applied to columns, to resize only one axis.

    place: index of the axis in the node's inputs. x, y, width: names of int64 [1] tensors: the axis's lengths, and the width
    that a column is resized to, of which the first column is read.
    """

    graph: GradientGraph
    node: Node
    place: int
    x: str
    y: str
    width: str

    def matrix(self, like: str) -> str:
        """The interpolation matrix [X, Y]: the weight of each pixel of X in each of Y; in the element type of `like`.

        The node resizes unit columns, one for each pixel of X, with extrapolated pixels set to 0.
        """
        graph, node = self.graph, self.node
        square = graph.op("Expand", graph.number(0.0, like), graph.op("Concat", self.x, self.x, axis=0))
        columns = graph.op("Unsqueeze", graph.op("EyeLike", square), graph.ints([0, 3]))
        attributes = {k: value for k, value in node.attributes.items() if k not in ("axes", "keep_aspect_ratio_policy")}
        attributes["extrapolation_value"] = 0.0
        roi, one = "", graph.ints([1])
        if node.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
            chosen = len(node.attribute("axes") or graph.lengths(node.input(0)) or [])
            starts, ends = (
                self._among(_ROI, place, graph.ints([whole]))
                for place, whole in ((self.place, 0), (chosen + self.place, 1))
            )
            roi = graph.op("Concat", starts, ends, axis=0)
        if _has_sizes(graph, node):
            sizes = graph.op("Concat", one, self.x, self.y, self.width, axis=0)
            resized = graph.op("Resize", columns, roi, "", sizes, **attributes)
        else:
            resized = graph.op("Resize", columns, roi, self._among(_SCALES, self.place, one, self.width), **attributes)
        return graph.op("Squeeze", graph.op("Gather", resized, graph.integer(0), axis=3), graph.ints([0]))

    def _among(self, i: int, place: int, other: str, last: str = "") -> str:
        """The values of an input for columns: that of this axis, and `other` and `last` for the other axes."""
        graph = self.graph
        value = graph.op("Gather", self.node.input(i), graph.ints([place]))
        others = [graph.op("CastLike", name, value) for name in (other, last or other)]
        return graph.op("Concat", others[0], others[0], value, others[1], axis=0)


_MAX_SPATIAL = 3
"""The most axes that runtimes convolve along."""


@dataclass(frozen=True)
class Reads:
    """The outputs along an axis that read a pixel of the input: pixel t is read by outputs from t * scale - pads[0] on.

    scale: the number of outputs for each pixel.
    weights: the weight of the pixel in each of these outputs.
    beyond: how many pixels before and after the input are read, which are copies of its first and its last pixel.
    pads: by how many outputs the windows of the first and the last of all these pixels extend beyond the axis.
    """

    scale: int
    weights: tuple[float, ...]
    beyond: tuple[int, int]
    pads: tuple[int, int]


def reads(attributes: Mapping[str, AttributeValue], axis: int, scale: int) -> Reads:
    """The outputs that read each pixel along an axis of a DmlResample node whose length grows by the integer `scale`.

    Output k * scale + r is at the coordinate k + c, where c depends on r alone.
    """
    begin, end = (Fraction(attributes[f"{name}_pixel_offsets"][axis]) for name in ("input", "output"))
    parts: dict[int, list[Fraction]] = {}
    for r in range(scale):
        c = (r - end) / scale - begin
        if attributes["interpolation_mode"] == "linear":
            low = math.floor(c)
            weights_at = {low: 1 - (c - low), low + 1: c - low}
        else:
            weights_at = {
                math.ceil(c) if attributes["rounding_direction"] == "increasing" else math.floor(c): Fraction(1)
            }
        for offset, weight in weights_at.items():
            if weight:
                parts.setdefault(offset, [Fraction(0)] * scale)[r] = weight
    before, after = max(0, -min(parts)), max(0, *parts)
    # Output t * scale + (r - d * scale) reads pixel t at offset d.
    weights = [weight for d in range(after, -before - 1, -1) for weight in parts.get(d, [Fraction(0)] * scale)]
    used = [i for i, weight in enumerate(weights) if weight]
    whole = (before + after) * scale
    pads = whole - used[0], whole - (len(weights) - 1 - used[-1])
    return Reads(scale, tuple(float(weight) for weight in weights[used[0] : used[-1] + 1]), (before, after), pads)


def upsampling_gradient(graph: GradientGraph, x: str, dy: str, axes: Sequence[Reads]) -> str | None:
    """The gradient of x; None if runtimes cannot convolve along that many axes."""
    first = next((i for i, axis in enumerate(axes) if axis.scale > 1), len(axes))
    lengths = graph.lengths(x) or [None] * len(axes)
    # Convolving each channel separately is twice as fast as convolving as many samples, but there must be a channel: ONNX
    # Runtime (1.32 at least) divides by the number of channels.
    channels = lengths[1] if first >= 2 and lengths[1] else None
    lead = 2 if isinstance(channels, int) else first
    if not 1 <= len(axes) - lead <= _MAX_SPATIAL:
        return None
    # ONNX Runtime convolves an empty axis only if it has pads.
    may_be_empty = [
        not any(axis.pads) and (n == 0 or not isinstance(n, int)) for axis, n in zip(axes, lengths, strict=True)
    ]
    gradient, resized = upcast(graph, dy), axes[lead:]
    kernel = reduce(np.multiply.outer, (np.array(axis.weights) for axis in resized))[None, None]
    weights = graph.tensor(kernel.astype(np.float32))
    if graph.element_type(gradient) != onnx.TensorProto.FLOAT:
        weights = graph.op("CastLike", weights, gradient)
    if isinstance(channels, int):
        weights = graph.op("Expand", weights, graph.ints([channels, 1, *kernel.shape[2:]]))
    else:
        samples = graph.op("ReduceProd", graph.shape(dy, 0, lead), keepdims=1)
        gradient = graph.in_shape(gradient, samples, 1, graph.shape(dy, lead))
    spare = [axis.scale * is_open for axis, is_open in zip(resized, may_be_empty[lead:], strict=True)]
    pads = [axis.pads[0] for axis in resized] + [axis.pads[1] + n for axis, n in zip(resized, spare, strict=True)]
    group = channels if isinstance(channels, int) else 1
    gradient = graph.op("Conv", gradient, weights, strides=[axis.scale for axis in resized], pads=pads, group=group)
    if not isinstance(channels, int):
        gradient = graph.in_shape(gradient, graph.shape(dy, 0, lead), graph.op("Shape", gradient, start=2))
    for number, axis in enumerate(axes):
        if any(axis.beyond) or (number >= lead and may_be_empty[number]):
            gradient = _folded(graph, gradient, x, number, axis)
    return downcast(graph, gradient, x)


def _folded(graph: GradientGraph, gradient: str, x: str, axis: int, read: Reads) -> str:
    """The gradient of the input's pixels. Gradients of the copies beyond it are added to its first and last pixel."""
    places, (before, after) = graph.ints([axis]), read.beyond
    length = graph.shape(x, axis, axis + 1)
    start = graph.ints([before])
    end = graph.op("Add", start, length)
    rest = graph.op("Sub", length, graph.ints([1]))
    zero = graph.ints([0])
    parts = [graph.op("Slice", gradient, start, end, places)]
    for count, ends, pads in ((before, (zero, start), (zero, rest)), (after, (end, graph.ints([2**62])), (rest, zero))):
        if count:
            edge = graph.op("ReduceSum", graph.op("Slice", gradient, *ends, places), places)
            parts.append(graph.op("Pad", edge, graph.op("Concat", *pads, axis=0), "", places))
    return graph.total(parts)
