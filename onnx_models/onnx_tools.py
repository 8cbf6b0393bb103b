"""ONNX's shape inference and checker, with errors of one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]

from onnx_models.schema import register_schemas
from onnx_models.traversal import label, normalize_domain


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
        found = onnx.shape_inference.infer_shapes(model, data_prop=data_prop)
        splits = sum(node.op_type == "Split" for node in found.graph.node)
        for _ in range(splits):  # the lengths of one Split may determine those of the next
            if not _infer_splits(found):
                break
            found = onnx.shape_inference.infer_shapes(found, data_prop=data_prop)
        return found


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
        # Runtimes have deprecated operators, such as GroupNormalization of opset 18, but the checker refuses them.
        if (
            onnx.defs.has(node.op_type, version, domain)
            and onnx.defs.get_schema(node.op_type, version, domain).deprecated
        ):
            return
        with single_line_errors(label(node)):
            onnx.checker.check_node(node, context)

    return check


@cache
def _register_once() -> None:
    register_schemas()
