"""The rule of users' operators, whose gradients are operators of users, too (`ortops.operator`)."""

from __future__ import annotations

from onnx_models.build import node as make_node
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.registry import Gradients, Incoming
from onnx_models.tools.attributes import CUSTOM, custom_of, node_attribute_values, prefix_errors


def custom_rule(graph: Graph, node: Node, incoming: Incoming) -> Gradients | None:
    """The gradients of a node of a user's operator; None for other nodes, and where the operator names no gradient.

    Raises:
        ValueError: the gradient is not registered, or one of its inputs has a name that the operator does not have.
    """
    forward = custom_of(node.proto)
    if forward is None or forward.gradient is None:
        return None
    domain, _, name = forward.gradient.rpartition("::")
    gradient = CUSTOM.get((domain or forward.domain, name))
    if gradient is None:
        raise ValueError(
            f"{node} has the gradient {forward.gradient}: must be among operators= "
            "(--operators), or be given to onnx_models.register_schemas"
        )
    known: dict[str, str] = dict.fromkeys((tensor.name for tensor in forward.inputs), "")
    known |= {tensor.name: own for tensor, own in zip(forward.inputs, node.inputs, strict=False)}
    for tensor, own, dy in zip(forward.outputs, node.outputs, incoming, strict=False):
        known |= {tensor.name: own, f"d{tensor.name}": dy or (graph.zeros(own) if own else "")}
    for tensor in gradient.inputs:
        if tensor.name not in known:
            raise ValueError(
                f"{node}: the input {tensor.name} of its gradient {gradient.label} must be one of {', '.join(known)}"
            )
    with prefix_errors(str(node)):
        checked = forward.check_attributes(node_attribute_values(forward, node.proto))
    attributes = {one.name: checked[one.name] for one in gradient.attributes if one.name in checked}
    names = [graph.name(gradient.name) for _ in gradient.outputs]
    made = make_node(gradient, [known[tensor.name] for tensor in gradient.inputs], names, attributes, name=names[0])
    made.doc_string = "An operator of a user: runs in sessions that have it among their operators."
    graph.add(made)
    return names
