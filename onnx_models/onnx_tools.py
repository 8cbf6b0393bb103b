"""ONNX's own tools with the errors of this project."""

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
    """Make what ONNX's tools and protobuf raise a ValueError of one line that begins with `what`."""
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
    """A copy of a model with types and shapes, those of this project's operators too.

    Raises:
        ValueError: a node of this project's operators breaks a rule of its schema, or ONNX cannot read the model.
    """
    _register_once()
    with single_line_errors("shape inference"):
        found = onnx.shape_inference.infer_shapes(model, data_prop=data_prop)
        splits = sum(node.op_type == "Split" for node in found.graph.node)
        for _ in range(splits):  # what is learnt of one may tell of the next
            if not _learns_of_parts(found):
                break
            found = onnx.shape_inference.infer_shapes(found, data_prop=data_prop)
        return found


def _learns_of_parts(model: onnx.ModelProto) -> bool:
    """Enter what ONNX's inference does not find of the parts that Split makes.

    These are the lengths that it is given, where the whole has an unknown length (as the shape of a tensor of open rank,
    from whose parts other shapes are made), and the rank, where these lengths are computed.
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
    """A check of a node's numbers of inputs and outputs, and of names and types of its attributes, by its schema.

    Args:
        opsets: version of each domain.

    Returns:
        A function of a node without subgraphs. It raises ValueError where the node breaks a rule of its operator's schema,
        and takes a node whose operator has none.
    """
    _register_once()
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    # A node may be in ONNX's own domain by either of its names.
    context.opset_imports = {**opsets, **({"ai.onnx": opsets[""]} if "" in opsets else {})}

    def check(node: onnx.NodeProto) -> None:
        domain = normalize_domain(node.domain)
        version = opsets.get(domain, 1)
        # Runtimes have operators that are deprecated, such as GroupNormalization of opset 18; the checker refuses them.
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
