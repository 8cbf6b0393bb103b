"""Running an ONNX Runtime session on the tensors of a case, bfloat16 included."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime

from conformance.case import Array, Case

QUIET = 4
"""ONNX Runtime's severity of fatal messages: refusals that a case asks for are not worth a line each."""

# Kernels log through the process's logger while a session is made, whatever the session's own severity.
onnxruntime.set_default_logger_severity(QUIET)


def options() -> Any:
    """Session options that print nothing."""
    made = onnxruntime.SessionOptions()
    made.log_severity_level = QUIET
    return made


def run(session: Any, case: Case) -> dict[str, Array]:
    """The outputs of `session`, whose inputs and outputs have the names of the case's."""
    names = [output.name for output in session.get_outputs()]
    run_options = onnxruntime.RunOptions()
    run_options.log_severity_level = QUIET
    if case.dtype != ml_dtypes.bfloat16:
        return dict(zip(names, session.run(names, dict(case.inputs), run_options), strict=True))
    # NumPy has no bfloat16 that ONNX Runtime knows: the bits go in and out as uint16.
    feeds = {name: to_ort(array) for name, array in case.inputs.items()}
    return {
        name: from_ort(value)
        for name, value in zip(names, session.run_with_ort_values(names, feeds, run_options), strict=True)
    }


def to_ort(array: Array) -> Any:
    """An OrtValue of any element type."""
    if array.dtype != ml_dtypes.bfloat16:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    bits = np.ascontiguousarray(array).view(np.uint16)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)


def from_ort(value: Any) -> Array:
    """The array of an OrtValue of any element type."""
    if value.data_type() != "tensor(bfloat16)":
        return np.asarray(value.numpy())
    shape = tuple(value.shape())
    bits = ctypes.string_at(value.data_ptr(), 2 * int(np.prod(shape)))
    return np.frombuffer(bits, ml_dtypes.bfloat16).reshape(shape)
