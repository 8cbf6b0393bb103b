"""The direct engine: each operator as an OrtCustomOp, added to onnxruntime-extensions through AddExternalCustomOp.

Tensors are views of ONNX Runtime's memory, errors are its statuses, and tasks run on the session's own threads. Nothing
here lets a Python exception cross into C: it would leave outputs unwritten and the error unseen.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int64, c_size_t, c_void_p
from typing import Any

from ortops.compute import compute
from ortops.engine.c_api import ELEMENT_TYPES, FAIL, INVALID_ARGUMENT, Api, add_custom_op, api_at, ort_api
from ortops.engine.shape_inference import infer_output_shapes
from ortops.engine.shutdown import Call
from ortops.engine.tensors import Inputs, output
from ortops.shapes import Shape
from ortops.spec import Attribute, AttributeValue, Operator


def read_attribute(api: Api, info: int, attribute: Attribute) -> AttributeValue:
    """The value that a node gives to an attribute, or its default.

    Raises:
        TypeError: the node has it with another type. ValueError: it breaks the attribute's rule.
    """
    found = {kind: read(api, info, attribute.name.encode()) for kind, read in _READERS.items()}
    # A list of another type, or none, is read as an empty one.
    given = {kind: value for kind, value in found.items() if value is not None and value != []}
    if attribute.type in given:
        return attribute.check(given[attribute.type])
    for kind, value in given.items():
        raise TypeError(f"{attribute.name} = {value!r} has type {kind}: must be {attribute.type}")
    return attribute.default


def _read_float(api: Api, info: int, name: bytes) -> float | None:
    cell = c_float()
    return cell.value if api.succeeds(api.KernelInfoGetAttribute_float(info, name, byref(cell))) else None


def _read_int(api: Api, info: int, name: bytes) -> int | None:
    cell = c_int64()
    return cell.value if api.succeeds(api.KernelInfoGetAttribute_int64(info, name, byref(cell))) else None


def _read_string(api: Api, info: int, name: bytes) -> str | None:
    size = c_size_t()
    if not api.succeeds(api.KernelInfoGetAttribute_string(info, name, None, byref(size))):
        return None
    text = ctypes.create_string_buffer(size.value)
    api.check(api.KernelInfoGetAttribute_string(info, name, text, byref(size)))
    return text.value.decode(errors="replace")


def _read_list(kind: str, cell: type[Any], api: Api, info: int, name: bytes) -> list[Any] | None:
    read = getattr(api, f"KernelInfoGetAttributeArray_{kind}")
    size = c_size_t()
    if not api.succeeds(read(info, name, None, byref(size))):
        return None
    values = (cell * size.value)()
    api.check(read(info, name, values, byref(size)))
    return list(values)


_READERS: dict[str, Callable[[Api, int, bytes], Any]] = {
    "FLOAT": _read_float,
    "INT": _read_int,
    "STRING": _read_string,
    "FLOATS": functools.partial(_read_list, "float", c_float),
    "INTS": functools.partial(_read_list, "int64", c_int64),
}

_kernels: dict[int, Callable[[int], None]] = {}
_handles = itertools.count(1)


def _status(api: Api, error: BaseException, name: str) -> int:
    """An error as ONNX Runtime's status; KeyboardInterrupt too, since nothing may cross into C."""
    code = INVALID_ARGUMENT if isinstance(error, TypeError | ValueError) else FAIL
    text = str(error) or type(error).__name__
    status: int = api.CreateStatus(code, f"{name}: {text}".encode())
    return status


def _create(operator: Operator, output_types: Sequence[int], api: Api, info: int) -> Callable[[int], None]:
    """The kernel of one node: called with the address of an OrtKernelContext.

    Raises:
        TypeError, ValueError: an attribute of the node is wrong.
    """
    attributes = operator.check_attributes({a.name: read_attribute(api, info, a) for a in operator.attributes})
    count = c_size_t()
    api.check(api.KernelInfo_GetInputCount(info, byref(count)))
    inputs = Inputs(api, count.value)
    absent = [None] * (len(operator.inputs) - count.value)
    parallel_for = api.addresses["KernelContext_ParallelFor"]

    def run(context: int) -> None:
        def allocate(i: int, shape: Shape) -> Any:
            return output(api, context, i, shape, output_types[i])

        compute(operator, inputs.of(context) + absent, attributes, allocate, (parallel_for, context))

    return run


def _callbacks(operator: Operator, output_types: Sequence[int]) -> dict[str, Any]:
    """The callbacks in which one operator differs from another."""

    def create(_table: int, api_address: int, info: int, kernel: int) -> int | None:
        api = api_at(api_address)
        try:
            handle = next(_handles)
            _kernels[handle] = _create(operator, output_types, api, info)
            ctypes.cast(kernel, ctypes.POINTER(c_void_p))[0] = handle
        except BaseException as error:  # noqa: BLE001 - see _status
            return _status(api, error, operator.name)
        return None

    def run(handle: int, context: int) -> int | None:
        try:
            with Call():
                _kernels[handle](context)
        except BaseException as error:  # noqa: BLE001 - see _status
            return _status(ort_api(), error, operator.name)
        return None

    def infer(_table: int, context: int) -> int | None:
        try:
            infer_output_shapes(operator, context)
        except BaseException as error:  # noqa: BLE001 - see _status
            return _status(ort_api(), error, operator.name)
        return None

    callbacks = {
        "KernelDestroy": lambda kernel: _kernels.pop(kernel, None) and None,
        "GetInputCharacteristic": lambda _table, i: int(operator.inputs[i].optional),
        "GetOutputCharacteristic": lambda _table, i: int(operator.outputs[i].optional),
        "CreateKernelV2": create,
        "KernelComputeV2": run,
    }
    # onnxruntime 1.20 crashes in this interface where a node leaves an input or an output out.
    if not any(tensor.optional for tensor in (*operator.inputs, *operator.outputs)):
        callbacks["InferOutputShapeFn"] = infer
    return callbacks


def add_operator(operator: Operator) -> None:
    """Add an operator to the library of onnxruntime-extensions: one table for each element type of each type variable.

    Raises:
        OrtError: the library refuses it, or this onnxruntime is too old.
    """
    ort_api()  # It refuses an onnxruntime that is too old before anything is added.
    for kinds in itertools.product(*operator.types.values()):
        types = dict(zip(operator.types, kinds, strict=True))
        inputs, outputs = (
            [ELEMENT_TYPES[types.get(tensor.type, tensor.type)] for tensor in tensors]
            for tensors in (operator.inputs, operator.outputs)
        )
        add_custom_op(operator.name, inputs, outputs, _callbacks(operator, outputs))
