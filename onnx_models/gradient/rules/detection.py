"""Rules of RoiAlign, of DirectML's operators and of the gradients of these: all are this project's operators.

An average is linear in the feature map: the gradient of its gradient is the average again. What is no operator of ours, as
the change of an average along a change of its regions, is left to the operator's body in standard operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_models.attributes import errors_of, given_values
from onnx_models.build import GRADIENT
from onnx_models.build import node as make_node
from onnx_models.dml_resample import DML_RESAMPLE_GRAD
from onnx_models.dml_roi_align import DML_ROI_ALIGN_GRAD
from onnx_models.gradient.graph import Graph, Length, Node
from onnx_models.gradient.rules.table import Gradients, Incoming, Part, Zero, rule, rule_of_outputs
from onnx_models.roi_align import ROI_ALIGN
from ortops.operators import BY_NAME
from ortops.spec import DOMAIN, AttributeValue, Operator


@rule("RoiAlign")
def roi_align(graph: Graph, node: Node, dy: str) -> Gradients:
    """ONNX's RoiAlign."""
    forward = ROI_ALIGN[max(opset for opset in ROI_ALIGN if opset <= node.version)]
    return _by_map_and_regions(graph, node, dy, forward, GRADIENT)


@rule("RoiAlign_10", "RoiAlign_16", "RoiAlign_22", domain=DOMAIN)
def our_roi_align(graph: Graph, node: Node, dy: str) -> Gradients:
    """This project's operators of the same meaning."""
    return _by_map_and_regions(graph, node, dy, BY_NAME[node.proto.op_type], GRADIENT)


@rule("DmlRoiAlign", domain=DOMAIN)
def dml_roi_align(graph: Graph, node: Node, dy: str) -> Gradients:
    """DirectML's RoiAlign."""
    return _by_map_and_regions(graph, node, dy, BY_NAME["DmlRoiAlign"], DML_ROI_ALIGN_GRAD)


@rule("DmlResample", domain=DOMAIN)
def dml_resample(graph: Graph, node: Node, dy: str) -> Gradients:
    """DirectML's resampling."""
    attributes = _attributes(node, BY_NAME["DmlResample"], DML_RESAMPLE_GRAD)
    x_shape = graph.shape(node.input(0))
    return added(graph, DML_RESAMPLE_GRAD, [dy, x_shape], [True], attributes)


@rule_of_outputs("RoiAlignGrad", domain=DOMAIN)
def roi_align_grad(graph: Graph, node: Node, incoming: Incoming) -> Gradients | None:
    """The gradients of RoiAlign."""
    return _of_gradient(graph, node, incoming, ROI_ALIGN[22], GRADIENT)


@rule_of_outputs("DmlRoiAlignGrad", domain=DOMAIN)
def dml_roi_align_grad(graph: Graph, node: Node, incoming: Incoming) -> Gradients | None:
    """The gradients of DirectML's RoiAlign."""
    return _of_gradient(graph, node, incoming, BY_NAME["DmlRoiAlign"], DML_ROI_ALIGN_GRAD)


@rule_of_outputs("DmlResampleGrad", domain=DOMAIN)
def dml_resample_grad(graph: Graph, node: Node, incoming: Incoming) -> Gradients | None:
    """The gradient of DirectML's resampling, which is linear: resampling itself."""
    sizes = _numbers(graph.lengths(node.input(0)))
    if sizes is None:
        return None
    attributes = _attributes(node, DML_RESAMPLE_GRAD, DML_RESAMPLE_GRAD) | {"output_sizes": sizes}
    return added(graph, BY_NAME["DmlResample"], [str(incoming[0])], [True], attributes)


def _attributes(node: Node, forward: Operator, gradient: Operator) -> dict[str, AttributeValue]:
    """Those of the gradient of a node: the node's own, given or by default, or what its operator fixes."""
    with errors_of(str(node)):
        checked = forward.check_attributes(given_values(forward, node.proto))
    return {one.name: checked[one.name] for one in gradient.attributes}


def added(
    graph: Graph, operator: Operator, inputs: list[str], wanted: list[bool], attributes: dict[str, AttributeValue]
) -> list[str | None]:
    """Add a node that names all outputs of its operator, "" for an unwanted one; the names of its outputs."""
    names = [graph.name(operator.name) if one else "" for one in wanted]
    graph.add(make_node(operator, inputs, names, attributes, name=names[wanted.index(True)]))
    return [name or None for name in names]


def _by_map_and_regions(graph: Graph, node: Node, dy: str, forward: Operator, gradient: Operator) -> Gradients:
    """The gradients of RoiAlign, ONNX's or DirectML's: the feature map is read where the node needs it."""
    x, rois, indices = node.inputs
    wanted = [node.wants(0), node.wants(1)]
    if not any(wanted):
        raise ValueError(f"{node} has no gradient by its input {indices!r}")
    attributes = _attributes(node, forward, gradient)
    inputs = [dy, rois, indices, graph.shape(x)]
    return added(graph, gradient, inputs if is_average(node) and not wanted[1] else [*inputs, x], wanted, attributes)


def is_average(node: Node) -> bool:
    """Whether a node of an operator of this file is linear in its first input: it takes no maximum."""
    return node.attribute("mode", node.attribute("reduction_function", "avg")) in ("avg", "average")


def _of_gradient(
    graph: Graph, node: Node, incoming: Incoming, forward: Operator, gradient: Operator
) -> Gradients | None:
    """The gradients by dY and the regions of dX, an average's gradient by the map.

    With dX = A' dY, where the regions make A, and the gradient U by dX they are those of the sum of U times A' dY: A U by
    dY, and by the regions what the gradient of an average of U is with dY. None for what is not of that kind.
    """
    by_dx, by_drois = incoming[0], incoming[1] if len(incoming) > 1 else None
    dy, rois, indices, x_shape = node.inputs[:4]
    lengths = graph.lengths(dy)
    sizes = None if lengths is None else _numbers(lengths[2:])
    if by_dx is None or by_drois is not None or sizes is None or not is_average(node):
        return None
    attributes = _attributes(node, gradient, gradient)
    output = dict(zip(("output_height", "output_width"), sizes, strict=True))
    by_dy: Part = None
    by_rois: Part = None
    if node.wants(0):
        (by_dy,) = added(graph, forward, [by_dx, rois, indices], [True], attributes | output)
    if node.wants(1):
        by_rois = added(graph, gradient, [dy, rois, indices, x_shape, by_dx], [False, True], attributes)[1]
    return [by_dy, by_rois, None, None, Zero("the gradient of an average by the feature map does not depend on it")]


def _numbers(lengths: Sequence[Length] | None) -> list[int] | None:
    """Lengths that are all known, else None."""
    numbers = [length for length in lengths or [] if isinstance(length, int)]
    return numbers if lengths is not None and len(numbers) == len(lengths) else None
