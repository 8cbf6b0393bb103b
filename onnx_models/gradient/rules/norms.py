"""Recognition of norms: roots of sums of powers, as exported for PyTorch's vector_norm, std and similar functions.

A norm has no derivative at 0; PyTorch (2.13) defines it as 0. The product of the derivatives of the root, which is infinite,
and of the powers, which is 0, would be NaN.
"""

from __future__ import annotations

import onnx

from onnx_models.gradient.graph import Graph

_ROUNDING = 1e-6
"""The relative error of an exponent such as 1/3 in float32."""


def is_norm(graph: Graph, name: str, power: float) -> bool:
    """Whether a tensor to this power is a norm: a sum or mean of powers, perhaps times a number of elements."""
    node = graph.producer(name)
    if node is None:
        return False
    if node.op_type in ("Mul", "Div"):
        a, b = node.input
        of_quotient = _is_count(graph, b) and is_norm(graph, a, power)
        return of_quotient or (node.op_type == "Mul" and _is_count(graph, a) and is_norm(graph, b, power))
    if node.op_type == "ReduceSumSquare":
        return power == 0.5
    return node.op_type in ("ReduceSum", "ReduceMean") and _is_power(graph, node.input[0], power)


def _is_power(graph: Graph, name: str, power: float) -> bool:
    """Whether a tensor is another one to the power 1/power > 1, and never negative."""
    node = graph.producer(name)
    if node is None or not 0 < power < 1:
        return False
    if node.op_type == "Mul":
        return power == 0.5 and node.input[0] == node.input[1]
    if node.op_type != "Pow":
        return False
    exponent = constant_number(graph, node.input[1])
    if exponent is None or abs(exponent * power - 1) >= _ROUNDING:
        return False
    base = graph.producer(node.input[0])
    return exponent % 2 != 1 or (base is not None and base.op_type == "Abs")


def constant_number(graph: Graph, name: str) -> float | None:
    """The value of a constant of one element, possibly after casts; None for any other tensor."""
    node = graph.producer(name)
    if node is not None and node.op_type in ("Cast", "CastLike"):
        return constant_number(graph, node.input[0])
    value = graph.constant(name)
    return float(value.item()) if value is not None and value.size == 1 and value.dtype.kind in "fiu" else None


def _is_count(graph: Graph, name: str) -> bool:
    """Whether a tensor is computed from numbers of elements and constants only."""
    if constant_number(graph, name) is not None:
        return True
    node = graph.producer(name)
    if node is None:
        return False
    if node.op_type in ("Cast", "CastLike"):
        return graph.element_type(node.input[0]) in (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
    return node.op_type in ("Sub", "Add", "Max") and all(_is_count(graph, one) for one in node.input)
