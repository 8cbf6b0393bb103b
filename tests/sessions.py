# SPDX-License-Identifier: MIT
"""Sessions with operators of users, of models that are written as a graph of ONNX's text form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnxruntime

import ortops
from conformance.backends.session import CPU, options

ONE = "(float[n] x) => (float[m] y) { y = t.f(x) }"
"""A graph of one node of the operator t::f."""


def model_of(graph: str, *attributes: onnx.AttributeProto, imports: str = '"t" : 1') -> onnx.ModelProto:
    """A model with attributes of its first node, which imports opset 18 and domains."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18, {imports}]> g {graph}')
    model.graph.node[0].attribute.extend(attributes)
    return model


def session(model: str | onnx.ModelProto, *operators: ortops.CustomOperator, chosen: Any = None) -> Any:
    """A session of a model, or of its graph."""
    model = model_of(model) if isinstance(model, str) else model
    return ortops.InferenceSession(model.SerializeToString(), chosen or options(), [CPU], operators=operators)


def stock_session(model: str | onnx.ModelProto, *operators: ortops.CustomOperator, chosen: Any = None) -> Any:
    """A session of onnxruntime's own class."""
    model, chosen = model_of(model) if isinstance(model, str) else model, chosen or options()
    ortops.register(chosen, operators=operators)
    return onnxruntime.InferenceSession(model.SerializeToString(), chosen, [CPU])


def made(function: Callable[..., Any], **settings: Any) -> ortops.CustomOperator:
    """The operator t::f."""
    return ortops.operator(**{"domain": "t", "name": "f", **settings})(function)


def compiled(outputs: str = "y", **settings: Any) -> Callable[[Callable[..., Any]], ortops.CustomOperator]:
    """A decorator for the operator t::f that numba compiles."""
    return ortops.operator(**{"domain": "t", "name": "f", "compiled": True, "outputs": outputs.split(), **settings})
