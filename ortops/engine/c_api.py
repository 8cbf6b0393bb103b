"""The two C tables between an operator and ONNX Runtime: OrtApi, which we call, and OrtCustomOp, which we fill.

Both grow only at their end, so positions hold for every later release. Source: onnxruntime_c_api.h, API version 20.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

API_VERSION = 20
"""The API of onnxruntime 1.20; later releases serve it."""

FAIL, INVALID_ARGUMENT = 1, 2

# ONNXTensorElementDataType and OrtOpAttrType.
ELEMENT_TYPES = {"float": 1, "int64": 7, "float16": 10, "double": 11, "uint32": 12, "bfloat16": 16}
ATTRIBUTE_TYPES = {"INT": 1, "INTS": 2, "FLOAT": 3, "FLOATS": 4, "STRING": 5}

# By name: the slot in OrtApi and the arguments. Each returns a status, but for those in _OTHER_RESULTS.
_FUNCTIONS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "CreateStatus": (0, (c_int, c_char_p)),
    "GetErrorMessage": (2, (c_void_p,)),
    "GetTensorMutableData": (51, (c_void_p, c_void_p)),
    "CreateTensorTypeAndShapeInfo": (57, (c_void_p,)),
    "SetTensorElementType": (58, (c_void_p, c_int)),
    "SetDimensions": (59, (c_void_p, c_void_p, c_size_t)),
    "GetTensorElementType": (60, (c_void_p, c_void_p)),
    "GetDimensionsCount": (61, (c_void_p, c_void_p)),
    "GetDimensions": (62, (c_void_p, c_void_p, c_size_t)),
    "GetSymbolicDimensions": (63, (c_void_p, c_void_p, c_size_t)),
    "GetTensorTypeAndShape": (65, (c_void_p, c_void_p)),
    "KernelInfoGetAttribute_float": (85, (c_void_p, c_char_p, c_void_p)),
    "KernelInfoGetAttribute_int64": (86, (c_void_p, c_char_p, c_void_p)),
    "KernelInfoGetAttribute_string": (87, (c_void_p, c_char_p, c_void_p, c_void_p)),
    "KernelContext_GetInput": (90, (c_void_p, c_size_t, c_void_p)),
    "KernelContext_GetOutput": (91, (c_void_p, c_size_t, c_void_p, c_size_t, c_void_p)),
    "ReleaseStatus": (93, (c_void_p,)),
    "ReleaseTensorTypeAndShapeInfo": (99, (c_void_p,)),
    "KernelInfoGetAttributeArray_float": (162, (c_void_p, c_char_p, c_void_p, c_void_p)),
    "KernelInfoGetAttributeArray_int64": (163, (c_void_p, c_char_p, c_void_p, c_void_p)),
    "KernelInfo_GetInputCount": (230, (c_void_p, c_void_p)),
    "KernelInfo_GetOutputCount": (231, (c_void_p, c_void_p)),
    "ShapeInferContext_GetInputCount": (267, (c_void_p, c_void_p)),
    "ShapeInferContext_GetInputTypeShape": (268, (c_void_p, c_size_t, c_void_p)),
    "ShapeInferContext_GetAttribute": (269, (c_void_p, c_char_p, c_void_p)),
    "ShapeInferContext_SetOutputTypeShape": (270, (c_void_p, c_size_t, c_void_p)),
    "SetSymbolicDimensions": (271, (c_void_p, c_void_p, c_size_t)),
    "ReadOpAttr": (272, (c_void_p, c_int, c_void_p, c_size_t, c_void_p)),
    "KernelContext_ParallelFor": (274, (c_void_p, c_void_p, c_size_t, c_size_t, c_void_p)),
}
_OTHER_RESULTS = {"GetErrorMessage": c_char_p, "ReleaseStatus": None, "ReleaseTensorTypeAndShapeInfo": None}


class OrtError(RuntimeError):
    """ONNX Runtime or onnxruntime-extensions refuses a call or lacks a function."""


class Api:
    """The functions of an OrtApi table, as ctypes functions named as in C."""

    def __init__(self, address: int) -> None:
        table = ctypes.cast(address, POINTER(c_void_p))
        self.addresses: dict[str, int] = {name: table[slot] for name, (slot, _) in _FUNCTIONS.items()}
        for name, (_, arguments) in _FUNCTIONS.items():
            result = _OTHER_RESULTS.get(name, c_void_p)
            setattr(self, name, ctypes.CFUNCTYPE(result, *arguments)(self.addresses[name]))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not among the functions of OrtApi that are declared here")

    def check(self, status: int | None) -> None:
        """Raise OrtError for a status other than success, and release it."""
        if status:
            message = self.GetErrorMessage(status).decode(errors="replace")
            self.ReleaseStatus(status)
            raise OrtError(message)

    def succeeds(self, status: int | None) -> bool:
        """Whether a status is success; releases it."""
        if status:
            self.ReleaseStatus(status)
        return not status


@functools.cache
def ort_api() -> Api:
    """The OrtApi of the onnxruntime that this process imports.

    Raises:
        OrtError: its library cannot be found, or is older than onnxruntime 1.20.
    """
    import onnxruntime

    folder = Path(onnxruntime.__file__).parent / "capi"
    for path in [*folder.glob("libonnxruntime.*"), *folder.glob("onnxruntime.dll"), *folder.glob("*pybind11_state*")]:
        try:
            base = ctypes.CDLL(str(path)).OrtGetApiBase
        except (OSError, AttributeError):
            continue
        base.restype = POINTER(c_void_p)
        address = ctypes.CFUNCTYPE(c_void_p, c_uint32)(base()[0])(API_VERSION)
        if not address:
            raise OrtError(f"onnxruntime is {onnxruntime.__version__}: must be 1.{API_VERSION} or later")
        return Api(address)
    raise OrtError(f"no library in {folder} exports OrtGetApiBase")


# The callbacks of OrtCustomOp in their order: result and arguments; empty where none of ours is ever given.
_CALLBACKS: dict[str, tuple[Any, ...]] = {
    "CreateKernel": (),
    "GetName": (c_void_p, c_void_p),
    "GetExecutionProviderType": (c_void_p, c_void_p),
    "GetInputType": (c_int, c_void_p, c_size_t),
    "GetInputTypeCount": (c_size_t, c_void_p),
    "GetOutputType": (c_int, c_void_p, c_size_t),
    "GetOutputTypeCount": (c_size_t, c_void_p),
    "KernelCompute": (),
    "KernelDestroy": (None, c_void_p),
    "GetInputCharacteristic": (c_int, c_void_p, c_size_t),
    "GetOutputCharacteristic": (c_int, c_void_p, c_size_t),
    "GetInputMemoryType": (c_int, c_void_p, c_size_t),
    "GetVariadicInputMinArity": (c_int, c_void_p),
    "GetVariadicInputHomogeneity": (c_int, c_void_p),
    "GetVariadicOutputMinArity": (c_int, c_void_p),
    "GetVariadicOutputHomogeneity": (c_int, c_void_p),
    "CreateKernelV2": (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    "KernelComputeV2": (c_void_p, c_void_p, c_void_p),
    "InferOutputShapeFn": (c_void_p, c_void_p, c_void_p),
    "GetStartVersion": (c_int, c_void_p),
    "GetEndVersion": (c_int, c_void_p),
    "GetMayInplace": (),
    "ReleaseMayInplace": (),
    "GetAliasMap": (),
    "ReleaseAliasMap": (),
}


class OrtCustomOp(ctypes.Structure):
    """The table of callbacks that is an operator to ONNX Runtime."""

    _fields_ = (("version", c_uint32), *((name, c_void_p) for name in _CALLBACKS))


def custom_op(callbacks: dict[str, Any]) -> tuple[OrtCustomOp, list[Any]]:
    """A filled table, and what must live as long as ONNX Runtime may use it."""
    table = OrtCustomOp(version=API_VERSION)
    alive: list[Any] = [table]
    for name, function in callbacks.items():
        pointer = ctypes.CFUNCTYPE(*_CALLBACKS[name])(function)
        alive.append(pointer)
        setattr(table, name, ctypes.cast(pointer, c_void_p))
    return table, alive
