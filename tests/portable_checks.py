"""Checking bodies in standard operators: in ONNX Runtime without this project's kernels, against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

from conformance.backends.session import CPU, options
from onnx_models.portable import attach
from ortops.operators import BY_NAME
from ortops.reference import evaluate
from ortops.spec import Operator
from problems import Array

TYPES = {"float16": np.float16, "float": np.float32, "double": np.float64}
# One rounding to the type, and sums in float: the outputs are below 10 in size.
TOLERANCES = {"float16": 8e-3, "float": 2e-5, "double": 1e-11}
ALL_OPSETS = range(18, 23)


def session(model: onnx.ModelProto) -> Any:
    """ONNX Runtime without this project's kernels."""
    return onnxruntime.InferenceSession(model.SerializeToString(), options(), providers=[CPU])


def run(made: Any, feeds: dict[str, Array]) -> list[Array]:
    # ONNX Runtime logs what a node refuses before it raises.
    quiet = onnxruntime.RunOptions()
    quiet.log_severity_level = 4
    names = {value.name for value in made.get_inputs()}
    outputs: list[Array] = made.run(None, {name: value for name, value in feeds.items() if name in names}, quiet)
    return outputs


def expected(
    operator: Operator, feeds: dict[str, Array], attributes: dict[str, Any], outputs: Sequence[str]
) -> list[Array]:
    inputs = [feeds.get(tensor.name) for tensor in operator.inputs]
    wanted = [tensor.name in outputs for tensor in operator.outputs]
    return [value for value in evaluate(operator, inputs, attributes, wanted) if value is not None]


def check(model: onnx.ModelProto, feeds: dict[str, Array]) -> None:
    """The body agrees with the reference, and ONNX's checker with the body."""
    node = model.graph.node[0]
    operator = BY_NAME[node.op_type]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
    made = attach(model)
    onnx.checker.check_model(made, full_check=True)
    got = run(session(made), feeds)
    names = [value.name for value in model.graph.output]
    kind = onnx.TensorProto.DataType.Name(model.graph.output[0].type.tensor_type.elem_type).lower()
    for name, actual, right in zip(names, got, expected(operator, feeds, attributes, names), strict=True):
        assert actual.dtype == TYPES[kind], f"{name} has type {actual.dtype}, expected {kind}"
        assert actual.shape == right.shape, f"{name} has shape {actual.shape}, expected {right.shape}"
        scale = max(1.0, float(np.abs(right).max(initial=0)))
        error = float(np.abs(actual.astype(np.float64) - right).max(initial=0))
        assert error <= TOLERANCES[kind] * scale, f"{name} differs by {error} where it is up to {scale}"


def with_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    for entry in model.opset_import:
        if not entry.domain:
            entry.version = opset
    return model
