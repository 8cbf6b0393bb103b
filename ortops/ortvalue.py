# SPDX-License-Identifier: MIT
"""Converts arrays of any element type to and from OrtValue; ONNX Runtime does not know bfloat16 NumPy arrays."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnxruntime

BFLOAT16 = 16
"""ONNX's number for the element type."""


def to_ort(array: npt.NDArray[Any]) -> Any:
    """An array as an OrtValue, for `run_with_ort_values` and bindings of inputs.

    Args:
        array: an array of any shape; bfloat16 as `ml_dtypes.bfloat16`.

    Returns:
        An `onnxruntime.OrtValue` on the CPU, which keeps the memory that it needs.
    """
    if array.dtype != ml_dtypes.bfloat16:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    bits = np.asarray(array, order="C").view(np.uint16)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, BFLOAT16)


def from_ort(value: Any) -> npt.NDArray[Any]:
    """The array in an `onnxruntime.OrtValue` on the CPU; bfloat16 as `ml_dtypes.bfloat16`, read-only."""
    if value.data_type() != "tensor(bfloat16)":
        return np.asarray(value.numpy())
    shape = tuple(value.shape())
    bits = ctypes.string_at(value.data_ptr(), 2 * math.prod(shape))
    return np.frombuffer(bits, ml_dtypes.bfloat16).reshape(shape)
