"""Which constants of a model a network learns, and why it does not learn the others."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import onnx

from onnx_models.gradient.ours import REGIONS
from onnx_models.gradient.rules.registry import REAL
from onnx_models.traversal import iter_nodes, normalize_domain, subgraphs

MOVED = {
    "Cast", "CastLike", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze",
}  # fmt: skip
"""Operators whose output is their first input in another shape or type: what reads the output decides."""

_BOUND, _STATE, _SCALE = "a bound", "an initial state", "a scale of quantization"

_SETTINGS: Mapping[str, Mapping[int, str]] = {
    "Attention": {3: "a mask", 4: "a cache", 5: "a cache"},
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

_NUMBER = "a number of a formula"
_INSIDE = "inside a subgraph, of which no gradient is an output"
_STOPPED = "named in stop_at"


@dataclass
class Parameters:
    """The weights of a model.

    names: the weights' names in the order of the graph: initializers, then Constant nodes.
    left_out: for the name of each other floating-point constant, the reason why it is not a weight.
    """

    names: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def parameters(graph: onnx.GraphProto, stop_at: Collection[str]) -> Parameters:
    """Find what a network learns: its floating-point constants except settings and numbers of formulas.

    A constant is an initializer or the output of a Constant node. It is a setting if operators read it only by inputs of
    `_SETTINGS`, or as regions of interest. It is a number of a formula if it has one element, no layer reads it as a
    weight or a bias (`WEIGHTS`), and it has rank 0, a whole value, or a value that another such constant has as well.
    In 15 trained networks that tells the learned factors and summands of one element, of shape [1] (PP-OCR has 56 of each),
    from the numbers of Gelu, HardSwish, LayerNormalization and attention.
    """
    uses = _Uses(graph)
    found, constants = Parameters(), dict(real_constants(graph))
    values = Counter(value for tensor in constants.values() if (value := _value(tensor)) is not None)
    for name, tensor in constants.items():
        reason = _STOPPED if name in stop_at else uses.reason(name)
        if reason is None and _is_single(tensor) and not uses.is_of_layer(name):
            value = _value(tensor)
            is_learned = tensor.dims and value is not None and values[value] == 1 and value % 1 > 0
            reason = None if is_learned else _NUMBER
        if reason is None:
            found.names.append(name)
        else:
            found.left_out[name] = reason
    for node in iter_nodes(graph):
        for inner in subgraphs([node]):
            inside = {name: uses.reason(name) or _INSIDE for name, one in real_constants(inner) if not _is_single(one)}
            found.left_out.update(inside)
    return found


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


def _is_single(tensor: onnx.TensorProto) -> bool:
    return bool(math.prod(tensor.dims) == 1)


def _value(tensor: onnx.TensorProto) -> float | None:
    """The value of a tensor of one element; None if it has several, or if they are external."""
    if not _is_single(tensor) or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return None
    return float(onnx.numpy_helper.to_array(tensor).item())


class _Uses:
    """The inputs of operators that read a tensor, either directly or after nodes that only move its elements."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._readers: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        for node in iter_nodes(graph):
            for i, name in enumerate(node.input):
                self._readers[name].append((node, i))

    def reason(self, name: str) -> str | None:
        """The role of a tensor that is a setting wherever it is read; None for others."""
        found = [setting(node, i) for node, i in self._uses(name)]
        return found[0] if found and None not in found else None

    def is_of_layer(self, name: str) -> bool:
        """Whether an operator reads a tensor as a weight or a bias."""
        return any(not node.domain and i in WEIGHTS.get(node.op_type, ()) for node, i in self._uses(name))

    def _uses(self, name: str) -> Iterator[tuple[onnx.NodeProto, int]]:
        waiting, known = [name], {name}
        while waiting:
            for node, i in self._readers.get(waiting.pop(), ()):
                if i == 0 and node.op_type in MOVED and not normalize_domain(node.domain):
                    new = set(node.output) - known
                    known |= new
                    waiting += new
                else:
                    yield node, i


def setting(node: onnx.NodeProto, i: int) -> str | None:
    """The role of input i of a node if no network learns it; None if it may be learned."""
    domain = normalize_domain(node.domain)
    if (domain, node.op_type, i) in REGIONS:
        return "a region of interest"
    return _SETTINGS.get(node.op_type, {}).get(i) if domain == "" else None
