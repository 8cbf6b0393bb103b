# SPDX-License-Identifier: MIT
"""Which constants of a model a network learns, and why it does not learn the others."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_models.gradient.ours import REGIONS
from onnx_models.gradient.registry import REAL
from onnx_models.tools.protos import iter_nodes, normalize_domain, subgraphs

MOVED = {
    "Cast", "CastLike", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip
"""Operators whose output is their first input in another shape or type, or repeated: what reads the output decides."""

_BOUND, _STATE, _SCALE = "a bound", "an initial state", "a scale of quantization"

_SETTINGS: Mapping[str, Mapping[int, str]] = {
    "Attention": {4: "a cache", 5: "a cache"},
    "BatchNormalization": {3: "a running statistic", 4: "a running statistic"},
    "Clip": {1: _BOUND, 2: _BOUND},
    "DequantizeLinear": {1: _SCALE},
    "Dropout": {1: "a probability"},
    "GRU": {5: _STATE},
    "LSTM": {5: _STATE, 6: _STATE},
    "NegativeLogLikelihoodLoss": {2: "a weight of a class"},
    "OneHot": {2: "values for on and off"},
    "Pad": {2: "a value to pad with"},
    "QuantizeLinear": {1: _SCALE},
    "RNN": {5: _STATE},
    "Range": dict.fromkeys(range(3), "an end or a step of a range"),
    "Resize": {1: "a region to resize", 2: "a scale to resize by"},
    "RotaryEmbedding": {1: "a table of positions", 2: "a table of positions"},
    "STFT": {2: "a window"},
    "SoftmaxCrossEntropyLoss": {2: "a weight of a class"},
}
"""The inputs that no network learns, by ONNX operator and input index."""

WEIGHTS: Mapping[str, Collection[int]] = {
    "BatchNormalization": (1, 2),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "DeformConv": (1, 3),
    "GRU": (1, 2, 3),
    "Gemm": (0, 1, 2),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LSTM": (1, 2, 3, 7),
    "LayerNormalization": (1, 2),
    "MatMul": (0, 1),
    "PRelu": (1,),
    "RMSNormalization": (1,),
    "RNN": (1, 2, 3),
}
"""The inputs that are weights even if they have one element, by ONNX operator and input index."""

_NORMALIZATIONS = {
    "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization",
}  # fmt: skip
"""Operators whose inputs 1 and 2 are a scale and a bias."""

_BEFORE_SOFTMAX = {
    "Add", "Concat", "Div", "Gather", "Max", "Min", "Mul", "Slice", "Sub", "Sum", "Where", *MOVED,
}  # fmt: skip
"""Operators by which a mask reaches the Softmax that it is for."""

_PRODUCTS, _SCALINGS = {"Einsum", "MatMul"}, {"Div", "Mul", *MOVED}
"""Operators that compute the scores of an attention, and those that scale queries and keys."""

_EXCLUDED = -1e3
"""What excludes a position from an attention is this or less; no network learns such a summand."""

_LONGEST = 4096
"""The largest length of a vector whose root is taken for the scale of an attention."""

_ROUNDING: Mapping[int, float] = {onnx.TensorProto.BFLOAT16: 2**-7, onnx.TensorProto.FLOAT16: 2**-10}
"""The relative distance of numbers of short types."""


class Roles:
    """The roles of a graph's constants, which are given with their data.

    A node counts as a reader of a tensor if it reads it directly or after nodes that only move its elements.
    """

    def __init__(self, graph: onnx.GraphProto, tensors: Mapping[str, onnx.TensorProto]) -> None:
        self._tensors = tensors
        self._readers: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        self._origins = {name: name for name in tensors}
        """The constants, by the tensors that they are moved to."""
        self._scores, self._queries = set[str](), set[str]()
        """What reaches a Softmax element by element, and what first is a factor of a product."""
        nodes = list(iter_nodes(graph))
        for node in nodes:
            for i, name in enumerate(node.input):
                self._readers[name].append((node, i))
            if _moves(node) and node.input[0] in self._origins:
                self._origins.update(dict.fromkeys(node.output, self._origins[node.input[0]]))
        for node in reversed(nodes):
            is_score, is_query = (not names.isdisjoint(node.output) for names in (self._scores, self._queries))
            if node.op_type == "Softmax" or (is_score and node.op_type in _BEFORE_SOFTMAX):
                self._scores.update(node.input)
            elif node.op_type == "Attention":
                self._scores.update(node.input[3:4])
            elif (is_score and node.op_type in _PRODUCTS) or (is_query and node.op_type in _SCALINGS):
                self._queries.update(node.input)

    def reason(self, name: str) -> str | None:
        """Why no network learns a tensor: by its values, or by its role wherever it is read; None for others."""
        tensor = self._tensors.get(name)
        array = None if tensor is None else values_of(tensor)
        if array is not None and not np.isfinite(array).all():
            return "not finite"
        if tensor is not None and name in self._scores and _is_mask(tensor.dims, array):
            return "a mask"
        reasons = [setting(node, i) or self._neutral(array, node, i) for node, i in self.readers(name)]
        return reasons[0] if reasons and None not in reasons else None

    def is_of_layer(self, name: str) -> bool:
        """Whether an operator reads a tensor as a weight or a bias."""
        return any(not node.domain and i in WEIGHTS.get(node.op_type, ()) for node, i in self.readers(name))

    def is_scale_of_attention(self, name: str) -> bool:
        """Whether a tensor of one element is the root of a length, or of such a root, and scales scores or queries."""
        array = values_of(self._tensors[name])
        if array is None or (name not in self._scores and name not in self._queries):
            return False
        value, tolerance = abs(float(array.item())), 4 * _ROUNDING.get(self._tensors[name].data_type, 2**-23)
        lengths = (value**power for power in (-4, -2, 2, 4)) if 1 / _LONGEST < value < _LONGEST else ()
        return any(1.5 < length < _LONGEST and abs(length / round(length) - 1) < tolerance for length in lengths)

    def readers(self, name: str) -> Iterator[tuple[onnx.NodeProto, int]]:
        """Yield the readers of a tensor, each with the index of the input."""
        waiting, known = [name], {name}
        while waiting:
            for node, i in self._readers.get(waiting.pop(), ()):
                if i == 0 and _moves(node):
                    new = set(node.output) - known
                    known |= new
                    waiting += new
                else:
                    yield node, i

    def _neutral(self, array: NDArray[Any] | None, node: onnx.NodeProto, i: int) -> str | None:
        """The role of ones for a scale and of zeros for a bias if a learned one follows.

        So exporters write a GroupNormalization by an InstanceNormalization of groups.
        """
        if node.op_type not in _NORMALIZATIONS or i not in (1, 2) or array is None or (array != 2 - i).any():
            return None
        return "a neutral scale or bias" if self._is_followed(node, "Mul" if i == 1 else "Add") else None

    def _is_followed(self, node: onnx.NodeProto, op_type: str) -> bool:
        """Whether all readers of a node's output are of this type and have a constant of several elements."""
        readers = [reader for reader, _ in self.readers(node.output[0])]
        return bool(readers) and all(
            any(not is_single(self._tensors[self._origins[name]]) for name in reader.input if name in self._origins)
            and (reader.op_type == op_type or (reader.op_type == "Mul" and self._is_followed(reader, op_type)))
            for reader in readers
        )


def is_single(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor has one element."""
    return bool(math.prod(tensor.dims) == 1)


def values_of(tensor: onnx.TensorProto) -> NDArray[Any] | None:
    """The elements of a tensor; None if they are external."""
    return None if tensor.data_location == onnx.TensorProto.EXTERNAL else onnx.numpy_helper.to_array(tensor)


def _is_mask(lengths: Sequence[int], array: NDArray[Any] | None) -> bool:
    """Whether a tensor that reaches a Softmax is a mask, and not a learned bias, such as one of relative positions.

    A mask excludes, or has 0 and one other value. One without data or of zeros alone is the same for all heads.
    """
    is_for_all_heads = len(lengths) > 2 and lengths[-3] == 1
    if array is None or not array.any():
        return is_for_all_heads
    return bool(array.min() <= _EXCLUDED) or (array.size > 2 and 0 in array and len(np.unique(array)) == 2)


def _moves(node: onnx.NodeProto) -> bool:
    return node.op_type in MOVED and bool(node.input) and not normalize_domain(node.domain)


def setting(node: onnx.NodeProto, i: int) -> str | None:
    """The role of input i of a node if no network learns it; None if it may be learned."""
    domain = normalize_domain(node.domain)
    if (domain, node.op_type, i) in REGIONS:
        return "a region of interest"
    return _SETTINGS.get(node.op_type, {}).get(i) if domain == "" else None


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
    """The names of a model's weights, and the reason for each other floating-point constant why it is none."""

    names: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def parameters(graph: onnx.GraphProto, stop_at: Collection[str], source: onnx.GraphProto | None = None) -> Parameters:
    """Find what a network learns: its floating-point constants except settings, masks and numbers of formulas.

    A constant is an initializer or the output of a Constant node. Where PyTorch's exporter noted what it was in the module,
    that decides. `Roles.reason` tells settings and masks. A number of a formula has one element, no layer reads it as a
    weight or a bias, and it has rank 0, a whole value, a value that another such constant has as well, or is the scale of
    an attention. In 15 trained networks that tells the learned factors and summands of one element, of shape [1] (PP-OCR
    has 56 of each), from the numbers of Gelu, HardSwish, LayerNormalization and attention. In a model with initializers
    called NAME.weight, as PyTorch's exporters keep parameters, Constant nodes have none. `source` is the model's own graph,
    with the exporter's notes and the data that `graph` may lack.
    """
    source = source or graph
    here, known = dict(real_constants(graph)), dict(real_constants(source))
    constants = {name: known.get(name, tensor) for name, tensor in here.items()}
    roles, noted, selected = Roles(graph, constants), dict(_notes(source)), Parameters()
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
            selected.names.append(name)
        else:
            selected.left_out[name] = reason
    for node in iter_nodes(graph):
        for inner in subgraphs([node]):
            inside = {
                name: roles.reason(name) or _INSIDE for name, tensor in real_constants(inner) if not is_single(tensor)
            }
            selected.left_out.update(inside)
    return selected


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


def _constants(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield the names and values of the initializers and the Constants of a graph."""
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    for node in graph.node:
        if node.output and (tensor := constant_tensor(node)) is not None:
            yield node.output[0], tensor


def real_constants(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield the names and values of the floating-point initializers and Constants of a graph."""
    yield from ((name, tensor) for name, tensor in _constants(graph) if tensor.data_type in REAL)


def constant_types(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TypeProto.Tensor]]:
    """Yield the names and types of the initializers and the Constants of a graph."""
    for name, tensor in _constants(graph):
        yield name, onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims)).tensor_type


def _value(tensor: onnx.TensorProto) -> float | None:
    """The value of a tensor of one element; None if it has several, or if they are external."""
    array = values_of(tensor) if is_single(tensor) else None
    return None if array is None else float(array.item())
