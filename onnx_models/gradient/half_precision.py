"""Half precision: what ONNX Runtime computes in float, its gradient computes in float too."""

from __future__ import annotations

import onnx

from onnx_models.gradient.graph import Graph

HALF = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def upcast(graph: Graph, name: str) -> str:
    """A tensor of 16 bits as float, any other as it is."""
    return graph.op("Cast", name, to=onnx.TensorProto.FLOAT) if graph.element_type(name) in HALF else name


def downcast(graph: Graph, name: str, like: str) -> str:
    """What was computed from a upcast tensor, in the type that this tensor has."""
    return graph.op("CastLike", name, like) if graph.element_type(like) in HALF else name
