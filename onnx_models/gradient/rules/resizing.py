"""The rule of Resize, by way of DirectML's resampling, which has a gradient."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from onnx_models.dml_resample import DML_RESAMPLE_GRAD
from onnx_models.gradient.graph import Graph, Length, Node
from onnx_models.gradient.rules.detection import added
from onnx_models.gradient.rules.table import Gradients, rule
from onnx_models.resize import resample_attributes
from ortops.spec import AttributeValue

_ROI, _SCALES, _SIZES = 1, 2, 3
"""Numbers of inputs."""


@rule("Resize")
def resize(graph: Graph, node: Node, dy: str) -> Gradients:
    """The resampling that computes the same, with the ratio of the lengths for a scale where sizes are given."""
    for i, name in enumerate(node.inputs):
        if i > 0 and node.wants(i):
            raise ValueError(f"{node} has no gradient rule for its input {name!r}")
    axes = _axes(graph, node)
    attributes = _resample_attributes(graph, node, axes)
    x_shape = graph.shape(node.input(0))
    if not _may_shrink_to_one(node, axes):
        return added(graph, DML_RESAMPLE_GRAD, [dy, x_shape], [True], attributes)
    # Where Y has one pixel, pytorch_half_pixel reads the first one of X: as if X had no other.
    one = graph.ints([1])
    read = graph.op("Where", graph.op("Equal", graph.op("Shape", dy), one), one, x_shape)
    (by_read,) = added(graph, DML_RESAMPLE_GRAD, [dy, read], [True], attributes)
    zeros = graph.ints([0] * len(axes))
    rest = graph.op("Concat", zeros, graph.op("Sub", x_shape, read), axis=0)
    return [graph.op("Pad", str(by_read), rest)]


@dataclass(frozen=True)
class _Axis:
    """What is known of an axis before the run.

    x, y: its lengths, None for one that is not known. is_kept: it is not resized at all, whatever its length.
    scale: from the node's scales, None where it has sizes. size: from the node's sizes, None where they are no constant.
    is_chosen: whether scales or sizes have a value for it.
    """

    x: int | None
    y: int | None
    is_kept: bool
    scale: float | None
    size: int | None
    is_chosen: bool

    @property
    def argument(self) -> int | None:
        """The length of X that the attributes are made for. That of an axis that is kept does not matter."""
        if self.is_kept and self.x is None:
            return 1
        is_sized = self.scale is None and self.is_chosen
        return None if is_sized and self.size is None and self.y is None else self.x

    @property
    def wanted(self) -> int:
        """The length of Y that the attributes are made for. Where it is not known, that of X is not given either."""
        if self.is_kept and self.x is None:
            return 1
        return next((length for length in (self.size, self.y) if length is not None), 1)


def _axes(graph: Graph, node: Node) -> list[_Axis]:
    x = node.input(0)
    rank = graph.rank(x, node)
    if rank == 0:
        raise ValueError(f"{node}: {x!r} has rank 0: must have axes")
    lengths = [graph.lengths(name) or [None] * rank for name in (x, node.outputs[0])]
    chosen = [axis % rank for axis in node.attribute("axes") or range(rank)]
    scales, sizes = _constant(graph, node, _SCALES), _constant(graph, node, _SIZES)
    if not scales and not node.input(_SIZES):
        raise ValueError(f"{node} has no gradient: scales = {node.input(_SCALES)!r} must be a constant")
    if not sizes and not scales and _policy(node) != "stretch":
        raise ValueError(
            f"{node} has no gradient: sizes = {node.input(_SIZES)!r} must be a constant "
            f"for keep_aspect_ratio_policy = {_policy(node)!r}"
        )
    cropped = _cropped(graph, node, chosen)
    axes = []
    for axis, (before, after) in enumerate(zip(*lengths, strict=True)):
        i = chosen.index(axis) if axis in chosen else None
        scale = float(scales[i]) if scales and i is not None else None
        is_same = i is None or scale == 1 or (not scales and before is not None and before == after)
        axes.append(
            _Axis(
                _number(before),
                _number(after),
                is_same and axis not in cropped,
                scale,
                int(sizes[i]) if sizes and not scales and i is not None else None,
                i is not None,
            )
        )
    return axes


def _policy(node: Node) -> str:
    return str(node.attribute("keep_aspect_ratio_policy", "stretch"))


def _constant(graph: Graph, node: Node, i: int) -> list[float]:
    """The values of an input, none where it is not there or no constant."""
    value = graph.constant(node.input(i)) if node.input(i) else None
    return [] if value is None else list(value.tolist())


def _cropped(graph: Graph, node: Node, chosen: list[int]) -> list[int]:
    """The axes of which a part alone is read, or of which that is not known."""
    if node.attribute("coordinate_transformation_mode") != "tf_crop_and_resize":
        return []
    roi = _constant(graph, node, _ROI)
    if len(roi) != 2 * len(chosen):
        return chosen
    parts = zip(chosen, roi[: len(chosen)], roi[len(chosen) :], strict=True)
    return [axis for axis, start, end in parts if (start, end) != (0, 1)]


def _number(length: Length) -> int | None:
    return length if isinstance(length, int) else None


def _may_shrink_to_one(node: Node, axes: list[_Axis]) -> bool:
    """Whether pytorch_half_pixel could mean two things, as only the run time knows the lengths."""
    if node.attribute("coordinate_transformation_mode") != "pytorch_half_pixel":
        return False
    opened = [axis for axis in axes if axis.y is None and axis.size is None and not axis.is_kept]
    return any(axis.scale is None or axis.scale < 1 for axis in opened)


def _resample_attributes(graph: Graph, node: Node, axes: list[_Axis]) -> dict[str, AttributeValue]:
    """Those of DmlResampleGrad."""
    given = {one.name: onnx.helper.get_attribute_value(one) for one in node.proto.attribute}
    if _may_shrink_to_one(node, axes):
        given["coordinate_transformation_mode"] = "half_pixel"
    chosen = [axes[axis % len(axes)] for axis in node.attribute("axes") or range(len(axes))]
    scales = [axis.scale for axis in chosen if axis.scale is not None]
    try:
        attributes = resample_attributes(
            given,
            [axis.argument for axis in axes],
            scales=scales,
            sizes=[] if scales else [axis.wanted for axis in chosen],
            roi=_constant(graph, node, _ROI),
            opset=node.version,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{node} has no gradient: {error}") from error
    del attributes["output_sizes"]
    return attributes
