"""Half precision: where ONNX Runtime computes an operator in float32, its gradient does so too."""

from __future__ import annotations

import onnx

from onnx_models.nodes import NodeBuilder

HALF = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def upcast(graph: NodeBuilder, name: str) -> str:
    """The tensor cast to float32 if it is float16 or bfloat16, else the tensor itself."""
    return graph.op("Cast", name, to=onnx.TensorProto.FLOAT) if graph.element_type(name) in HALF else name


def downcast(graph: NodeBuilder, name: str, like: str) -> str:
    """The tensor cast to the type of `like` if that is float16 or bfloat16; undoes `upcast`."""
    return graph.op("CastLike", name, like) if graph.element_type(like) in HALF else name
