"""The copy of a model that ONNX's shape inference gets, and the way back from it.

The inference (of ONNX 1.23 at least) ends the process or hangs at some nodes, and knows nothing of others.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Collection

import numpy as np
import onnx
from onnx.defs import OpSchema

from onnx_models import fused_operators, ml_operators  # noqa: F401 - registers compositions
from onnx_models.compositions import COMPOSITIONS
from onnx_models.nodes import NodeBuilder, NodeView
from onnx_models.traversal import iter_graphs, label, normalize_domain

_CHECK, _DOMAIN = "NonNegativeLengths", "ortops.inference"
"""The operator of nodes that refuse inputs for which ONNX's shape inference ends the process; the domain of additions."""

_MAX_PROPAGATED = 2**20

_COMPOSED_OPSET = 18
"""The opset of the functions of compositions, whatever that of the model is."""

_Part = onnx.GraphProto | onnx.FunctionProto


def copy_for_inference(model: onnx.ModelProto, data_prop: bool) -> onnx.ModelProto:
    """Return the model, or a copy that ONNX's shape inference knows more about, and on which it neither ends nor hangs.

    ONNX aborts at a Slice of a tensor with a negative length, such as that behind a Conv whose kernel is larger than its
    image: in the copy, a node before each Slice refuses one. To propagate data, it makes a list of the elements of each
    tensor of rank 1, which takes a second for a million: in the copy, longer ones have symbolic lengths. Nodes of operators
    in `COMPOSITIONS` call functions. Sparse initializers are declared as the dense tensors that sessions make of them.
    """
    values = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    functions = {(normalize_domain(one.domain), one.name) for one in model.functions}
    parts = list(iter_graphs(model, defaults=True))
    is_changed = (
        (data_prop and any(map(_is_long, values)))
        or any(map(_sparse_initializers, parts))
        or any(node.op_type == "Slice" or _is_composed(node, functions) for part in parts for node in part.node)
    )
    if not is_changed:
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for scope in (made, *made.functions):
        scope.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    for value in (*made.graph.input, *made.graph.output, *made.graph.value_info):
        if data_prop and _is_long(value):
            length = value.type.tensor_type.shape.dim[0]
            length.dim_param = f"{_DOMAIN}:{length.dim_value}"
    for part in list(iter_graphs(made, defaults=True)):
        for node in part.node:
            if _is_composed(node, functions):
                # A ValueError is for a rule: runtimes may take the node.
                with contextlib.suppress(ValueError):
                    made.functions.append(_composed(node, f"{node.op_type}_{len(made.functions)}"))
                    node.domain, node.op_type = _DOMAIN, made.functions[-1].name
        pairs = [([_check_of(node)] if node.op_type == "Slice" and node.input else [], node) for node in part.node]
        nodes = [node for checks, node in pairs for node in (*checks, node)]
        del part.node[:]
        part.node.extend(nodes)
        for sparse in _sparse_initializers(part):
            value = onnx.helper.make_tensor_value_info(sparse.values.name, sparse.values.data_type, sparse.dims)
            part.value_info.append(value)
        if isinstance(part, onnx.GraphProto):
            del part.sparse_initializer[:]
    return made


def restore_copy(found: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """Undo `copy_for_inference` of `model` in a copy with inferred types, and return it."""
    functions = [function for function in found.functions if function.domain != _DOMAIN]
    del found.functions[:]
    found.functions.extend(functions)
    for part, original in zip(iter_graphs(found, defaults=True), iter_graphs(model, defaults=True), strict=True):
        nodes = [node for node in part.node if (node.domain, node.op_type) != (_DOMAIN, _CHECK)]
        for node, before in zip(nodes, original.node, strict=True):
            node.domain, node.op_type = before.domain, before.op_type
        del part.node[:]
        part.node.extend(nodes)
        sparse = {one.values.name for one in _sparse_initializers(original)}
        kept = [value for value in part.value_info if value.name not in sparse]
        del part.value_info[:]
        part.value_info.extend(kept)
        ends = [*part.input, *part.output] if isinstance(part, onnx.GraphProto) else []
        if isinstance(part, onnx.GraphProto):
            part.sparse_initializer.extend(_sparse_initializers(original))
        for value in (*ends, *part.value_info):
            for length in value.type.tensor_type.shape.dim:
                if length.dim_param.startswith(f"{_DOMAIN}:"):
                    length.dim_value = int(length.dim_param.removeprefix(f"{_DOMAIN}:"))
    for scope in (found, *found.functions):
        imports = [item for item in scope.opset_import if item.domain != _DOMAIN]
        del scope.opset_import[:]
        scope.opset_import.extend(imports)
    return found


def register_check() -> None:
    """Register the operator that refuses negative lengths."""
    tensor = OpSchema.FormalParameter("x", "T", "A tensor.")
    check = OpSchema(_CHECK, _DOMAIN, 1, "", inputs=[tensor], type_constraints=[("T", ["tensor(float)"], "")])
    check.set_type_and_shape_inference_function(_refuse_negative)
    onnx.defs.register_schema(check)
    # As for the schemas of `register_schemas`: ONNX destroys its schemas after the interpreter has ended.
    atexit.register(onnx.defs.deregister_schema, _CHECK, 1, _DOMAIN)


def _is_long(value: onnx.ValueInfoProto) -> bool:
    dims = value.type.tensor_type.shape.dim
    return bool(len(dims) == 1 and dims[0].dim_value > _MAX_PROPAGATED)


def _sparse_initializers(part: _Part) -> list[onnx.SparseTensorProto]:
    return list(part.sparse_initializer) if isinstance(part, onnx.GraphProto) else []


def _check_of(node: onnx.NodeProto) -> onnx.NodeProto:
    return onnx.NodeProto(op_type=_CHECK, domain=_DOMAIN, name=label(node), input=node.input[:1])


def _refuse_negative(context: onnx.shape_inference.InferenceContext) -> None:
    """Shape inference of the nodes before each Slice."""
    kind = context.get_input_type(0)
    lengths = [] if kind is None else [length.dim_value for length in kind.tensor_type.shape.dim]
    if min(lengths, default=0) < 0:
        reader = context.get_display_name().partition("(")[2].strip().removesuffix(")")
        raise onnx.shape_inference.InferenceError(
            f"{reader} reads a tensor of shape {lengths}: must have lengths of 0 or more"
        )


def _is_composed(node: onnx.NodeProto, functions: Collection[tuple[str, str]]) -> bool:
    """Whether a node is of an operator in `COMPOSITIONS` that neither ONNX nor a function of the model infers."""
    key = normalize_domain(node.domain), node.op_type
    if key not in COMPOSITIONS or key in functions:
        return False
    return not (
        onnx.defs.has(key[1], key[0]) and onnx.defs.get_schema(key[1], key[0]).has_type_and_shape_inference_function
    )


class _Body(NodeBuilder):
    """The nodes of a function."""

    def number(self, value: float, kind: str) -> str:
        """A constant of rank 0 and of the element type of the tensor `kind`."""
        return self.op("CastLike", self.tensor(np.array(value)), kind)


def _composed(node: onnx.NodeProto, name: str) -> onnx.FunctionProto:
    """The function of a node: the composition of its operator with its attributes."""
    formal = onnx.NodeProto()
    formal.CopyFrom(node)
    for i, given in enumerate(node.input):
        formal.input[i] = given and f"input{i}"
    body = _Body(set(), "_of")
    composition = COMPOSITIONS[normalize_domain(node.domain), node.op_type]
    computed = dict(enumerate(composition(body, NodeView(formal))))
    outputs = [computed.get(i) or f"output{i}" for i in range(len(node.output))]
    inputs = [f"input{i}" for i in range(len(node.input))]
    opsets = [onnx.helper.make_opsetid("", _COMPOSED_OPSET)]
    return onnx.helper.make_function(_DOMAIN, name, inputs, outputs, body.added, opsets)
