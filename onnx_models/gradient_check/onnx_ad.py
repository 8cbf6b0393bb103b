"""The package onnx-ad as a differentiate function, for comparison."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper


def installed() -> bool:
    """Whether the package is installed."""
    return importlib.util.find_spec("onnx_ad") is not None


def onnx_ad(model: onnx.ModelProto, loss: str, wrt: Sequence[str]) -> onnx.ModelProto:
    """The model with an output NAME_grad for each of `wrt`, by onnx-ad's reverse mode (0.3).

    Raises:
        ValueError: onnx-ad has no rule for an operator.
    """
    import onnx_ad as package

    try:
        made: onnx.ModelProto = package.reverse(model, inputs=list(wrt), outputs=[loss], layout="onnx")
    except package.UnsupportedOperator as error:
        raise ValueError(str(error)) from error
    # The last input is the seed of the loss; its axis is also the last axis of the gradients.
    seed, gradients = made.graph.input[-1], list(made.graph.output)[-len(wrt) :]
    kind = helper.tensor_dtype_to_np_dtype(seed.type.tensor_type.elem_type)
    made.graph.initializer.append(numpy_helper.from_array(np.ones(1, kind), seed.name))
    made.graph.initializer.append(numpy_helper.from_array(np.array(0), "checked_first"))
    del made.graph.input[-1], made.graph.output[-len(wrt) :]
    for name, gradient in zip(wrt, gradients, strict=True):
        # Not Squeeze: in older opsets its axes are an attribute.
        made.graph.node.append(helper.make_node("Gather", [gradient.name, "checked_first"], [f"{name}_grad"], axis=-1))
        output = made.graph.output.add(name=f"{name}_grad")
        output.type.CopyFrom(next(value.type for value in model.graph.input if value.name == name))
    return made
