"""Models with all floating-point tensors in one type, so that those of float can be computed in double."""

from __future__ import annotations

import copy
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_models.traversal import iter_graphs, normalize_domain, onnx_opset, subgraphs, tensor_names

Array = np.ndarray[Any, Any]
Kind = Literal["double", "float"]
"""The element types in which derivatives are compared."""


FLOATING = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
NUMBERS: dict[Kind, int] = {"double": TensorProto.DOUBLE, "float": TensorProto.FLOAT}
DTYPES: dict[Kind, type] = {"double": np.float64, "float": np.float32}

_TYPE_ATTRIBUTES = {"to", "dtype", "stash_type", "output_dtype", "output_datatype", "softmax_precision"}
"""Attributes of ONNX's operators whose value is the number of an element type."""


def converted(feeds: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """The values, with floating-point arrays converted to the type `kind`."""

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return [one(item) for item in value]
        return value if value is None or not is_floating(value) else value.astype(DTYPES[kind])

    return {name: one(value) for name, value in feeds.items()}


def is_floating(array: Array) -> bool:
    """Whether an array has a type that is differentiated."""
    return array.dtype.name in {"float16", "float32", "float64", "bfloat16"}


def retyped(model: onnx.ModelProto, kind: Kind) -> onnx.ModelProto:
    """A copy of a model with all floating-point tensors in one type, including constants and results of casts."""
    made = copy.deepcopy(model)
    number = NUMBERS[kind]
    _retype(made.graph, number)
    # The types of some outputs do not depend on those of the inputs: use the inferred ones.
    bare = copy.deepcopy(made)
    for output in bare.graph.output:
        output.ClearField("type")
    try:
        known = {value.name: value for value in onnx.shape_inference.infer_shapes(bare).graph.output}
    except (onnx.shape_inference.InferenceError, RuntimeError):
        known = {}
    for output in made.graph.output:
        found = known.get(output.name)
        if found is not None and found.type.tensor_type.elem_type in FLOATING:
            output.type.tensor_type.elem_type = found.type.tensor_type.elem_type
    return made


def _retype(graph: onnx.GraphProto, number: int) -> None:
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        _retype_type(value.type, number)
    for tensor in graph.initializer:
        _retype_tensor(tensor, number)
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and not node.attribute:
            node.attribute.append(helper.make_attribute("value", helper.make_tensor("value", number, [1], [0.0])))
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                values = np.array(helper.get_attribute_value(attribute), np.float32)
                attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(values)))
            if attribute.type == onnx.AttributeProto.TENSOR:
                _retype_tensor(attribute.t, number)
            elif attribute.name in _TYPE_ATTRIBUTES and attribute.i in FLOATING:
                attribute.i = number
    for inner in subgraphs(graph.node):
        _retype(inner, number)


def _retype_type(kind: onnx.TypeProto, number: int) -> None:
    which = kind.WhichOneof("value")
    if which == "tensor_type" and kind.tensor_type.elem_type in FLOATING:
        kind.tensor_type.elem_type = number
    elif which in ("sequence_type", "optional_type"):
        _retype_type(getattr(kind, which).elem_type, number)


def _retype_tensor(tensor: onnx.TensorProto, number: int) -> None:
    if tensor.data_type in FLOATING:
        values = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(number))
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def with_narrow_ends(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model of double with casts around inputs and outputs that ONNX defines for narrower types only.

    Such as the scales of Resize, which are always float.
    """
    made = copy.deepcopy(model)
    opset, names = onnx_opset(model) or 1, set(tensor_names(model.graph))
    for part in list(iter_graphs(made)):
        nodes = []
        for node in part.node:
            before: list[onnx.NodeProto] = []
            after: list[onnx.NodeProto] = []
            if not normalize_domain(node.domain) and onnx.defs.has(node.op_type, opset):
                schema = onnx.defs.get_schema(node.op_type, opset)
                for ends, formal, casts in ((node.input, schema.inputs, before), (node.output, schema.outputs, after)):
                    for i, name in enumerate(ends):
                        if name and i < len(formal) and _is_narrow(formal[i].types):
                            ends[i] = next(new for k in range(len(names)) if (new := f"{name}_narrow_{k}") not in names)
                            names.add(ends[i])
                            pair = (name, ends[i]) if casts is before else (ends[i], name)
                            to = TensorProto.FLOAT if casts is before else TensorProto.DOUBLE
                            casts.append(helper.make_node("Cast", pair[:1], pair[1:], to=to))
            nodes += [*before, node, *after]
        del part.node[:]
        part.node.extend(nodes)
    return made


def _is_narrow(types: set[str]) -> bool:
    kinds = {kind.removeprefix("tensor(").removesuffix(")").upper() for kind in types}
    return "FLOAT" in kinds and "DOUBLE" not in kinds and kinds <= {"FLOAT", "FLOAT16", "BFLOAT16"}
