# SPDX-License-Identifier: MIT
"""Operators of users and of other projects: each is an OrtCustomOp in a domain of session options.

Tensors are views of ONNX Runtime's memory, errors become ONNX Runtime's statuses, and tasks run on the session's threads.
An exception that is not the operator's error, such as Ctrl-C's KeyboardInterrupt, leaves these functions. The compiled
callback that calls them (`ortops.native.ort.callbacks`) stores the exception and returns a status to ONNX Runtime.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ctypes import byref, c_float, c_int64, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

from ortops.custom.objects import kernel_with_object
from ortops.custom.shape_inference import infer_output_shapes, type_and_lengths
from ortops.custom.tensors import Inputs, SizedBlocks, output, tensor_attribute
from ortops.engine.c_api import ANY_TYPE, Api, Callback, CustomOp, TensorType, onnxruntime_version, ort_api
from ortops.engine.errors import SessionErrors, is_inside_call, keep_cause, session_in_the_making
from ortops.engine.extensions import OrtError
from ortops.exceptions import run_shielded
from ortops.native.interface import OPTIONAL, REQUIRED, VARIADIC
from ortops.native.ort.types import FAIL, INVALID_ARGUMENT
from ortops.shapes import Shape
from ortops.spec import ELEMENT_TYPES, Attribute, AttributeValue, Bind, Length, Operator, Tensor

if TYPE_CHECKING:
    from ortops.node import Node


def read_attribute(api: Api, info: int, attribute: Attribute) -> AttributeValue:
    """The value of a node's attribute, or the default if the node lacks the attribute.

    Raises:
        TypeError: the node's attribute has another type.
        ValueError: the value breaks the attribute's rule.
        OrtError: this release of ONNX Runtime cannot read a list of strings.
    """
    name = attribute.name.encode()
    if attribute.type in _LATER_READERS:
        later = _LATER_READERS[attribute.type](api, info, name)
        if later is not None and len(later):
            return attribute.check(later)
    # The declared type comes first: nearly every node has it.
    for kind in sorted(_READERS, key=lambda kind: kind != attribute.type):
        value = _READERS[kind](api, info, name)
        # The C API returns an empty list if the list has another type or is absent.
        if value is not None and value != []:
            if kind == attribute.type:
                return attribute.check(value)
            raise TypeError(f"{attribute.name} = {value!r} has type {kind}: must be {attribute.type}")
    if _has_attribute(api, info, name):
        may_be_empty = attribute.is_per_axis or attribute.any_length
        if not may_be_empty or _is_tensor_or_strings(api, info, name):
            raise TypeError(
                f"{attribute.name} has a type that cannot be read, or is an empty list: must be {attribute.type}"
            )
        if attribute.any_length:
            return ()
    return attribute.default


def _has_attribute(api: Api, info: int, name: bytes) -> bool:
    """Whether a node has an attribute, of any type.

    The C API has no function for this. But if the attribute is there, the answer is not the error for one that no node has.
    """
    impossible = b"\1"
    return _error(api, info, name) != _error(api, info, impossible).replace(impossible, name)


def _error(api: Api, info: int, name: bytes) -> bytes:
    """ONNX Runtime's message when it cannot read an attribute as a number."""
    status = api.KernelInfoGetAttribute_float(info, name, byref(c_float()))
    message: bytes = api.GetErrorMessage(status) if status else b""
    api.succeeds(status)
    return message


def _read_number(kind: str, cell: type[Any], api: Api, info: int, name: bytes) -> float | None:
    number = cell()
    read = getattr(api, f"KernelInfoGetAttribute_{kind}")
    return number.value if api.succeeds(read(info, name, byref(number))) else None


def _read_string(api: Api, info: int, name: bytes) -> str | None:
    size = c_size_t()
    if not api.succeeds(api.KernelInfoGetAttribute_string(info, name, None, byref(size))):
        return None
    text = ctypes.create_string_buffer(size.value)
    api.check(api.KernelInfoGetAttribute_string(info, name, text, byref(size)))
    return text.raw[:-1].decode(errors="surrogateescape")  # the string may contain zero bytes


def _read_list(kind: str, cell: type[Any], api: Api, info: int, name: bytes) -> list[Any] | None:
    read = getattr(api, f"KernelInfoGetAttributeArray_{kind}")
    size = c_size_t()
    if not api.succeeds(read(info, name, None, byref(size))):
        return None
    values = (cell * size.value)()
    api.check(read(info, name, values, byref(size)))
    return list(values)


_READERS: dict[str, Callable[[Api, int, bytes], Any]] = {
    "FLOAT": functools.partial(_read_number, "float", c_float),
    "INT": functools.partial(_read_number, "int64", c_int64),
    "STRING": _read_string,
    "FLOATS": functools.partial(_read_list, "float", c_float),
    "INTS": functools.partial(_read_list, "int64", c_int64),
}


def _read_strings(api: Api, info: int, name: bytes) -> list[str] | None:
    if not hasattr(api, "KernelInfoGetAttributeArray_string"):
        raise OrtError(f"{name.decode()}: ONNX Runtime reads lists of strings from 1.27 on")
    contents: list[bytes] | None = run_shielded(lambda: _contents_of_strings(api, info, name))
    for i, content in enumerate(contents or []):
        # Shape inference gets a list in which nothing marks the end of such a string.
        if b"\0" in content:
            raise ValueError(f"{name.decode()}[{i}] = {content!r}: a string in a list must have no zero byte")
    return None if contents is None else [content.decode(errors="surrogateescape") for content in contents]


def _contents_of_strings(api: Api, info: int, name: bytes) -> list[bytes] | None:
    blocks, texts, count = SizedBlocks(api), ctypes.POINTER(c_void_p)(), c_size_t()
    if not api.succeeds(api.KernelInfoGetAttributeArray_string(info, name, blocks.address, byref(texts), byref(count))):
        return None
    return [blocks.content(text or 0)[:-1] for text in texts[: count.value]]


def _read_tensor(api: Api, info: int, name: bytes) -> Any | None:
    allocator, value = c_void_p(), c_void_p()
    api.check(api.GetAllocatorWithDefaultOptions(byref(allocator)))
    if not api.succeeds(api.KernelInfoGetAttribute_tensor(info, name, allocator, byref(value))):
        return None
    try:
        array = tensor_attribute(api, value)
        array.flags.writeable = False  # all of a node's calls share it
        return array
    finally:
        api.ReleaseValue(value)


def _is_tensor_or_strings(api: Api, info: int, name: bytes) -> bool:
    """Whether an attribute has one of these types, if this release of ONNX Runtime can tell."""
    reads_strings = hasattr(api, "KernelInfoGetAttributeArray_string")
    return _read_tensor(api, info, name) is not None or bool(reads_strings and _read_strings(api, info, name))


_ELEMENT_NAMES = {number: name for name, number in ELEMENT_TYPES.items()}

_LATER_READERS: dict[str, Callable[[Api, int, bytes], Any]] = {"STRINGS": _read_strings, "TENSOR": _read_tensor}
"""Readers of types that only users' operators have in their attributes."""

_PACKAGE = f"{__name__.split('.', maxsplit=1)[0]}."
"""The prefix of this package's module names."""


def _with_statuses(
    operator: Operator, function: Callable[[int], Any], session: SessionErrors | None = None
) -> Callback:
    """A callback that returns this package's errors as statuses and lets other exceptions through.

    Args:
        operator: the operator, which errors name.
        session: keeps the exceptions that occur on ONNX Runtime's own threads.
    """

    def callback(address: int) -> Any:
        try:
            return function(address)
        except BaseException as error:
            status = _status_of(operator, error, session)
            if status is not None:
                return status
            if isinstance(error, ctypes.ArgumentError):  # ctypes turns a RecursionError into this
                raise RecursionError(str(error)) from error
            raise

    return callback


def _status_of(operator: Operator, error: BaseException, session: SessionErrors | None) -> int | None:
    """An exception's status, or None if the exception must leave the callback."""
    is_answer = (
        isinstance(error, Exception)
        and not isinstance(error, RecursionError | ctypes.ArgumentError)
        and _is_raised_here(error)
    )
    note = ""
    if session is not None and not is_inside_call():
        note = session.keep(error, leaves=not is_answer)
    elif not is_answer:
        return None
    else:
        keep_cause(error)
    text = (str(error) or type(error).__name__) if is_answer else f"interrupted by {type(error).__name__}"
    code = INVALID_ARGUMENT if is_answer and isinstance(error, TypeError | ValueError) else FAIL
    status: int = ort_api().CreateStatus(code, f"{operator.label}: {text}{note}".encode(errors="replace"))
    return status


def _is_raised_here(error: BaseException) -> bool:
    """Whether this package's code raised an exception, and not a signal handler that ran between two of its lines."""
    traceback = error.__traceback__
    while traceback and traceback.tb_next:
        traceback = traceback.tb_next
    return traceback is not None and str(traceback.tb_frame.f_globals.get("__name__")).startswith(_PACKAGE)


def _kernel(operator: Operator, bind: Bind, types: dict[str, str], info: int) -> Callback:
    """The function that computes a node; it takes an OrtKernelContext's address.

    Args:
        operator: the definition.
        bind: makes the function that computes the outputs from arrays.
        types: the element type of each type variable that the OrtCustomOp fixes.
        info: the address of the node's OrtKernelInfo.

    Raises:
        TypeError, ValueError: an attribute of the node has a wrong type or value, or an input has a wrong type.
    """
    api = ort_api()
    given: dict[str, object] = {a.name: read_attribute(api, info, a) for a in operator.attributes}
    given |= {name: None for name in operator.constants if _has_attribute(api, info, name.encode())}
    attributes = operator.check_attributes(given)
    counts = c_size_t(), c_size_t()
    api.check(api.KernelInfo_GetInputCount(info, byref(counts[0])))
    api.check(api.KernelInfo_GetOutputCount(info, byref(counts[1])))
    inputs_of_node = list(_inputs_of(api, info, operator, counts[0].value))
    types = _with_types_of_inputs(operator, types, inputs_of_node)
    operator.check_node(_known_shapes(inputs_of_node), attributes)
    input_kinds, output_kinds = (
        [types.get(tensor.type, tensor.type) for tensor in _given(tensors, count.value)]
        for tensors, count in zip((operator.inputs, operator.outputs), counts, strict=True)
    )
    compute = bind(operator, attributes, output_kinds)
    node_in_session = getattr(compute, "node_in_session", None)
    if node_in_session is not None:  # of a user's compiled operator
        node = node_in_session({given.tensor.name: given.kind for given in inputs_of_node}, output_kinds)
        return _compiled_kernel(node)
    inputs = Inputs(
        api,
        [ELEMENT_TYPES.get(kind, ANY_TYPE) for kind in input_kinds[: counts[0].value]],
        operator.max_rank,
        copies=operator.keeps_inputs,
    )
    absent = [None] * (len(input_kinds) - counts[0].value)
    output_types = [ELEMENT_TYPES[kind] for kind in output_kinds]
    read, parallel_for = inputs.read, api.addresses["KernelContext_ParallelFor"]

    def run(context: int) -> int:
        unaligned: list[tuple[Any, Any]] = []

        def allocate(i: int, shape: Shape) -> Any:
            return output(api, context, i, shape, output_types[i], unaligned)

        compute(read(context) + absent, allocate, (parallel_for, context))
        for memory, array in unaligned:
            memory[...] = array
        return 0

    return _with_statuses(operator, run, session_in_the_making())


def _compiled_kernel(node: Node) -> Callback:
    """The kernel of a node that compiled code computes, which nobody calls."""

    def kernel(_: int) -> int:
        return 0

    kernel.node, kernel.memory = node.address, node  # type: ignore[attr-defined]
    return kernel


class _Input(NamedTuple):
    """A node's input: its definition, its element type, and its lengths from `type_and_lengths`."""

    tensor: Tensor
    kind: str
    lengths: list[Length]


def _inputs_of(api: Api, info: int, operator: Operator, count: int) -> Iterator[_Input]:
    """The inputs that a node with `count` inputs does not leave out."""
    for i, tensor in enumerate(_given(operator.inputs, count)[:count]):
        whole, tensor_info = c_void_p(), c_void_p()
        if not api.succeeds(api.KernelInfo_GetInputTypeInfo(info, i, byref(whole))):
            continue
        try:
            api.check(api.CastTypeInfoToTensorInfo(whole, byref(tensor_info)))
            number, lengths = type_and_lengths(api, tensor_info) if tensor_info else (0, [])
        finally:
            api.ReleaseTypeInfo(whole)
        yield _Input(tensor, _ELEMENT_NAMES.get(number, f"{number} of ONNXTensorElementDataType"), lengths)


def _with_types_of_inputs(operator: Operator, types: Mapping[str, str], inputs: Iterable[_Input]) -> dict[str, str]:
    """Each type variable's element type, including variables that only inputs use, if a node has these inputs.

    Raises:
        TypeError: an input's variable does not allow its type, or an earlier input of the same variable has another type.
    """
    kinds, source = dict(types), dict[str, str]()
    for tensor, kind, _ in inputs:
        if tensor.type in types or tensor.type not in operator.types:
            continue
        allowed = operator.types[tensor.type]
        if kind not in allowed:
            raise TypeError(f"{tensor.name} has type {kind}: must be {' or '.join(allowed)}")
        if kinds.setdefault(tensor.type, kind) != kind:
            raise TypeError(
                f"{tensor.name} has type {kind}: must be {kinds[tensor.type]}, the type of {source[tensor.type]}"
            )
        source.setdefault(tensor.type, tensor.name)
    return kinds


def _known_shapes(inputs: Iterable[_Input]) -> dict[str, Any]:
    """The shapes of a node's inputs by name, for `Operator.shapes`, without shapes of unknown rank."""
    shapes: dict[str, Any] = {}
    for tensor, _, lengths in inputs:
        if lengths and tensor.variadic:
            shapes.setdefault(tensor.name, []).append(tuple(lengths))
        elif lengths:
            shapes[tensor.name] = tuple(lengths)
    return shapes


def _given(tensors: Sequence[Tensor], count: int) -> list[Tensor]:
    """The definitions of a node's `count` inputs or outputs and of those that it leaves out at the end."""
    return [*tensors, *(tensors[-1] for _ in range(count - len(tensors)))]


_FEW = 16
"""Up to this many combinations of all tensors' types, an OrtCustomOp fixes the inputs' types, too. Measured: with only the
outputs' types fixed, this project's operators would cost a session 0.2 ms more, 1.6 ms in all, since an input of any type
costs ONNX Runtime as much as several inputs of one type."""


def custom_ops(operator: Operator, bind: Bind) -> Iterator[CustomOp]:
    """Make an OrtCustomOp for each combination of an operator's element types; if there are many, of its outputs' types.

    ONNX Runtime infers the outputs' types from these. Types that only inputs have are then read when a node's kernel is
    made, since for four inputs of any type a session would have 14**4 OrtCustomOps.

    Args:
        operator: the definition.
        bind: makes the function that computes a node.

    Raises:
        OrtError: onnxruntime is too old.
    """
    ort_api()  # raises if onnxruntime is too old
    infer = None
    # In onnxruntime 1.20 to 1.23 shape inference crashes if a node leaves an input or an output out.
    if onnxruntime_version() >= (1, 24) or not any(tensor.optional for tensor in (*operator.inputs, *operator.outputs)):
        infer = _with_statuses(operator, functools.partial(infer_output_shapes, operator))
    is_many = math.prod(map(len, operator.types.values())) > _FEW
    variables = operator.types_of_outputs if is_many else operator.types
    for kinds in itertools.product(*variables.values()):
        types: dict[str, str] = dict(zip(variables, kinds, strict=True))
        inputs, outputs = (
            [
                TensorType(ELEMENT_TYPES.get(types.get(tensor.type, tensor.type), ANY_TYPE), _presence(tensor))
                for tensor in tensors
            ]
            for tensors in (operator.inputs, operator.outputs)
        )
        kept: list[CustomOp] = []
        create = _with_statuses(operator, functools.partial(_kernel_of, kept, operator, bind, types))
        kept.append(CustomOp(operator.name, operator.label, inputs, outputs, create, infer))
        yield kept[0]


def _kernel_of(kept: list[CustomOp], operator: Operator, bind: Bind, types: dict[str, str], info: int) -> Callback:
    """As `_kernel`, but the kernel keeps the OrtCustomOp alive, since it may outlive the session options."""
    constructor = operator.constructor
    if constructor is None:
        run = _kernel(operator, bind, types, info)
    else:
        run = kernel_with_object(
            ort_api(), info, operator, constructor, lambda bind: _kernel(operator, bind, types, info)
        )
    run.custom_op = kept  # type: ignore[attr-defined]
    return run


def _presence(tensor: Tensor) -> int:
    return VARIADIC if tensor.variadic else OPTIONAL if tensor.optional else REQUIRED
