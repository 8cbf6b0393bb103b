"""The direct engine: each operator as an OrtCustomOp, added to onnxruntime-extensions through AddExternalCustomOp.

Tensors are views of ONNX Runtime's memory, errors become its statuses, and tasks run on the session's own threads. An
exception that is not an error of the operator, such as the KeyboardInterrupt of Ctrl-C, leaves these functions. The compiled
callback that calls them (`ortops.engine.compiled.callbacks`) stores it and returns a status to ONNX Runtime.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int64, c_size_t
from typing import Any

from ortops.compute import compute
from ortops.engine.c_api import (
    ELEMENT_TYPES,
    FAIL,
    INVALID_ARGUMENT,
    Api,
    Callback,
    TensorType,
    add_custom_op,
    onnxruntime_version,
    ort_api,
)
from ortops.engine.shape_inference import infer_output_shapes
from ortops.engine.tensors import Inputs, output
from ortops.shapes import Shape
from ortops.spec import Attribute, AttributeValue, Operator


def read_attribute(api: Api, info: int, attribute: Attribute) -> AttributeValue:
    """The value of a node's attribute, or the default if the node does not have it.

    Raises:
        TypeError: the node's attribute has another type.
        ValueError: the value breaks the attribute's rule.
    """
    name = attribute.name.encode()
    # The attribute's own type first, which the node nearly always has.
    for kind in sorted(_READERS, key=lambda kind: kind != attribute.type):
        value = _READERS[kind](api, info, name)
        # For a list of another type, or an absent one, the C API returns an empty list.
        if value is not None and value != []:
            if kind == attribute.type:
                return attribute.check(value)
            raise TypeError(f"{attribute.name} = {value!r} has type {kind}: must be {attribute.type}")
    if not attribute.is_per_axis and _has_attribute(api, info, name):
        raise TypeError(
            f"{attribute.name} has a type that cannot be read, or is an empty list: must be {attribute.type}"
        )
    return attribute.default


def _has_attribute(api: Api, info: int, name: bytes) -> bool:
    """Whether a node has an attribute of a type that none of the readers can read, such as a tensor or a list of strings.

    The C API has no function for this, but its error is not the one for an attribute that the node cannot have.
    """
    impossible = name + b" "
    return _error(api, info, name) != _error(api, info, impossible).replace(impossible, name)


def _error(api: Api, info: int, name: bytes) -> bytes:
    """The message of ONNX Runtime where it cannot read an attribute as a number."""
    status = api.KernelInfoGetAttribute_float(info, name, byref(c_float()))
    message: bytes = api.GetErrorMessage(status) if status else b""
    api.succeeds(status)
    return message


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
    return text.raw[:-1].decode(errors="replace")  # the string may contain zero bytes


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

_PACKAGE = f"{__name__.split('.', maxsplit=1)[0]}."
"""The prefix of the names of this package's modules."""


def _with_statuses(operator: Operator, function: Callable[[int], Any]) -> Callback:
    """A callback that returns errors raised by this package as statuses and lets other exceptions through."""

    def callback(address: int) -> Any:
        try:
            return function(address)
        except RecursionError:
            raise
        except ctypes.ArgumentError as error:  # ctypes turns a RecursionError into it
            raise RecursionError(str(error)) from error
        except Exception as error:
            if not _is_raised_here(error):
                raise
            code = INVALID_ARGUMENT if isinstance(error, TypeError | ValueError) else FAIL
            return ort_api().CreateStatus(
                code, f"{operator.name}: {str(error) or type(error).__name__}".encode(errors="replace")
            )

    return callback


def _is_raised_here(error: BaseException) -> bool:
    """Whether code of this package raised an exception, and not a signal handler that ran between two of its lines."""
    traceback = error.__traceback__
    while traceback and traceback.tb_next:
        traceback = traceback.tb_next
    return traceback is not None and str(traceback.tb_frame.f_globals.get("__name__")).startswith(_PACKAGE)


def _kernel(operator: Operator, output_types: Sequence[int], info: int) -> Callback:
    """The function that computes one node; it takes the address of an OrtKernelContext.

    Args:
        operator: the definition.
        output_types: the element types of the node's outputs, as in `ELEMENT_TYPES`.
        info: the address of the node's OrtKernelInfo.

    Raises:
        TypeError, ValueError: an attribute of the node has a wrong type or value.
    """
    api = ort_api()
    attributes = operator.check_attributes({a.name: read_attribute(api, info, a) for a in operator.attributes})
    count = c_size_t()
    api.check(api.KernelInfo_GetInputCount(info, byref(count)))
    inputs = Inputs(api, count.value)
    absent = [None] * (len(operator.inputs) - count.value)
    parallel_for = api.addresses["KernelContext_ParallelFor"]

    def run(context: int) -> int:
        def allocate(i: int, shape: Shape) -> Any:
            return output(api, context, i, shape, output_types[i])

        compute(operator, inputs.read(context) + absent, attributes, allocate, (parallel_for, context))
        return 0

    return _with_statuses(operator, run)


def add_operator(operator: Operator) -> None:
    """Add an operator to the library of onnxruntime-extensions, with one table for each combination of element types.

    Raises:
        OrtError: the library refuses the operator, or onnxruntime is too old.
    """
    ort_api()  # raises for an onnxruntime that is too old, before anything is added
    infer = None
    # In onnxruntime 1.20 to 1.23 shape inference crashes if a node leaves an input or an output out.
    if onnxruntime_version() >= (1, 24) or not any(tensor.optional for tensor in (*operator.inputs, *operator.outputs)):
        infer = _with_statuses(operator, functools.partial(infer_output_shapes, operator))
    for kinds in itertools.product(*operator.types.values()):
        types = dict(zip(operator.types, kinds, strict=True))
        inputs, outputs = (
            [TensorType(ELEMENT_TYPES[types.get(tensor.type, tensor.type)], tensor.optional) for tensor in tensors]
            for tensors in (operator.inputs, operator.outputs)
        )
        output_types = [tensor.element_type for tensor in outputs]
        create = _with_statuses(operator, functools.partial(_kernel, operator, output_types))
        add_custom_op(operator.name, inputs, outputs, create, infer)
