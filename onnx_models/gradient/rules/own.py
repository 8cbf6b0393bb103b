# SPDX-License-Identifier: MIT
"""Rules of this project's operators, of the standard operators that they implement, and of users' operators.

The rules follow from the operators' definitions: `Operator.gradient` names the gradient operator, whose inputs have the
names of the forward operator's inputs. An operator that is linear in its first input is the gradient of its own gradient.
Derivatives for which there is no operator, such as that of a gradient with respect to RoIs, use the operator's body.
"""

from __future__ import annotations

from onnx_models.build import node as make_node
from onnx_models.gradient.graph import GradientGraph, Node
from onnx_models.gradient.ours import BY_NAME, DOMAIN, OPERATORS, STANDARD, AttributeValue, Operator
from onnx_models.gradient.registry import Gradients, Incoming, Part, Zero, multi_output_rule, rule
from onnx_models.tools.attributes import CUSTOM, custom_of, node_attribute_values, prefix_errors


def forward_of(node: Node) -> Operator:
    """This project's operator that computes a forward node, one of ours or a standard one."""
    if node.proto.op_type in BY_NAME:
        return BY_NAME[node.proto.op_type]
    name = node.proto.op_type
    return STANDARD[name, max(opset for known, opset in STANDARD if known == name and opset <= node.version)]


def is_linear(node: Node) -> bool:
    """Whether the operator is linear in the feature map, so that the gradient with respect to the map does not read it."""
    operator = forward_of(node)
    gradient = BY_NAME[operator.gradient] if operator.gradient else operator
    by_map = gradient.outputs[0]
    attributes = {a.name: node.attribute(a.name, a.default) for a in gradient.attributes}
    maps = [tensor for tensor in gradient.inputs if tensor.shape == by_map.shape]
    return all(t.optional and gradient.why_required(t, attributes, [by_map.name]) is None for t in maps)


def forward_rule(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The gradients of a forward node."""
    forward = forward_of(node)
    gradient = BY_NAME[str(forward.gradient)]
    reasons = [tensor.zero_gradient_reason for tensor in forward.inputs]
    zeros: list[Part] = [Zero(reason) if reason else None for reason in reasons]
    places = [next(i for i, given in enumerate(forward.inputs) if given.shape == t.shape) for t in gradient.outputs]
    wanted = [node.wants(i) for i in places]
    if not any(wanted):
        if not any(zeros):
            raise ValueError(f"{node} has no gradient with respect to its input {node.inputs[-1]!r}")
        return zeros
    attributes = _attributes(node, forward, gradient)
    names = [tensor.name for tensor, is_wanted in zip(gradient.outputs, wanted, strict=True) if is_wanted]
    values = {tensor.name: name for tensor, name in zip(forward.inputs, node.inputs, strict=True)}
    inputs = [dy]
    for tensor in gradient.inputs[1:]:
        if tensor.element_axes:
            inputs.append(graph.shape(node.input(0)))
        elif not tensor.needs_reason or gradient.why_required(tensor, attributes, names) is not None:
            inputs.append(values[tensor.name])
    gradients = dict(zip(places, add_operator(graph, gradient, inputs, wanted, attributes), strict=True))
    return [gradients.get(i, zero) for i, zero in enumerate(zeros)]


def gradient_rule(graph: GradientGraph, node: Node, incoming: Incoming) -> Gradients | None:
    """The gradients of a gradient operator with respect to dY and the RoIs, if the forward operator is linear in X.

    Then dX = A' dY, where A depends on the RoIs. Let U be the gradient with respect to dX. The gradient with respect to dY
    is A U, which the forward operator computes. The one with respect to the RoIs is that of the forward operator applied to
    U, with dY as the gradient of its output. None in other cases.
    """
    gradient = BY_NAME[node.proto.op_type]
    forward = next(operator for operator in reversed(OPERATORS) if operator.gradient == gradient.name)
    by_dx, *by_others = incoming
    sizes = _sizes(graph, node, forward) if is_linear(node) else None
    if by_dx is None or any(by_others) or sizes is None:
        return None
    attributes = _attributes(node, gradient, gradient)
    values = dict(zip((tensor.name for tensor in gradient.inputs), node.inputs, strict=False))
    parts: list[Part] = [None] * len(node.inputs)
    if node.wants(0):
        inputs = [by_dx, *(values[tensor.name] for tensor in forward.inputs[1:])]
        (parts[0],) = add_operator(graph, forward, inputs, [True], attributes | sizes)
    if node.wants(1):
        inputs = [*node.inputs[: len(gradient.inputs) - 1], by_dx]
        parts[1] = add_operator(graph, gradient, inputs, [False, True], attributes)[1]
    if len(node.inputs) == len(gradient.inputs) and gradient.inputs[-1].optional:
        parts[-1] = Zero("the gradient of an average with respect to the feature map does not depend on the map")
    return parts


def _attributes(node: Node, forward: Operator, gradient: Operator) -> dict[str, AttributeValue]:
    """The attributes of the gradient operator, from the node's attributes and their defaults."""
    with prefix_errors(str(node)):
        checked = forward.check_attributes(node_attribute_values(forward, node.proto))
    return {attribute.name: checked[attribute.name] for attribute in gradient.attributes}


def add_operator(
    graph: GradientGraph,
    operator: Operator,
    inputs: list[str],
    wanted: list[bool],
    attributes: dict[str, AttributeValue],
) -> list[str | None]:
    """Add a node of an operator of this project; returns the names of its outputs, None for an omitted one."""
    names = [graph.name(operator.name) if is_wanted else "" for is_wanted in wanted]
    node = make_node(operator, inputs, names, attributes, name=names[wanted.index(True)])
    node.doc_string = "An operator of ortops: runs after ortops.register or onnx_models.portable.attach."
    graph.add(node)
    return [name or None for name in names]


def _sizes(graph: GradientGraph, node: Node, forward: Operator) -> dict[str, AttributeValue] | None:
    """The attributes of the forward operator that hold the size of dY; None if it is unknown."""
    lengths = graph.numbers(node.input(0))
    if lengths is None:
        return None
    if any(attribute.name == "output_sizes" for attribute in forward.attributes):
        return {"output_sizes": lengths}
    return dict(zip(("output_height", "output_width"), lengths[2:], strict=True))


for _operator in OPERATORS:
    if _operator.gradient is None:
        multi_output_rule(_operator.name, domain=DOMAIN)(gradient_rule)
    else:
        rule(_operator.name, domain=DOMAIN)(forward_rule)
        if _operator.standard:
            rule(_operator.standard[0])(forward_rule)


def custom_rule(graph: GradientGraph, node: Node, incoming: Incoming) -> Gradients | None:
    """The gradients of a node of a user's operator; None for other nodes, and where the operator names no gradient.

    Raises ValueError if the gradient is not registered, or one of its inputs has a name that the operator does not have.
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
    known |= {tensor.name: value for tensor, value in zip(forward.inputs, node.inputs, strict=False)}
    for tensor, value, dy in zip(forward.outputs, node.outputs, incoming, strict=False):
        known |= {tensor.name: value, f"d{tensor.name}": dy or (graph.zeros(value) if value else "")}
    for tensor in gradient.inputs:
        if tensor.name not in known:
            raise ValueError(
                f"{node}: the input {tensor.name} of its gradient {gradient.label} must be one of {', '.join(known)}"
            )
    with prefix_errors(str(node)):
        checked = forward.check_attributes(node_attribute_values(forward, node.proto))
    attributes = {
        attribute.name: checked[attribute.name] for attribute in gradient.attributes if attribute.name in checked
    }
    names = [graph.name(gradient.name) for _ in gradient.outputs]
    gradient_node = make_node(
        gradient, [known[tensor.name] for tensor in gradient.inputs], names, attributes, name=names[0]
    )
    gradient_node.doc_string = "An operator of a user: runs in sessions that have it among their operators."
    graph.add(gradient_node)
    return names
