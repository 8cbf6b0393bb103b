# SPDX-License-Identifier: MIT
"""A program for a new process, in which onnxruntime-extensions counts as not installed: all kinds of sessions work."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

import onnx_models
import ortops
from samples import FORWARD
from test_standard import OTHERS, of_other

sys.modules["onnxruntime_extensions"] = None  # type: ignore[assignment]

Vector = Annotated[NDArray[np.float32], ("n",)]
SIZE: Any = {"output_height": 2, "output_width": 2}


@ortops.operator(domain="mine")
def InPython(x: Vector) -> Vector:  # noqa: N802
    return x + 1


@ortops.operator(domain="mine", compiled=True, outputs=["y"])
def Compiled(x: Vector, y: Vector) -> None:  # noqa: N802
    y[:] = 2 * x


def error_of(call: Any, *arguments: Any) -> str:
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001
        return str(error)
    return ""


def session(graph: str, options: Any = None, **arguments: Any) -> ortops.InferenceSession:
    model = onnx.parser.parse_model(graph).SerializeToString()
    return ortops.InferenceSession(model, options or onnxruntime.SessionOptions(), **arguments)


options = onnxruntime.SessionOptions()
due = ortops.roi_align(*FORWARD.values(), **SIZE)
for opset in (16, 22):
    standard = onnx_models.roi_align(opset, standard=True, **SIZE)
    for model in (standard, onnx_models.convert(standard)):
        y = ortops.InferenceSession(model.SerializeToString(), options).run(None, FORWARD)[0]
        assert y.tobytes() == due.tobytes()
assert ortops.InferenceSession(of_other(*OTHERS[0]).SerializeToString(), options)
own = """
    <ir_version: 8, opset_import: ["mine" : 1]>
    g (float[n] x) => (float[n] y) { t = mine.InPython(x) y = mine.Compiled(t) }"""
assert session(own, options, operators=[InPython, Compiled]).run(None, {"x": np.ones(1, np.float32)})[0].tolist() == [4]
options.register_custom_ops_library(ortops.library_path())
assert "Domain already set in registry" in error_of(session, own, options)
other = """
    <ir_version: 8, opset_import: ["ai.onnx.contrib" : 1]>
    g (string[n] x) => (string[n] y) { y = ai.onnx.contrib.StringUpper(x) }"""
assert (
    "ortops has no StringUpper. The session has no operators of onnxruntime-extensions: make new options"
    in error_of(session, other)
)
print("all sessions work")
