"""Nodes that compiled code computes, and calls of them with arrays."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ortops.calls import layout, records
from ortops.calls.definition_words import FLOAT, FLOATS, INT, INTS, OWN_FOR_ALL, STRING
from ortops.calls.definitions import attribute_words, definition_of
from ortops.calls.records import Record
from ortops.jit import exceptions
from ortops.library.compiled.layout import GIVEN_WORDS
from ortops.memory import OBJECT_HEAD, data_pointer
from ortops.runtime import library
from ortops.spec import ELEMENT_DTYPES, ELEMENT_TYPES, Allocate, AttributeValue, Operator

TYPES = {dtype: ELEMENT_TYPES[name] for name, dtype in ELEMENT_DTYPES.items() if name != "string"}
"""The numbers that ONNX's TensorProto gives NumPy's types."""


class Node:
    """A node with its attributes.

    Args:
        operator: the definition.
        address: the address of the node (`layout`), valid while `memory` lives.
        memory: what holds the node.
    """

    def __init__(self, operator: Operator, address: int, memory: object) -> None:
        self.address, self._memory = address, memory
        inputs, outputs = len(operator.inputs), len(operator.outputs)
        self._pack = _packer(inputs, outputs)
        self._outputs = [8 * layout.TENSORS + _ROW * i for i in range(inputs, inputs + outputs)]
        self._sets_lengths = operator.output_memory == OWN_FOR_ALL
        self._infer, self._compute = _functions()

    def run(self, inputs: Sequence[Any], allocate: Allocate, runner: tuple[int, int]) -> None:
        """Compute a call's outputs.

        Args:
            inputs: a C-contiguous, aligned array for each input; None for an absent input.
            allocate: called for each output; again with the final shape if the data decides it.
            runner: runs the tasks (`compute.runner_on`).

        Raises:
            ValueError: shapes disagree, or the data breaks a rule of the operator.
            MemoryError: memory ran out.
            BaseException: a signal handler raised it.
        """
        words = [*runner]
        for array in inputs:
            words += (0, 0) if array is None else (id(array) + OBJECT_HEAD, TYPES[array.dtype])
        try:
            memory, call = room = _ended.pop()
        except IndexError:
            memory, call = room = _new_call()
        self._pack(memory, 0, *words)
        if status := self._infer(self.address, call):
            _raise(status, call)
        outputs = []
        for i, at in enumerate(self._outputs):
            array = allocate(i, _shape_at(memory, at))
            if self._sets_lengths:  # np.zeros takes no memory for what nobody touches, unlike a fill
                array = np.zeros(array.shape, array.dtype)
            if array is None:
                _pack_output(memory, at, 0, 0)
            else:
                _pack_output(memory, at, data_pointer(array), TYPES[array.dtype])
            outputs.append(array)
        if status := self._compute(self.address, call):
            _raise(status, call)
        for i, output in enumerate(outputs) if self._sets_lengths else ():
            shape = _shape_at(memory, self._outputs[i])
            allocate(i, shape)[...] = output.ravel()[: math.prod(shape)].reshape(shape)
        _ended.append(room)


_ended: list[tuple[Any, int]] = []
"""The memory of calls that have ended without an error, and its addresses. Measured: new memory takes a tenth of a call."""

_ROW = 8 * layout.TENSOR_WORDS
_pack_output = struct.Struct("2q").pack_into
_unpack_dims = struct.Struct(f"{8 * layout.DIMS_COUNT}x{1 + layout.MAX_DIMS}q").unpack_from


def _new_call() -> tuple[Any, int]:
    memory = ctypes.create_string_buffer(8 * layout.CALL_WORDS)
    return memory, ctypes.addressof(memory)


@functools.cache
def _packer(inputs: int, outputs: int) -> Any:
    """What packs a call's words before its text: the runner, and the address and type of each input; the others are 0."""
    row = f"2q{_ROW - 16}x"
    return struct.Struct(f"2q{8 * (layout.TENSORS - 2)}x{row * inputs}{_ROW * outputs}x").pack_into


def _shape_at(memory: Any, at: int) -> tuple[int, ...]:
    """The shape of the tensor whose words begin at a byte of a call."""
    rank_and_dims: tuple[int, ...] = _unpack_dims(memory, at)
    return rank_and_dims[1 : 1 + rank_and_dims[0]]


@functools.cache
def _functions() -> tuple[Any, Any]:
    addresses = ctypes.c_void_p, ctypes.c_void_p  # measured: half of what ctypes takes to convert a c_int64
    infer = library().functions["infer_shapes_of_arrays"]  # takes less time than to release the GIL
    return ctypes.PYFUNCTYPE(ctypes.c_int64, *addresses)(infer), library().function("compute", *addresses)


def _raise(status: int, call: int) -> NoReturn:
    if status == layout.INTERRUPTED:
        raise exceptions.take() or KeyboardInterrupt
    text = ctypes.string_at(call + 8 * (layout.TEXT + 1)).decode()
    raise MemoryError(text) if status == layout.OUT_OF_MEMORY else ValueError(text)


def node_of(operator: Operator, attributes: Mapping[str, AttributeValue], dtype: Any) -> Node:
    """A node of one of this project's operators.

    Args:
        operator: the definition.
        attributes: the result of `Operator.check_attributes`.
        dtype: the NumPy element type of the first input.
    """
    rows: list[int] = []
    memory: list[Any] = []
    for attribute in operator.attributes:
        value = attributes[attribute.name]
        values = value if isinstance(value, tuple) else (value,)
        name, given = attribute.name.encode(), _GIVEN[attribute.type](values)
        memory += name, given
        rows += (_address_of(name), _NUMBERS[attribute.type], len(values), _address_of(given))
    (_memory, call), given_rows = _new_call(), np.array(rows, np.int64)
    make_node = library().function("make_node", ctypes.c_int64, ctypes.c_char_p, *[ctypes.c_int64] * 4)
    arguments = TYPES[dtype], len(rows) // GIVEN_WORDS, given_rows.ctypes.data, call
    address = make_node(library().functions["operators"], operator.name.encode(), *arguments)
    if not address:
        _raise(layout.INVALID, call)
    memory_of_node = _Memory()
    weakref.finalize(memory_of_node, library().function("release_node", ctypes.c_int64), address)
    return Node(operator, address, memory_of_node)


class _Memory:
    """Lives as long as a node of the library."""


_NUMBERS = {"INT": INT, "INTS": INTS, "FLOAT": FLOAT, "FLOATS": FLOATS, "STRING": STRING}


def _integers(values: tuple[Any, ...]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def _floats(values: tuple[Any, ...]) -> Any:
    return (ctypes.c_double * max(len(values), 1))(*values)


def _string(values: tuple[Any, ...]) -> bytes:
    return str(values[0]).encode()


_GIVEN = {"INT": _integers, "INTS": _integers, "FLOAT": _floats, "FLOATS": _floats, "STRING": _string}
"""What makes the values of an attribute for compiled code, by its type."""


def _address_of(value: Any) -> int:
    return int(ctypes.cast(value, ctypes.c_void_p).value or 0)


def node_of_user(
    operator: Operator, attributes: Mapping[str, AttributeValue], entry: Record, infer: int | None = None
) -> Node:
    """A node of a user's operator.

    Args:
        operator: the definition.
        attributes: the result of `Operator.check_attributes`.
        entry: the record of its entry.
        infer: the address of its function that infers shapes, if its definition does not say all.
    """
    words: list[records.Word] = [0] * (1 + layout.ATTRIBUTES)  # the first says that any element type is right
    words[1 + layout.DEFINITION], words[1 + layout.ENTRY] = definition_of(operator), entry
    words[1 + layout.SHAPES], words[1 + layout.LABEL] = _shapes_with(infer), operator.label
    for attribute in operator.attributes:
        words += attribute_words(attribute, attributes[attribute.name])
    memory = np.array([records.value_of(word) for word in words], np.int64)
    return Node(operator, memory.ctypes.data + memory.itemsize, memory)


@functools.cache
def _shapes_with(infer: int | None) -> Record:
    """The record of the functions that infer and check shapes."""
    by_definition, check = (library().functions[name] for name in ("infer_by_definition", "check_wanted"))
    return Record("shapes", [by_definition, check] if infer is None else [infer, check, by_definition])
