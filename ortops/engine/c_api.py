"""The two C tables between an operator and ONNX Runtime: OrtApi, which we call, and OrtCustomOp, which it calls.

Both grow only at their end, so positions hold for every later release. Source: onnxruntime_c_api.h, API version 20.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_void_p
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ortops.engine.shutdown import PROCESS
from ortops.kernels import layout
from ortops.kernels.jit.exceptions import uninterrupted
from ortops.kernels.jit.kernel import Kernel
from ortops.kernels.jit.machine_code import keep_forever

API_VERSION = 20
"""The API of onnxruntime 1.20; later releases serve it."""

FAIL, INVALID_ARGUMENT = layout.FAIL, 2

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


_fill = Kernel("session_callbacks", "fill")

Callback: TypeAlias = Callable[[int], Any]


class TensorType(NamedTuple):
    """An input or an output of an operator: its number in `ELEMENT_TYPES`, and whether a node may leave it out."""

    element_type: int
    is_optional: bool = False


def add_custom_op(
    name: str,
    inputs: Sequence[TensorType],
    outputs: Sequence[TensorType],
    create: Callback | None = None,
    infer: Callback | None = None,
) -> Any:
    """Give an operator of version 1 to the library of onnxruntime-extensions, for sessions that register it from now on.

    The functions are called with the address of an OrtKernelInfo, OrtKernelContext or OrtShapeInferContext. For success
    they return 0, else an OrtStatus; where they raise, the exception is kept for the thread (`exceptions.take`) and ONNX
    Runtime gets a status that says "interrupted".

    Args:
        name: the operator's name.
        inputs: its inputs.
        outputs: its outputs.
        create: makes the kernel of a node: a function, or a status. Without it nodes can be made but not run.
        infer: tells the shapes of the outputs.

    Returns:
        The table, an OrtCustomOp with the words of `ortops.kernels.layout` behind it.

    Raises:
        OrtError: the library refuses it, or takes no operators in C.
    """
    from ortops.engine.extensions import add_c_operator

    tensors = [number for tensor in (*inputs, *outputs) for number in tensor]
    texts = [ctypes.create_string_buffer(text.encode()) for text in (name, f"{name}: interrupted by ")]
    table = np.zeros(layout.TENSORS + len(tensors), np.int64)
    table[layout.NAME], table[layout.TEXT] = map(ctypes.addressof, texts)
    table[layout.INPUTS], table[layout.OUTPUTS] = len(inputs), len(outputs)
    table[layout.CREATE], table[layout.INFER] = (id(function) if function else 0 for function in (create, infer))
    table[layout.API] = _probed[0] if _probed else 0
    table[layout.PROCESS] = PROCESS.ctypes.data
    table[layout.TENSORS :] = tensors
    _fill(table, API_VERSION)
    keep_forever((texts, table, create, infer))
    add_c_operator(table.ctypes.data)
    return table


def onnxruntime_version() -> tuple[int, ...]:
    """The first two numbers of onnxruntime's version."""
    import onnxruntime

    return tuple(map(int, onnxruntime.__version__.split(".")[:2]))


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
        uninterrupted(_probe)
    return api_at(_probed[0])


def _probe() -> None:
    """Fill `_probed` with the address of OrtApi."""
    import onnxruntime

    # An operator of a later API than the runtime's would end every session that registers the library.
    if onnxruntime_version() < (1, API_VERSION):
        raise OrtError(f"onnxruntime is {onnxruntime.__version__}: must be 1.{API_VERSION} or later")
    with _probing:
        if _probed:
            return
        tensor = (TensorType(ELEMENT_TYPES["float"]),)
        table = add_custom_op("OrtopsProbe", tensor, tensor)
        probe_session()
        _probed.append(int(table[layout.API]))


def probe_session() -> Any:
    """A session of one node, which is the operator OrtopsProbe: from x, float [n], to y, float [n]."""
    import onnx
    import onnxruntime

    from ortops.engine.extensions import library_path

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(library_path())
    model = onnx.parser.parse_model(_PROBE).SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
