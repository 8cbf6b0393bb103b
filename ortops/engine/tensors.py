"""ONNX Runtime's tensors as NumPy arrays over the same memory."""

from __future__ import annotations

from ctypes import byref, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from ortops.engine.c_api import ELEMENT_TYPES, Api
from ortops.jit.kernel import Kernel
from ortops.jit.source import Unimported
from ortops.shapes import Shape

Array = np.ndarray[Any, Any]

if TYPE_CHECKING:
    from ortops.engine.compiled import inputs
else:
    inputs = Unimported("engine.compiled.inputs")

_describe = Kernel(inputs.describe)

MAX_DIMENSIONS = 8
"""The number of dimensions that are read at most, which is enough to refuse a tensor with more."""

_TYPESTR = {1: "<f4", 7: "<i8", 10: "<f2", 11: "<f8", 12: "<u4", 16: "<i2"}
_BFLOAT16 = ELEMENT_TYPES["bfloat16"]
_FUNCTIONS = (
    "KernelContext_GetInput",
    "GetTensorTypeAndShape",
    "GetTensorElementType",
    "GetDimensionsCount",
    "GetDimensions",
    "GetTensorMutableData",
    "ReleaseTensorTypeAndShapeInfo",
)


class Inputs:
    """Reads the inputs of a node as arrays."""

    def __init__(self, api: Api, count: int) -> None:
        self._functions = np.array([api.addresses[name] for name in _FUNCTIONS], np.intp)
        self._count = count

    def read(self, context: int) -> list[Array | None]:
        """The inputs of a call, None for an absent one; the arrays are valid during the call.

        Raises:
            RuntimeError: ONNX Runtime gives no access to an input.
        """
        rows = np.zeros((self._count, 3 + MAX_DIMENSIONS), np.int64)
        if _describe(self._functions, context, self._count, MAX_DIMENSIONS, rows) != 0:
            raise RuntimeError("ONNX Runtime gives no access to an input")
        return [_view(row[0], row[1], tuple(row[3 : 3 + row[2]])) if row[1] else None for row in rows.tolist()]


def output(api: Api, context: int, i: int, shape: Shape, element_type: int) -> Array | None:
    """Output `i` as an array over ONNX Runtime's memory, or None if the node leaves it out.

    Raises:
        OrtError: ONNX Runtime cannot allocate it.
    """
    value, data = c_void_p(), c_void_p()
    api.check(api.KernelContext_GetOutput(context, i, (c_int64 * len(shape))(*shape), len(shape), byref(value)))
    if not value:
        return None
    api.check(api.GetTensorMutableData(value, byref(data)))
    return _view(data.value or 0, element_type, shape)


class _Memory:
    """An object with NumPy's array interface over memory that NumPy does not own."""

    __slots__ = ("__array_interface__",)

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def _view(data: int, element_type: int, shape: Shape) -> Array:
    typestr = _TYPESTR[element_type]
    if data:
        array = np.asarray(_Memory({"data": (data, False), "shape": shape, "typestr": typestr, "version": 3}))
    else:  # an empty tensor may have no memory
        array = np.empty(shape, typestr)
    return array.view(ml_dtypes.bfloat16) if element_type == _BFLOAT16 else array
