"""The first check of every model: negative lengths become unknown ones, and what would crash ONNX is refused."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from onnx_models.large_models import copy_model
from onnx_models.traversal import iter_graphs, label, normalize_domain, onnx_opset


def accepted(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model itself, or a copy without negative lengths if it declares any.

    PaddlePaddle's exporter declares an axis of unknown length as -1. ONNX Runtime takes a negative length for an unknown
    one, but ONNX's shape inference computes with it, and may end the process.

    Raises:
        TypeError: `model` is not a ModelProto.
        ValueError: a tensor has a negative length or an unknown type, a node lacks its subgraph or has an axis beyond any
            rank, subgraphs are nested too deep, or ONNX's domain is imported with several versions.
    """
    if not isinstance(model, onnx.ModelProto):
        raise TypeError(f"model = {type(model).__name__}: must be an onnx.ModelProto")
    for scope in (model, *model.functions):
        versions = {item.version for item in scope.opset_import if normalize_domain(item.domain) == ""}
        if len(versions) > 1:
            raise ValueError(
                f"opset_import has versions {sorted(versions)} of ONNX's domain: must be one; ONNX Runtime takes the "
                f"last one, {onnx_opset(scope)}"
            )
    for part in list(iter_graphs(model, defaults=True)):
        for tensor in _tensors(part):
            _check_tensor(tensor)
        for node in part.node:
            for attribute in node.attribute:
                if attribute.name == "axis" and abs(attribute.i) > _MAX_AXES:
                    raise ValueError(f"{label(node)} has axis = {attribute.i}: must be an axis of a tensor")
            if normalize_domain(node.domain) == "":
                _check_subgraphs(node)
    kinds = list(_declared_types(model))
    for kind in kinds:
        if kind.elem_type not in _TYPES and kind.elem_type != onnx.TensorProto.UNDEFINED:
            raise ValueError(f"the model declares the element type {kind.elem_type}: must be one of ONNX's")
    if all(length.dim_value >= 0 for kind in kinds for length in kind.shape.dim):
        return model
    made = copy_model(model)
    for kind in _declared_types(made):
        for length in kind.shape.dim:
            if length.dim_value < 0:
                length.ClearField("dim_value")
    return made


_SUBGRAPHS = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
"""The attributes of ONNX's operators that are graphs."""

_MAX_AXES = 2**16

_TYPES = set(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}


def _check_subgraphs(node: onnx.NodeProto) -> None:
    given = {attribute.name: attribute for attribute in node.attribute}
    for name in _SUBGRAPHS.get(node.op_type, ()):
        body = given.get(name)
        if body is None or not (body.HasField("g") or body.ref_attr_name):
            raise ValueError(f"{label(node)} has no {name}: must have this graph as an attribute")
        if body.type != onnx.AttributeProto.GRAPH:
            kinds = onnx.AttributeProto.AttributeType
            kind = kinds.Name(body.type) if body.type in kinds.values() else str(body.type)
            raise ValueError(f"{label(node)} has {name} as an attribute of type {kind}: must be a GRAPH")


def _tensors(part: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors that a graph or a function holds, without those in subgraphs."""
    if isinstance(part, onnx.GraphProto):
        yield from part.initializer
        yield from (sparse.values for sparse in part.sparse_initializer)
    for node in part.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _check_tensor(tensor: onnx.TensorProto) -> None:
    if min(tensor.dims, default=0) < 0:
        raise ValueError(f"tensor {tensor.name!r} has the shape {list(tensor.dims)}: must have lengths of 0 or more")
    if tensor.data_type not in _TYPES:
        raise ValueError(f"tensor {tensor.name!r} has the element type {tensor.data_type}: must be one of ONNX's")


_Tensor = onnx.TypeProto.Tensor | onnx.TypeProto.SparseTensor


def _declared_types(model: onnx.ModelProto) -> Iterator[_Tensor]:
    """Yield the types that inputs, outputs and other tensors are declared with, and those in attributes."""
    for part in iter_graphs(model, defaults=True):
        values = list(part.value_info)
        if isinstance(part, onnx.GraphProto):
            values += [*part.input, *part.output]
        for value in values:
            yield from _of_tensors(value.type)
        for node in part.node:
            for attribute in node.attribute:
                for kind in (attribute.tp, *attribute.type_protos):
                    yield from _of_tensors(kind)


def _of_tensors(kind: onnx.TypeProto) -> Iterator[_Tensor]:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        yield getattr(kind, which)
    elif which in ("sequence_type", "optional_type"):
        yield from _of_tensors(getattr(kind, which).elem_type)
    elif which == "map_type":
        yield from _of_tensors(kind.map_type.value_type)
