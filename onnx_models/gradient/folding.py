"""Constant folding of small tensors that depend on constants and known shapes only."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnx_models.gradient.graph import Graph
from onnx_models.tools.nodes import Length
from onnx_models.tools.protos import normalize_domain

_MAX_STEPS = 1000
_MAX_ELEMENTS = 1024

_COMPUTED = {
    "Abs", "Add", "And", "Cast", "Concat", "Div", "Equal", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less",
    "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum",
    "Reshape", "Slice", "Squeeze", "Sub", "Unsqueeze", "Where", "Xor",
}  # fmt: skip
"""The operators to fold; their outputs are not much larger than their inputs."""


def known_value(graph: Graph, name: str) -> np.ndarray[Any, Any] | None:
    """The value of a tensor if constants and known shapes determine it, with little work; else None."""
    constants: dict[str, np.ndarray[Any, Any]] = {}
    nodes: list[onnx.NodeProto] = []
    waiting = [name]
    for _ in range(_MAX_STEPS):
        if not waiting:
            break
        one = waiting.pop()
        value = _constant(graph, one)
        if value is not None and value.size <= _MAX_ELEMENTS:
            constants[one] = value
            continue
        node = graph.producer(one)
        if node is None or normalize_domain(node.domain) or node.op_type not in _COMPUTED:
            return None
        if node in nodes:
            nodes.remove(node)
        nodes.append(node)
        waiting += filter(None, node.input)
    if waiting:
        return None
    if name in constants:
        return constants[name]
    tensors = [onnx.numpy_helper.from_array(value, tensor) for tensor, value in constants.items()]
    output = onnx.helper.make_value_info(name, onnx.TypeProto())
    opsets = [onnx.helper.make_opsetid("", graph.opsets[""])]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes[::-1], "known", [], [output], tensors), opset_imports=opsets
    )
    try:
        results: Any = ReferenceEvaluator(model).run(None, {})
    except (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError):
        return None  # an invalid node is reported by the session that runs it
    return np.asarray(results[0])


def _constant(graph: Graph, name: str) -> np.ndarray[Any, Any] | None:
    """The value of a constant, or of Shape, Size or Gather of Shape if the lengths are known."""
    node = graph.producer(name)
    if node is None or normalize_domain(node.domain) or node.op_type not in ("Gather", "Shape", "Size"):
        return graph.constant(name)
    if node.op_type == "Gather":
        shape, places = graph.producer(node.input[0]), graph.constant(node.input[1])
        if shape is None or shape.op_type != "Shape" or places is None:
            return None
        lengths = _lengths(graph, shape)
        if lengths is None or not ((places >= -len(lengths)) & (places < len(lengths))).all():
            return None
        chosen = [lengths[place] for place in places.ravel()]
        numbers = [length for length in chosen if isinstance(length, int)]
        return np.array(numbers, np.int64).reshape(places.shape) if len(numbers) == len(chosen) else None
    lengths = _lengths(graph, node)
    if lengths is None or any(not isinstance(length, int) for length in lengths):
        return None
    numbers = [length for length in lengths if isinstance(length, int)]
    return np.array(numbers, np.int64) if node.op_type == "Shape" else np.array(np.prod(numbers), np.int64)


def _lengths(graph: Graph, shape: onnx.NodeProto) -> list[Length] | None:
    """The known lengths that a Shape or Size node reads; None if even the rank is unknown."""
    lengths = graph.lengths(shape.input[0])
    bounds: dict[str, int] = {str(a.name): a.i for a in shape.attribute}
    return None if lengths is None else lengths[bounds.get("start", 0) : bounds.get("end")]
