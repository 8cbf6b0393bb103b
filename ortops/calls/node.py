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
from ortops.memory import Array, data_pointer
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
        self._outputs = len(operator.outputs)
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
        words = [*runner, *_ZEROS]
        for array in inputs:
            if array is None:
                words += _ABSENT
            else:
                shape = array.shape[: layout.MAX_DIMS]
                words += (data_pointer(array), TYPES[array.dtype], len(shape), *shape, *_PADDING[len(shape)])
        call = np.zeros(layout.CALL_WORDS, np.int64)
        struct.pack_into(f"{len(words)}q", call.data, 0, *words)
        here = data_pointer(call)
        if status := self._infer(self.address, here):
            _raise(status, call)
        at, outputs = len(words), []
        for i in range(self._outputs):
            row = call[at : at + layout.TENSOR_WORDS].tolist()
            array = allocate(i, tuple(row[layout.DIMS : layout.DIMS + row[layout.DIMS_COUNT]]))
            if self._sets_lengths:  # np.zeros takes no memory for what nobody touches, unlike a fill
                array = np.zeros(array.shape, array.dtype)
            if array is None:
                call[at + layout.TYPE] = 0
            else:
                call[at], call[at + layout.TYPE] = data_pointer(array), TYPES[array.dtype]
            outputs.append(array)
            at += layout.TENSOR_WORDS
        if status := self._compute(self.address, here):
            _raise(status, call)
        if not self._sets_lengths:
            return
        for i, room in enumerate(outputs):
            at = len(words) + i * layout.TENSOR_WORDS
            count = int(call[at + layout.DIMS_COUNT])
            shape = tuple(call[at + layout.DIMS : at + layout.DIMS + count].tolist())
            allocate(i, shape)[...] = room.ravel()[: math.prod(shape)].reshape(shape)


@functools.cache
def _functions() -> tuple[Any, Any]:
    addresses = ctypes.c_int64, ctypes.c_int64
    return library().function("infer_shapes", *addresses), library().function("compute", *addresses)


def _raise(status: int, call: Array) -> NoReturn:
    if status == layout.INTERRUPTED:
        raise exceptions.take() or KeyboardInterrupt
    first = 8 * (layout.TEXT + 1)
    text = call.tobytes()[first : first + int(call[layout.TEXT])].decode()
    raise MemoryError(text) if status == layout.OUT_OF_MEMORY else ValueError(text)


_ZEROS = (0,) * (layout.TENSORS - layout.STATUS)
_ABSENT = (0,) * layout.TENSOR_WORDS
_PADDING = [(0,) * (layout.MAX_DIMS - rank) for rank in range(layout.MAX_DIMS + 1)]
"""The zeros that follow a tensor's dimensions, by rank."""


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
    call, given_rows = np.zeros(layout.CALL_WORDS, np.int64), np.array(rows, np.int64)
    make_node = library().function("make_node", ctypes.c_int64, ctypes.c_char_p, *[ctypes.c_int64] * 4)
    arguments = TYPES[dtype], len(rows) // GIVEN_WORDS, given_rows.ctypes.data, call.ctypes.data
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
