# SPDX-License-Identifier: MIT
"""ONNX's shape inference and checker, with one-line errors, and constants in a form that other tools know."""

from __future__ import annotations

import atexit
import contextlib
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from onnx.defs import OpSchema

from onnx_models.tools.attributes import remedy
from onnx_models.tools.compositions import COMPOSITIONS
from onnx_models.tools.nodes import NodeBuilder, NodeView
from onnx_models.tools.protos import (
    assign,
    import_domain,
    iter_graphs,
    iter_nodes,
    label,
    meant,
    normalize_domain,
    strip_weights,
    subgraphs,
)
from onnx_models.tools.schema import register_schemas
from ortops.foreign.standard import onnx_names

Tensors = Mapping[str, onnx.TypeProto.Tensor]
"""The known types of tensors, by name."""


@contextmanager
def single_line_errors(what: str) -> Iterator[None]:
    """Raise errors of ONNX's tools and of protobuf as a ValueError of one line that begins with `what`."""
    try:
        yield
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        DecodeError,
        EncodeError,
        MemoryError,
        RuntimeError,
        ValueError,
    ) as error:
        raise ValueError(f"{what}: {' '.join(str(error).split())}") from error


def infer_shapes(model: onnx.ModelProto, *, data_prop: bool = False) -> onnx.ModelProto:
    """Return a copy of a model with inferred types and shapes, also behind this project's operators.

    Raises:
        ValueError: a node of this project's operators breaks a rule of its schema, or ONNX cannot read the model.
    """
    _register_once()
    with single_line_errors("shape inference"):
        copied = copy_for_inference(model, data_prop)
        inferred = onnx.shape_inference.infer_shapes(copied, data_prop=data_prop)
        while _infer_more(inferred):
            # The lengths of one Split may determine those of the next.
            inferred = onnx.shape_inference.infer_shapes(inferred, data_prop=data_prop)
        return inferred if copied is model else restore_copy(inferred, model)


def known_types(model: onnx.ModelProto) -> Iterator[Tensors]:
    """Yield the inferred types of the tensors in a model's graph, then in each graph inside, which knows the outer ones.

    Raises:
        ValueError: as `infer_shapes`.
    """
    bare = strip_weights(model)
    # PyTorch's exporter wrote nodes of domains that the model does not import, which shape inference refuses.
    for domain in dict.fromkeys(normalize_domain(node.domain) for node in iter_nodes(bare)):
        import_domain(bare, domain, 1)
    return _typed(infer_shapes(bare).graph, ChainMap())


def _typed(graph: onnx.GraphProto, outer: ChainMap[str, onnx.TypeProto.Tensor]) -> Iterator[Tensors]:
    known = outer.new_child()
    for tensor in graph.initializer:
        known[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims)).tensor_type
    for value in (*graph.input, *graph.value_info, *graph.output):
        known[value.name] = value.type.tensor_type
    yield known
    for inner in subgraphs(graph.node):
        yield from _typed(inner, known)


def _infer_more(model: onnx.ModelProto) -> bool:
    """Add what ONNX's shape inference (1.23 at least) misses, and return whether there was anything."""
    graph = model.graph
    types = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input, *graph.output)}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    has_more = False
    for node in graph.node:
        if normalize_domain(node.domain) or not node.output:
            continue
        if node.op_type == "Constant":
            constants.update((node.output[0], attribute.t) for attribute in node.attribute if attribute.name == "value")
        elif node.op_type == "Split" and len(node.input) == 2 and node.input[0] in types:
            has_more |= _infer_split(node, types, constants.get(node.input[1]))
        elif node.op_type == "STFT" and node.input:
            if node.output[0] not in types:
                types[node.output[0]] = graph.value_info.add(name=node.output[0]).type.tensor_type
            has_more |= _infer_transform(types[node.output[0]], types.get(node.input[0]))
        elif node.input and _keeps_rank(node):
            has_more |= _infer_rank(types.get(node.output[0]), types.get(node.input[0]))
    return has_more


def _infer_split(node: onnx.NodeProto, types: Tensors, sizes: onnx.TensorProto | None) -> bool:
    """Add lengths where `split` is constant but the input has an unknown length, and ranks where `split` is computed.

    An unknown length is, for example, that of the shape of a tensor of unknown rank.
    """
    whole, has_more = types[node.input[0]], False
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    if not -len(whole.shape.dim) <= axis < len(whole.shape.dim):
        return False
    lengths: list[int | None] = [None] * len(node.output)
    if sizes is not None and sizes.data_location != onnx.TensorProto.EXTERNAL:
        lengths = onnx.numpy_helper.to_array(sizes).tolist()
    for name, length in zip(node.output, lengths, strict=False):
        part = types.get(name)
        if part is not None and not part.HasField("shape"):
            part.shape.CopyFrom(whole.shape)
            part.shape.dim[axis].Clear()
            has_more = True
        if part is not None and length is not None and not part.shape.dim[axis].HasField("dim_value"):
            part.shape.dim[axis].dim_value = length
            has_more = True
    return has_more


_SAME_RANK = {"CenterCropPad", "Conv", "ConvTranspose", "DeformConv", "GroupNormalization", "MaxUnpool", "Resize"}
"""Operators whose output has the rank of their first input, beside reductions that keep axes.

ONNX infers no rank behind a Conv whose kernel has unknown lengths, nor behind a sum over computed axes.
"""


def _keeps_rank(node: onnx.NodeProto) -> bool:
    is_reduction = node.op_type.startswith("Reduce")
    return node.op_type in _SAME_RANK or (
        is_reduction and all(attribute.i for attribute in node.attribute if attribute.name == "keepdims")
    )


def _infer_rank(output: onnx.TypeProto.Tensor | None, whole: onnx.TypeProto.Tensor | None) -> bool:
    if whole is None or not whole.HasField("shape") or output is None or output.HasField("shape"):
        return False
    output.shape.SetInParent()
    output.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in whole.shape.dim)
    return True


def _infer_transform(output: onnx.TypeProto.Tensor, signal: onnx.TypeProto.Tensor | None) -> bool:
    """Add the shape of STFT, [batch, frames, frequencies, 2]: ONNX infers it only if the signal's length is a number."""
    if output.HasField("shape"):
        return False
    batch, *_, parts = (output.shape.dim.add() for _ in range(4))
    parts.dim_value = 2
    if signal is not None:
        output.elem_type = output.elem_type or signal.elem_type
        if signal.shape.dim:
            batch.CopyFrom(signal.shape.dim[0])
    return True


def node_checker(opsets: Mapping[str, int]) -> Callable[[onnx.NodeProto], None]:
    """Return a check of a node's numbers of inputs and outputs, and of its attributes' names and types, at these opsets.

    The check takes a node without subgraphs and raises ValueError if it breaks its operator's schema. It accepts a node
    whose operator has no schema.
    """
    _register_once()
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    # A node may name ONNX's own domain "" or "ai.onnx".
    context.opset_imports = {**opsets, **({"ai.onnx": opsets[""]} if "" in opsets else {})}

    def check(node: onnx.NodeProto) -> None:
        domain = normalize_domain(node.domain)
        version = opsets.get(domain, 1)
        is_known = onnx.defs.has(node.op_type, version, domain)
        # Runtimes have deprecated operators, such as GroupNormalization of opset 18, but the checker refuses them. ONNX
        # Runtime's optimizer writes operators without a schema, also in ONNX's own domain.
        if is_known and onnx.defs.get_schema(node.op_type, version, domain).deprecated:
            return
        if not is_known and (domain, node.op_type) in COMPOSITIONS:
            return
        if not domain and not onnx.defs.has(node.op_type):
            near = meant(node.op_type, onnx_names())
            raise ValueError(f"{label(node)}: ONNX has no operator {node.op_type}{near}{remedy(node)}")
        with single_line_errors(label(node)):
            onnx.checker.check_node(node, context)

    return check


@cache
def _register_once() -> None:
    register_schemas()
    register_check()


def constant_attribute(attribute: onnx.AttributeProto) -> onnx.AttributeProto:
    """The attribute `value` of a Constant, in place of one with numbers; others are returned as they are.

    The symbolic shape inference of ONNX Runtime (1.32 at least) knows `value` only.
    """
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    kind = kinds.get(attribute.name)
    if kind is None or attribute.ref_attr_name:
        return attribute
    value = np.array(onnx.helper.get_attribute_value(attribute), kind)
    return onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(value))


def forget_lengths_inside(graph: onnx.GraphProto) -> None:
    """Clear the lengths that subgraphs declare, and keep the ranks: the lengths may not fit the model's inputs."""
    for node in iter_nodes(graph):
        for inner in subgraphs([node]):
            del inner.value_info[:]
            for value in (*inner.input, *inner.output):
                for length in value.type.tensor_type.shape.dim:
                    length.Clear()


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
    functions = {(normalize_domain(function.domain), function.name) for function in model.functions}
    parts = list(iter_graphs(model, defaults=True))
    is_changed = (
        (data_prop and any(map(_is_long, values)))
        or any(map(_sparse_initializers, parts))
        or any(node.op_type == "Slice" or _is_composed(node, functions) for part in parts for node in part.node)
    )
    if not is_changed:
        return model
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for scope in (copied, *copied.functions):
        scope.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    for value in (*copied.graph.input, *copied.graph.output, *copied.graph.value_info):
        if data_prop and _is_long(value):
            length = value.type.tensor_type.shape.dim[0]
            length.dim_param = f"{_DOMAIN}:{length.dim_value}"
    for part in list(iter_graphs(copied, defaults=True)):
        for node in part.node:
            if _is_composed(node, functions):
                # A ValueError is for a rule: runtimes may take the node.
                with contextlib.suppress(ValueError):
                    copied.functions.append(_composed(node, f"{node.op_type}_{len(copied.functions)}"))
                    node.domain, node.op_type = _DOMAIN, copied.functions[-1].name
        pairs = [([_check_of(node)] if node.op_type == "Slice" and node.input else [], node) for node in part.node]
        nodes = [node for checks, node in pairs for node in (*checks, node)]
        assign(part.node, nodes)
        for sparse in _sparse_initializers(part):
            value = onnx.helper.make_tensor_value_info(sparse.values.name, sparse.values.data_type, sparse.dims)
            part.value_info.append(value)
        if isinstance(part, onnx.GraphProto):
            del part.sparse_initializer[:]
    return copied


def restore_copy(inferred: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """Undo `copy_for_inference` of `model` in a copy with inferred types, and return it."""
    functions = [function for function in inferred.functions if function.domain != _DOMAIN]
    assign(inferred.functions, functions)
    for part, original in zip(iter_graphs(inferred, defaults=True), iter_graphs(model, defaults=True), strict=True):
        nodes = [node for node in part.node if (node.domain, node.op_type) != (_DOMAIN, _CHECK)]
        for node, before in zip(nodes, original.node, strict=True):
            node.domain, node.op_type = before.domain, before.op_type
        assign(part.node, nodes)
        sparse = {one.values.name for one in _sparse_initializers(original)}
        kept = [value for value in part.value_info if value.name not in sparse]
        assign(part.value_info, kept)
        ends = [*part.input, *part.output] if isinstance(part, onnx.GraphProto) else []
        if isinstance(part, onnx.GraphProto):
            part.sparse_initializer.extend(_sparse_initializers(original))
        for value in (*ends, *part.value_info):
            for length in value.type.tensor_type.shape.dim:
                if length.dim_param.startswith(f"{_DOMAIN}:"):
                    length.dim_value = int(length.dim_param.removeprefix(f"{_DOMAIN}:"))
    for scope in (inferred, *inferred.functions):
        imports = [item for item in scope.opset_import if item.domain != _DOMAIN]
        assign(scope.opset_import, imports)
    return inferred


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
