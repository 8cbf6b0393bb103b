"""ONNX's shape inference and checker, with one-line errors, and constants in a form that other tools know."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]

from onnx_models.attributes import remedy
from onnx_models.compositions import COMPOSITIONS
from onnx_models.inference_copy import copy_for_inference, register_check, restore_copy
from onnx_models.large_models import strip_weights
from onnx_models.schema import register_schemas
from onnx_models.traversal import import_domain, iter_nodes, label, normalize_domain, subgraphs

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
        found = onnx.shape_inference.infer_shapes(copied, data_prop=data_prop)
        while _infer_splits(found) | _infer_transforms(found) | _infer_ranks(found):
            # The lengths of one Split may determine those of the next.
            found = onnx.shape_inference.infer_shapes(found, data_prop=data_prop)
        return found if copied is model else restore_copy(found, model)


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


def _infer_splits(model: onnx.ModelProto) -> bool:
    """Add what ONNX's shape inference misses about the outputs of Split, and return whether there was anything.

    That is their lengths where `split` is constant but the input has an unknown length (such as the shape of a tensor of
    unknown rank), and their rank where `split` is computed.
    """
    graph = model.graph
    kinds = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input, *graph.output)}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    constants |= {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    found = False
    for node in graph.node:
        whole = kinds.get(node.input[0]) if node.op_type == "Split" and len(node.input) == 2 else None
        axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
        if whole is None or not -len(whole.shape.dim) <= axis < len(whole.shape.dim):
            continue
        sizes = constants.get(node.input[1])
        lengths: list[int | None] = [None] * len(node.output)
        if sizes is not None and sizes.data_location != onnx.TensorProto.EXTERNAL:
            lengths = onnx.numpy_helper.to_array(sizes).tolist()
        for name, length in zip(node.output, lengths, strict=False):
            kind = kinds.get(name)
            if kind is not None and not kind.HasField("shape"):
                kind.shape.CopyFrom(whole.shape)
                kind.shape.dim[axis].Clear()
                found = True
            if kind is not None and length is not None and not kind.shape.dim[axis].HasField("dim_value"):
                kind.shape.dim[axis].dim_value = length
                found = True
    return found


def _infer_ranks(model: onnx.ModelProto) -> bool:
    """Add the ranks of outputs that have the rank of their first input, and return whether any was missing.

    ONNX (1.23 at least) infers none behind a Conv whose kernel has unknown lengths, nor behind a sum over computed axes.
    """
    graph = model.graph
    kinds = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input, *graph.output)}
    found = False
    for node in graph.node:
        keeps_rank = node.op_type in _SAME_RANK or (
            node.op_type.startswith("Reduce") and all(one.i for one in node.attribute if one.name == "keepdims")
        )
        if not keeps_rank or normalize_domain(node.domain) or not (node.input and node.output):
            continue
        whole, kind = kinds.get(node.input[0]), kinds.get(node.output[0])
        if whole is not None and whole.HasField("shape") and kind is not None and not kind.HasField("shape"):
            kind.shape.SetInParent()
            kind.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in whole.shape.dim)
            found = True
    return found


_SAME_RANK = {"CenterCropPad", "Conv", "ConvTranspose", "DeformConv", "GroupNormalization", "MaxUnpool", "Resize"}
"""Operators whose output has the rank of their first input, beside reductions that keep axes."""


def _infer_transforms(model: onnx.ModelProto) -> bool:
    """Add the rank of the outputs of STFT and their known lengths, and return whether any rank was missing.

    ONNX (1.23 at least) infers nothing but the element type unless the length of the signal is a number. The shape is
    [batch, frames, frequencies, 2].
    """
    kinds = {value.name: value for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
    found = False
    for node in model.graph.node:
        if node.op_type != "STFT" or normalize_domain(node.domain) or not (node.input and node.output):
            continue
        kind = (kinds.get(node.output[0]) or model.graph.value_info.add(name=node.output[0])).type.tensor_type
        if kind.HasField("shape"):
            continue
        batch, *_, parts = (kind.shape.dim.add() for _ in range(4))
        parts.dim_value = 2
        if node.input[0] in kinds:
            signal = kinds[node.input[0]].type.tensor_type
            kind.elem_type = kind.elem_type or signal.elem_type
            if signal.shape.dim:
                batch.CopyFrom(signal.shape.dim[0])
        found = True
    return found


def node_checker(opsets: Mapping[str, int]) -> Callable[[onnx.NodeProto], None]:
    """Return a check of a node's numbers of inputs and outputs, and of its attributes' names and types.

    Args:
        opsets: the version of each domain.

    Returns:
        A function that takes a node without subgraphs and raises ValueError if it breaks its operator's schema. It accepts
        a node whose operator has no schema.
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
            raise ValueError(f"{label(node)}: ONNX has no operator {node.op_type}{remedy(node)}")
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
