"""Models of one node whose gradient is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from gradient_checks import Array
from ortops.spec import DOMAIN, DOMAIN_VERSION

IS_OLD = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 21)
"""Whether this is ONNX Runtime 1.20."""

not_of_old = pytest.mark.skipif(IS_OLD, reason="ONNX Runtime 1.20 computes this wrong or not at all")


def inputs_of(feeds: Mapping[str, Array], *, opened: bool) -> list[onnx.ValueInfoProto]:
    """The inputs of a model for given feeds, with dynamic lengths or not."""
    return [
        onnx.helper.make_tensor_value_info(
            name,
            onnx.helper.np_dtype_to_tensor_dtype(value.dtype),
            [f"{name}{i}" for i in range(value.ndim)] if opened else value.shape,
        )
        for name, value in feeds.items()
    ]


def node_model(
    operator: str,
    feeds: Mapping[str, Array],
    attributes: Mapping[str, Any] | None = None,
    *,
    opened: bool,
    opset: int = 18,
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, Array] | None = None,
    inputs: Sequence[str] | None = None,
    domain: str = "",
) -> onnx.ModelProto:
    """A model of a node "it": its output y is of the type and the rank of its first input.

    Args:
        operator: its name.
        feeds: what the inputs of the model will be, by name.
        attributes: of the node.
        opened: whether the lengths of the inputs are left open.
        opset: of the model.
        outputs: names of the node's outputs, of which y is one of the model.
        constants: initializers by name.
        inputs: names of the node's inputs; all feeds and then all constants by default.
        domain: of the operator.
    """
    values = inputs_of(feeds, opened=opened)
    first = next(iter(feeds.values()))
    kind = onnx.helper.np_dtype_to_tensor_dtype(first.dtype)
    y = onnx.helper.make_tensor_value_info("y", kind, [None] * first.ndim)
    tensors_of_it = [onnx.numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    names = [*feeds, *(constants or {})] if inputs is None else list(inputs)
    node = onnx.helper.make_node(operator, names, list(outputs), name="it", domain=domain)
    node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in (attributes or {}).items())
    graph = onnx.helper.make_graph([node], "g", values, [y], tensors_of_it)
    opsets = {"": opset, DOMAIN: DOMAIN_VERSION} if domain else {"": opset}
    imports = [onnx.helper.make_opsetid(*item) for item in opsets.items()]
    return onnx.helper.make_model(graph, ir_version=10, opset_imports=imports)


def uniform(
    shapes: Mapping[str, Sequence[int]], dtype: type = np.float64, low: float = -1, high: float = 1
) -> dict[str, Array]:
    """Random tensors of given shapes."""
    rng = np.random.default_rng(1)
    return {name: rng.uniform(low, high, shape).astype(dtype) for name, shape in shapes.items()}
