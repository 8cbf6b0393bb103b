"""Which constants of a model a network learns, and why it does not learn the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import onnx

from onnx_models.gradient.roles import Roles, is_single, values_of
from onnx_models.gradient.rules.registry import REAL
from onnx_models.tools.protos import iter_nodes, normalize_domain, subgraphs

_NUMBER = "a number of a formula"
_INSIDE = "inside a subgraph, of which no gradient is an output"
_STOPPED = "named in stop_at"
_WRITTEN = "written by the exporter, which keeps parameters in initializers"

_KIND, _FOLDED = "pkg.torch.export.graph_signature.InputSpec.kind", "pkg.onnxscript.optimizer.folded_from"
"""The keys of what torch.onnx.export(dynamo=True) notes of a constant."""

_FOLDED_NAME, _OF_NUMBER = re.compile(r"'([^']*)'"), re.compile(r"val_\d+")
"""A name in the note of what a constant was folded from, and one that no tensor of a module has."""


@dataclass
class Parameters:
    """The weights of a model.

    names: the weights' names in the order of the graph: initializers, then Constant nodes.
    left_out: for the name of each other floating-point constant, the reason why it is not a weight.
    """

    names: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def parameters(graph: onnx.GraphProto, stop_at: Collection[str], source: onnx.GraphProto | None = None) -> Parameters:
    """Find what a network learns: its floating-point constants except settings, masks and numbers of formulas.

    A constant is an initializer or the output of a Constant node. Where PyTorch's exporter noted what it was in the module,
    that decides. `Roles.reason` tells settings and masks. A number of a formula has one element, no layer reads it as a
    weight or a bias, and it has rank 0, a whole value, a value that another such constant has as well, or is the scale of
    an attention. In 15 trained networks that tells the learned factors and summands of one element, of shape [1] (PP-OCR
    has 56 of each), from the numbers of Gelu, HardSwish, LayerNormalization and attention. In a model with initializers
    called NAME.weight, as PyTorch's exporters keep parameters, Constant nodes have none.

    Args:
        graph: with functions inlined.
        stop_at: names of tensors that count as constants.
        source: the model's own graph, with the exporter's notes and the data that `graph` may lack; None for `graph`.
    """
    source = source or graph
    own, known = dict(real_constants(graph)), dict(real_constants(source))
    constants = {name: known.get(name, tensor) for name, tensor in own.items()}
    roles, noted, found = Roles(graph, constants), dict(_notes(source)), Parameters()
    values = Counter(value for tensor in constants.values() if (value := _value(tensor)) is not None)
    initializers = {tensor.name for tensor in graph.initializer}
    is_of_torch = any(name.endswith(".weight") for name in initializers)
    for name, tensor in constants.items():
        reason = _STOPPED if name in stop_at else noted[name] if name in noted else roles.reason(name)
        if reason is None and is_single(tensor) and not roles.is_of_layer(name):
            value = _value(tensor)
            is_learned = tensor.dims and value is not None and values[value] == 1 and value % 1 > 0
            is_noted = name in noted and len(list(roles.readers(name))) == 1  # else a number may be merged with it
            reason = None if is_noted or (is_learned and not roles.is_scale_of_attention(name)) else _NUMBER
        if reason is None and is_of_torch and name not in initializers:
            reason = _WRITTEN
        if reason is None:
            found.names.append(name)
        else:
            found.left_out[name] = reason
    for node in iter_nodes(graph):
        for inner in subgraphs([node]):
            inside = {name: roles.reason(name) or _INSIDE for name, one in real_constants(inner) if not is_single(one)}
            found.left_out.update(inside)
    return found


def _notes(graph: onnx.GraphProto) -> Iterator[tuple[str, str | None]]:
    """Yield the constants that PyTorch's exporter noted, each with the reason why it is no parameter, or None if it is."""
    computed = {value.name for value in graph.input} | {name for node in graph.node for name in node.output}
    for value in graph.value_info:
        notes = {entry.key: entry.value for entry in value.metadata_props}
        sources = _FOLDED_NAME.findall(notes.get(_FOLDED, ""))
        if _KIND in notes:
            yield value.name, None if notes[_KIND] == "PARAMETER" else "a buffer of the module"
        elif sources and all(name in computed or _OF_NUMBER.fullmatch(name) for name in sources):  # shapes and numbers
            yield value.name, "computed from numbers by the exporter"


def constant_tensor(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The value of a Constant node with floating-point numbers or a tensor; None for other nodes."""
    if node.op_type != "Constant" or normalize_domain(node.domain) or not node.attribute:
        return None
    value = node.attribute[0]
    if value.name == "value":
        tensor: onnx.TensorProto = value.t
        return tensor
    if value.name == "value_float":
        return onnx.helper.make_tensor("", onnx.TensorProto.FLOAT, (), [value.f])
    if value.name == "value_floats":
        return onnx.helper.make_tensor("", onnx.TensorProto.FLOAT, (len(value.floats),), value.floats)
    return None


def real_constants(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield the names and values of the floating-point initializers and Constants of a graph."""
    named = [(tensor.name, tensor) for tensor in graph.initializer]
    named += [
        (node.output[0], one) for node in graph.node if node.output and (one := constant_tensor(node)) is not None
    ]
    yield from ((name, tensor) for name, tensor in named if tensor.data_type in REAL)


def _value(tensor: onnx.TensorProto) -> float | None:
    """The value of a tensor of one element; None if it has several, or if they are external."""
    array = values_of(tensor) if is_single(tensor) else None
    return None if array is None else float(array.item())
