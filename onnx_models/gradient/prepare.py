"""Preparation of a model for differentiation: conversion to opset 18, inlining of functions, shape inference."""

from __future__ import annotations

import copy
from collections.abc import Collection

import onnx

from onnx_models.gradient.graph import Graph
from onnx_models.gradient.sequences import READERS, replace_reads
from onnx_models.gradient.tensors import named_lengths
from onnx_models.tools.functions import check_attributes, inline_functions
from onnx_models.tools.protos import iter_nodes, normalize_domain, strip_weights, subgraphs
from onnx_models.tools.types import forget_lengths_inside, infer_shapes

OLDEST_OPSET = 18
"""The rules add operators as of this opset or later; older models are converted."""

_OLDEST_WITH_DEFAULTS = 4
"""From this IR version on, an initializer that is also an input is a default value; before, all had to be inputs."""


def prepared(model: onnx.ModelProto, stop_at: Collection[str] = ()) -> onnx.ModelProto:
    """A copy of a model of opset 18 or later, with inferred types and shapes and with functions inlined.

    What is read from sequences, except those in `stop_at`, is written as operators on tensors where that is possible.

    Only the bodies of this project's operators stay functions. Declared shapes of intermediate tensors are ignored, because
    they may not fit the shapes of the inputs. The data of large initializers is left out; `restore_weights` restores it.

    Raises:
        ValueError: the model imports no opset or one that cannot be converted, an attribute of an operator of
            this project breaks its rule, or functions cannot be inlined.
        TypeError: such an attribute is unknown or has the wrong type.
    """
    check_attributes(model)
    made = inline_functions(strip_weights(model), OLDEST_OPSET)
    for node in iter_nodes(made):
        # The default of STFT's onesided is 1, but ONNX's shape inference (1.23 at least) uses 0.
        is_stft = node.op_type == "STFT" and normalize_domain(node.domain) == ""
        if is_stft and not any(one.name == "onesided" for one in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))
    typed = _with_inferred_types(made)
    if any(node.op_type in READERS for node in iter_nodes(typed.graph)):
        opsets = {normalize_domain(item.domain): item.version for item in typed.opset_import}
        replace_reads(Graph(typed.graph, opsets), stop_at)
        del made.graph.node[:]
        made.graph.node.extend(typed.graph.node)
        typed = _with_inferred_types(made)
    return typed


def _with_inferred_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with types and shapes inferred from those of its inputs, ignoring default values of inputs.

    What inference does not find, as after an operator of another domain, is taken from the model's declarations: element
    type, rank and symbolic lengths, but no numbers, which may not fit the inputs. Inference goes on from there.
    """
    bare = copy.deepcopy(model)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    forget_lengths_inside(bare.graph)
    _name_lengths(bare.graph, model.graph)
    if model.ir_version >= _OLDEST_WITH_DEFAULTS:
        fed = {value.name for value in bare.graph.input}
        constants = [tensor for tensor in bare.graph.initializer if tensor.name not in fed]
        del bare.graph.initializer[:]
        bare.graph.initializer.extend(constants)
    found = infer_shapes(bare, data_prop=True)
    if lost := _lost(found, model):
        bare.graph.value_info.extend(lost)
        found = infer_shapes(bare, data_prop=True)
    _rename_invented(found.graph, bare.graph, model.graph)
    del found.graph.initializer[:]
    found.graph.initializer.extend(model.graph.initializer)
    for node, original in zip(found.graph.node, model.graph.node, strict=True):
        if any(subgraphs([original])):
            node.CopyFrom(original)
    known = {value.name: value for value in (*found.graph.value_info, *found.graph.output)}
    for value in (*model.graph.value_info, *model.graph.output):
        if value.type.HasField("tensor_type"):
            kind = (known.get(value.name) or found.graph.value_info.add(name=value.name)).type.tensor_type
            _complete(kind, value.type.tensor_type)
    return found


def _name_lengths(graph: onnx.GraphProto, declared: onnx.GraphProto) -> None:
    """Give each open length of a graph's inputs a name, so that inference finds which other lengths are equal to it."""
    names = {length.dim_param for length in named_lengths(declared)}
    for value in graph.input:
        for axis, length in enumerate(value.type.tensor_type.shape.dim):
            if length.WhichOneof("value") is None:
                length.dim_param = f"{value.name}_{axis}"
                while length.dim_param in names:
                    length.dim_param += "_"


def _rename_invented(found: onnx.GraphProto, bare: onnx.GraphProto, declared: onnx.GraphProto) -> None:
    """Rename the lengths that inference invents a name for, if a declaration that it did not get has that name."""
    known = {length.dim_param for length in named_lengths(bare)}
    names = known | {length.dim_param for length in named_lengths(declared)}
    for length in named_lengths(found):
        if length.dim_param not in known:
            while length.dim_param in names:
                length.dim_param += "_"


def _lost(found: onnx.ModelProto, model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The declarations of the tensors of which inference finds no rank, without numbers."""
    known = {value.name for value in found.graph.value_info if value.type.tensor_type.HasField("shape")}
    lost = []
    for declared in model.graph.value_info:
        if declared.name not in known and declared.type.tensor_type.HasField("shape"):
            lost.append(onnx.ValueInfoProto(name=declared.name))
            _complete(lost[-1].type.tensor_type, declared.type.tensor_type)
    return lost


def _complete(kind: onnx.TypeProto.Tensor, declared: onnx.TypeProto.Tensor) -> None:
    """Complete an inferred type by the element type, rank and symbolic lengths of the declared one."""
    kind.elem_type = kind.elem_type or declared.elem_type
    if not declared.HasField("shape"):
        return
    if not kind.HasField("shape"):
        kind.shape.SetInParent()
        kind.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in declared.shape.dim)
    if len(kind.shape.dim) == len(declared.shape.dim):
        for length, name in zip(kind.shape.dim, declared.shape.dim, strict=True):
            if length.WhichOneof("value") != "dim_value" and name.dim_param:
                length.dim_param = name.dim_param
