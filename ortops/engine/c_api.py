"""The two C tables between an operator and ONNX Runtime: OrtApi, which we call, and OrtCustomOp, which we fill.

Both grow only at their end, so positions hold for every later release. Source: onnxruntime_c_api.h, API version 20.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint32, c_void_p
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


api_at = functools.cache(Api)
"""The OrtApi at an address."""


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


_ANY_VERSION = 2**31 - 1

# An operator of version 1 for the CPU, with nothing optional or variadic, whose kernel has nothing to free.
_DEFAULTS: dict[str, Any] = {
    "GetExecutionProviderType": lambda _table: None,
    "KernelDestroy": lambda _kernel: None,
    "GetInputCharacteristic": lambda _table, _i: 0,
    "GetOutputCharacteristic": lambda _table, _i: 0,
    "GetInputMemoryType": lambda _table, _i: 0,
    "GetVariadicInputMinArity": lambda _table: 0,
    "GetVariadicInputHomogeneity": lambda _table: 0,
    "GetVariadicOutputMinArity": lambda _table: 0,
    "GetVariadicOutputHomogeneity": lambda _table: 0,
    "GetStartVersion": lambda _table: 1,
    "GetEndVersion": lambda _table: _ANY_VERSION,
}

_alive: list[Any] = []
"""Tables and callbacks, which ONNX Runtime may use for as long as the process lives."""


def add_custom_op(name: str, inputs: Sequence[int], outputs: Sequence[int], callbacks: Mapping[str, Any]) -> None:
    """Give an operator to the library of onnxruntime-extensions, for all sessions that register it from now on.

    Args:
        name: the operator's name.
        inputs: for each input its number in `ELEMENT_TYPES`.
        outputs: for each output likewise.
        callbacks: further callbacks by their names in OrtCustomOp, or others in place of the defaults.

    Raises:
        OrtError: the library refuses it, or takes no operators in C.
    """
    from ortops.engine.extensions import add_c_operator

    text, table = ctypes.create_string_buffer(name.encode()), OrtCustomOp(version=API_VERSION)
    _alive.extend((text, table))
    given = {
        "GetName": lambda _table: ctypes.addressof(text),
        "GetInputType": lambda _table, i: inputs[i],
        "GetInputTypeCount": lambda _table: len(inputs),
        "GetOutputType": lambda _table, i: outputs[i],
        "GetOutputTypeCount": lambda _table: len(outputs),
    }
    for callback, function in {**_DEFAULTS, **given, **callbacks}.items():
        pointer = ctypes.CFUNCTYPE(*_CALLBACKS[callback])(function)
        _alive.append(pointer)
        setattr(table, callback, ctypes.cast(pointer, c_void_p))
    add_c_operator(ctypes.addressof(table))


_PROBE = """
    <ir_version: 8, opset_import: ["" : 16, "ai.onnx.contrib" : 1]>
    probe (float[n] x) => (float[n] y) { y = ai.onnx.contrib.OrtopsProbe(x) }
"""
_probing = threading.Lock()
_probed: list[int] = []


def ort_api() -> Api:
    """The OrtApi of the onnxruntime that this process imports, as its sessions hand it to the kernels that they create.

    A session with an operator that does nothing is made for it, once in a process. No library is looked for: the module
    that Python imports has the runtime inside and exports no OrtGetApiBase, and the libonnxruntime beside it in the wheels
    is a second runtime, which nothing else loads.

    Raises:
        OrtError: onnxruntime is older than 1.20, or onnxruntime-extensions takes no operators in C (on Windows).
    """
    if not _probed:
        with _probing:
            if not _probed:
                _probe()
    return api_at(_probed[0])


def _probe() -> None:
    """Fill `_probed` with the address of OrtApi."""
    import onnx
    import onnxruntime

    from ortops.engine.extensions import library_path

    # An operator of a later API than the runtime's would end every session that registers the library.
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, API_VERSION):
        raise OrtError(f"onnxruntime is {onnxruntime.__version__}: must be 1.{API_VERSION} or later")

    def create(_table: int, api: int, _info: int, _kernel: int) -> None:
        _probed.append(api)

    kind = (ELEMENT_TYPES["float"],)
    add_custom_op(
        "OrtopsProbe", kind, kind, {"CreateKernelV2": create, "KernelComputeV2": lambda _kernel, _context: None}
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(library_path())
    model = onnx.parser.parse_model(_PROBE).SerializeToString()
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
