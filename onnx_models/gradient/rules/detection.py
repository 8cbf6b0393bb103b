"""Rules of RoiAlign and of DirectML's operators: their gradients are this project's operators."""

from __future__ import annotations

from onnx_models.attributes import errors_of, given_values
from onnx_models.build import GRADIENT
from onnx_models.build import node as make_node
from onnx_models.dml_resample import DML_RESAMPLE_GRAD
from onnx_models.dml_roi_align import DML_ROI_ALIGN_GRAD
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.table import Gradients, rule
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
    is_mean = attributes.get("mode", attributes.get("reduction_function")) in ("avg", "average")
    inputs = [dy, rois, indices, graph.shape(x)]
    return added(graph, gradient, inputs if is_mean and not wanted[1] else [*inputs, x], wanted, attributes)
