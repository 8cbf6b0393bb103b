# SPDX-License-Identifier: MIT
"""Copies of nodes and subgraphs under new names, and expansion of operators without a rule into other operators.

Nested scopes may not reuse a name. The expanded node itself stays in the model, so that the model's outputs keep their
values bit for bit. The gradient uses some of the nodes that are added here.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence

import onnx
import onnx.inliner

from onnx_models.gradient.graph import GradientGraph, Node
from onnx_models.gradient.registry import DECOMPOSITIONS, REAL
from onnx_models.gradient.tensors import known_value
from onnx_models.portable.attach import attach
from onnx_models.tools.attributes import custom_of, operator_of
from onnx_models.tools.protos import label, normalize_domain, subgraphs
from onnx_models.tools.types import single_line_errors


def clone_nodes(
    graph: GradientGraph, nodes: Sequence[onnx.NodeProto], names: dict[str, str], outputs: Sequence[str]
) -> list[str]:
    """Add copies of nodes with new names for their outputs; return the new names of `outputs`.

    An If whose condition is known is replaced by the nodes of the branch: inference would not find the ranks of its outputs
    if the branches differ in them. `names` are new names of outer tensors, where these change.
    """
    names = dict(names)
    for node in nodes:
        branch = taken_branch(graph, node, names.get(node.input[0], node.input[0])) if node.input else None
        if branch is None:
            graph.add(_copy(graph, node, names))
        else:
            constants = {tensor.name: graph.tensor(onnx.numpy_helper.to_array(tensor)) for tensor in branch.initializer}
            ends = clone_nodes(graph, branch.node, names | constants, [value.name for value in branch.output])
            names.update({name: end for name, end in zip(node.output, ends, strict=True) if name})
    return [names.get(name, name) for name in outputs]


def taken_branch(graph: GradientGraph, node: onnx.NodeProto, condition: str) -> onnx.GraphProto | None:
    """The branch that an If takes if its condition is known; else, and for other nodes, None."""
    if (normalize_domain(node.domain), node.op_type) != ("", "If"):
        return None
    value = known_value(graph, condition)
    if value is None:
        return None
    name = "then_branch" if value.all() else "else_branch"
    branch = next(attribute.g for attribute in node.attribute if attribute.name == name)
    return None if branch.sparse_initializer else branch


def clone_graph(
    graph: GradientGraph, inner: onnx.GraphProto, names: dict[str, str], base: str = "body"
) -> onnx.GraphProto:
    """A copy of a subgraph with new names, which begin with `base`.

    Each output is computed by a node of the copy, and no two outputs are the same tensor. `names` are new names of outer
    tensors, where these change; those of the subgraph's own tensors are added.
    """
    clone = onnx.GraphProto(name=graph.name(base))
    for value in inner.input:
        clone.input.add().CopyFrom(value)
        names[value.name] = clone.input[-1].name = graph.name(base)
    for tensor in inner.initializer:
        clone.initializer.add().CopyFrom(tensor)
        if tensor.name not in {value.name for value in inner.input}:
            names[tensor.name] = graph.name(base)
        clone.initializer[-1].name = names[tensor.name]
    for sparse in inner.sparse_initializer:
        clone.sparse_initializer.add().CopyFrom(sparse)
        names[sparse.values.name] = clone.sparse_initializer[-1].values.name = graph.name(base)
    clone.node.extend([_copy(graph, node, names) for node in inner.node])
    inside = {name for node in inner.node for name in node.output}
    times = Counter(value.name for value in inner.output)
    for value in inner.output:
        name = names.get(value.name, value.name)
        if value.name not in inside or times[value.name] > 1:
            source, name = name, graph.name(base)
            clone.node.append(onnx.helper.make_node("Identity", [source], [name], name=name))
        clone.output.add().CopyFrom(value)
        clone.output[-1].name = name
    return clone


def _copy(graph: GradientGraph, node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    """A copy of a node with new names for its outputs, which are added to `names`, and for those of its subgraphs."""
    clone = copy.deepcopy(node)
    clone.input[:] = [names.get(name, name) for name in node.input]
    for subgraph in subgraphs([clone]):
        subgraph.CopyFrom(clone_graph(graph, subgraph, dict(names), node.op_type))
    for i, name in enumerate(node.output):
        if name:
            names[name] = clone.output[i] = graph.name(node.op_type)
    clone.name = next(filter(None, clone.output), "")
    return clone


Expansion = tuple[list[onnx.NodeProto], list[str]]
"""The nodes that were added, and the names of their tensors that stand for the node's outputs."""


def expanded(graph: GradientGraph, node: Node) -> Expansion | None:
    """Add nodes that compute the same as a node: its decomposition, or its function body from ONNX or from this project.

    Returns None if the operator has neither. A function body that depends on unknown types is a ValueError.
    """
    start = len(graph.added)
    decomposition = DECOMPOSITIONS.get((normalize_domain(node.proto.domain), node.proto.op_type))
    if decomposition is not None:
        outputs = [*decomposition(graph, node), *("" for _ in node.outputs)][: len(node.outputs)]
        return graph.added[start:], outputs
    if operator_of(node.proto) and not custom_of(node.proto):
        outputs = _add_our_body(graph, node)
    elif has_body(node.proto, node.version):
        outputs = _add_body(graph, node)
    else:
        return None
    return graph.added[start:], outputs


def has_body(proto: onnx.NodeProto, version: int) -> bool:
    """Whether ONNX's specification or this project defines an operator by a function."""
    if operator_of(proto):
        custom = custom_of(proto)
        return custom is None or custom.body is not None
    domain = normalize_domain(proto.domain)
    if not onnx.defs.has(proto.op_type, version, domain):
        return False
    schema = onnx.defs.get_schema(proto.op_type, version, domain)
    # The type stubs of some versions of onnx lack these properties.
    return bool(getattr(schema, "has_function", False) or getattr(schema, "has_context_dependent_function", False))


def _add_our_body(graph: GradientGraph, node: Node) -> list[str]:
    """Add the body of an operator of this project, in double, because its kernels compute coordinates in double too."""
    proto = copy.deepcopy(node.proto)
    kinds = [graph.element_type(name) if name else None for name in proto.input]
    for i, kind in enumerate(kinds):
        if kind in REAL and kind != onnx.TensorProto.DOUBLE:
            proto.input[i] = graph.op("Cast", proto.input[i], to=onnx.TensorProto.DOUBLE)
    model = attach(_model_of(graph, proto))
    with single_line_errors(f"{node}: writing it in standard operators"):
        model = onnx.inliner.inline_selected_functions(model, [(proto.domain, proto.op_type)])
    outputs = clone_nodes(graph, model.graph.node, {}, proto.output)
    return [graph.op("Cast", name, to=kinds[0]) if name else "" for name in outputs]


def _model_of(graph: GradientGraph, proto: onnx.NodeProto) -> onnx.ModelProto:
    for name in filter(None, proto.input):
        if graph.element_type(name) is None:
            raise ValueError(
                f"{label(proto)}: the type of {name!r} must be known, and shape inference does not find it"
            )
    model = graph.fragment([proto])
    for name in filter(None, proto.output):
        model.graph.output.add(name=name).type.tensor_type.SetInParent()
    return model


def _add_body(graph: GradientGraph, node: Node) -> list[str]:
    proto = _with_defaults(node)
    model = _model_of(graph, proto)
    if custom_of(proto):
        model = attach(model)
    for value in model.graph.output:
        value.type.tensor_type.CopyFrom(graph.type_of(value.name) or onnx.TypeProto.Tensor())
    # The inliner needs the types of all inputs, but finds none for initializers and omitted inputs.
    model.graph.input.extend(
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer
    )
    if "" in proto.input:
        model.graph.input.add(name="").type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    with single_line_errors(f"{node}: expanding it to the function of its specification"):
        model = onnx.inliner.inline_selected_functions(
            model, [(proto.domain, proto.op_type)], inline_schema_functions=True
        )
    if any(other.op_type == proto.op_type and other.domain == proto.domain for other in model.graph.node):
        raise ValueError(f"{node} has no gradient rule, and the function of its specification does not cover this case")
    return clone_nodes(graph, model.graph.node, {}, proto.output)


def _with_defaults(node: Node) -> onnx.NodeProto:
    """The node with default attributes written out: a body may refer to them, and the inliner leaves them empty."""
    whole = copy.deepcopy(node.proto)
    given = {attribute.name for attribute in whole.attribute}
    schema = onnx.defs.get_schema(whole.op_type, node.version, normalize_domain(whole.domain))
    defaults = (attribute.default_value for name, attribute in schema.attributes.items() if name not in given)
    whole.attribute.extend(default for default in defaults if default.type)
    return whole
