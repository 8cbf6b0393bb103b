"""Expansion of operators without a rule into other operators, which are differentiated in their place.

The node itself stays in the model, so that the model's outputs keep their values bit for bit. The gradient uses some of
the nodes that are added here.
"""

from __future__ import annotations

import copy

import onnx
import onnx.inliner

from onnx_models.gradient.cloning import clone_nodes
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.registry import DECOMPOSITIONS, REAL
from onnx_models.portable.attach import attach
from onnx_models.tools.attributes import custom_of, operator_of
from onnx_models.tools.protos import label, normalize_domain
from onnx_models.tools.types import single_line_errors

Expansion = tuple[list[onnx.NodeProto], list[str]]
"""The nodes that were added, and the names of their tensors that stand for the node's outputs."""


def expanded(graph: Graph, node: Node) -> Expansion | None:
    """Add nodes that compute the same as a node: its decomposition, or its function body from ONNX or from this project.

    Returns:
        None if the operator has neither.

    Raises:
        ValueError: the function body depends on unknown types.
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


def _add_our_body(graph: Graph, node: Node) -> list[str]:
    """Add the body of an operator of this project, in double, because its kernels compute coordinates in double too."""
    proto = copy.deepcopy(node.proto)
    kinds = [graph.element_type(name) if name else None for name in proto.input]
    for i, kind in enumerate(kinds):
        if kind in REAL and kind != onnx.TensorProto.DOUBLE:
            proto.input[i] = graph.op("Cast", proto.input[i], to=onnx.TensorProto.DOUBLE)
    model = attach(_of_outputs(graph, proto))
    with single_line_errors(f"{node}: writing it in standard operators"):
        model = onnx.inliner.inline_selected_functions(model, [(proto.domain, proto.op_type)])
    outputs = clone_nodes(graph, model.graph.node, {}, proto.output)
    return [graph.op("Cast", name, to=kinds[0]) if name else "" for name in outputs]


def _of_outputs(graph: Graph, proto: onnx.NodeProto) -> onnx.ModelProto:
    """A model of one node."""
    for name in filter(None, proto.input):
        if graph.element_type(name) is None:
            raise ValueError(
                f"{label(proto)}: the type of {name!r} must be known, and shape inference does not find it"
            )
    model = graph.fragment([proto])
    for name in filter(None, proto.output):
        model.graph.output.add(name=name).type.tensor_type.SetInParent()
    return model


def _add_body(graph: Graph, node: Node) -> list[str]:
    proto = _with_defaults(node)
    model = _of_outputs(graph, proto)
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
    if any(one.op_type == proto.op_type and one.domain == proto.domain for one in model.graph.node):
        raise ValueError(f"{node} has no gradient rule, and the function of its specification does not cover this case")
    return clone_nodes(graph, model.graph.node, {}, proto.output)


def _with_defaults(node: Node) -> onnx.NodeProto:
    """The node with default attributes written out: a body may refer to them, and the inliner leaves them empty."""
    made = copy.deepcopy(node.proto)
    given = {one.name for one in made.attribute}
    schema = onnx.defs.get_schema(made.op_type, node.version, normalize_domain(made.domain))
    defaults = (one.default_value for name, one in schema.attributes.items() if name not in given)
    made.attribute.extend(one for one in defaults if one.type)
    return made
