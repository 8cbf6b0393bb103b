"""Nodes that compiled code computes: their words, and compiled calls with arrays."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ortops.calls import layout, records
from ortops.calls.definition_words import OWN_FOR_ALL
from ortops.calls.definitions import attribute_words, definition_of
from ortops.calls.records import FunctionOf, Record, address_of
from ortops.jit import exceptions
from ortops.jit.forks import Lazy
from ortops.jit.kernel import Array, data_pointer
from ortops.jit.source import Unimported
from ortops.kernels.entries import KINDS, drivers_for, entry_of
from ortops.spec import ELEMENT_DTYPES, ELEMENT_TYPES, Allocate, AttributeValue, Operator

if TYPE_CHECKING:
    from ortops.calls import shapes
else:
    shapes = Unimported("calls.shapes")

SHAPES = Record("shapes", [FunctionOf(shapes.infer_shapes), FunctionOf(shapes.check_wanted)])
"""The functions that infer and check shapes, for all operators."""


def shapes_with(function: FunctionOf, name: str) -> Record:
    """As `SHAPES`, with a function that also asks one of a user (`user_lengths.shapes_entry`)."""
    infer, check = SHAPES.words
    return Record(f"shapes_{name}", [function, check, infer])


_INFER, _CHECK = range(2)

_KINDS = {ELEMENT_DTYPES[name]: kind for name, kind in KINDS.items()}

TYPES = {dtype: ELEMENT_TYPES[name] for name, dtype in ELEMENT_DTYPES.items() if name != "string"}
"""The numbers that ONNX's TensorProto gives NumPy's types."""

_Function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_word_at = ctypes.c_int64.from_address


class Node:
    """A node with its words (`layout`).

    Args:
        operator: the definition.
        attributes: the result of `Operator.check_attributes`.
        entry: the entry's record.
        drivers: the records of the drivers that the entry calls.
        shapes_record: the record of the functions that infer and check shapes.
    """

    def __init__(
        self,
        operator: Operator,
        attributes: Mapping[str, AttributeValue],
        entry: Record,
        drivers: Sequence[records.Word] = (0, 0),
        shapes_record: Record = SHAPES,
    ) -> None:
        self._entry, self._shapes = entry, shapes_record
        words: list[records.Word] = [0] * layout.ATTRIBUTES
        words[layout.DEFINITION], words[layout.SHAPES], words[layout.ENTRY] = (
            definition_of(operator),
            self._shapes,
            self._entry,
        )
        words[layout.DRIVER], words[layout.DRIVER_OF_ROIS] = drivers
        words[layout.LABEL] = operator.label
        for attribute in operator.attributes:
            words += attribute_words(attribute, attributes[attribute.name])
        self.words = np.array([records.value_of(word) for word in words], np.int64)
        self.address: int = self.words.ctypes.data
        self._inputs, self._outputs = len(operator.inputs), len(operator.outputs)
        self._checks = operator.is_gradient
        self._sets_lengths = operator.output_memory == OWN_FOR_ALL

    def run(self, inputs: Sequence[Any], allocate: Allocate, runner: tuple[int, int]) -> None:
        """Compute a call's outputs.

        Args:
            inputs: a C-contiguous, aligned array for each input; None for an absent input.
            allocate: called for each output; again with the final shape if the data decides it.
            runner: runs the tasks (`jit.runners`).

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
        self._finish(self._infer, here, call)
        at, outputs = len(words), []
        for i in range(self._outputs):
            row = call[at : at + layout.TENSOR_WORDS].tolist()
            array = allocate(i, tuple(row[layout.DIMS : layout.DIMS + row[layout.DIMS_COUNT]]))
            if self._sets_lengths:  # np.zeros takes no memory for what nobody touches, unlike a fill
                array = np.zeros(array.shape, array.dtype)
            if array is not None:
                call[at], call[at + layout.TYPE] = data_pointer(array), TYPES[array.dtype]
            outputs.append(array)
            at += layout.TENSOR_WORDS
        if self._checks:
            self._finish(self._check, here, call)
        self._finish(self._enter, here, call)
        if not self._sets_lengths:
            return
        for i, room in enumerate(outputs):
            at = len(words) + i * layout.TENSOR_WORDS
            count = int(call[at + layout.DIMS_COUNT])
            shape = tuple(call[at + layout.DIMS : at + layout.DIMS + count].tolist())
            allocate(i, shape)[...] = room.ravel()[: math.prod(shape)].reshape(shape)

    @Lazy
    def _infer(self) -> Any:
        return _function(self._shapes, _INFER)

    @Lazy
    def _check(self) -> Any:
        return _function(self._shapes, _CHECK)

    @Lazy
    def _enter(self) -> Any:
        return _function(self._entry, layout.ENTER)

    def _finish(self, function: Any, here: int, call: Array) -> None:
        """Call a compiled function with a call and its address, and load the functions that it needs."""
        while (status := function(self.address, here)) == layout.NEEDS:
            records.load(int(call[layout.NEEDED]))
        if status != layout.OK:
            self._raise(status, call)

    def _raise(self, status: int, call: Array) -> None:
        if status == layout.INTERRUPTED:
            raise exceptions.take() or KeyboardInterrupt
        if status == layout.OUT_OF_MEMORY:
            text = ctypes.string_at(_word_at(address_of(self._entry) + 8 * layout.SHORT_OF_MEMORY).value)
            raise MemoryError(text.decode())
        first = 8 * (layout.TEXT + 1)
        raise ValueError(call.tobytes()[first : first + int(call[layout.TEXT])].decode())


def node_of(operator: Operator, attributes: Mapping[str, AttributeValue], dtype: Any) -> Node:
    """A node of one of this project's operators, for a NumPy element type."""
    return Node(operator, attributes, entry_of(operator), drivers_for(operator, attributes, _KINDS[dtype]))


def _function(record: Record, number: int) -> Any:
    """A record's function."""
    slot = address_of(record) + 8 * number
    if not _word_at(slot).value:
        records.load(slot)
    return _Function(_word_at(slot).value)


_ZEROS = (0,) * (layout.TENSORS - layout.NEEDED)
_ABSENT = (0,) * layout.TENSOR_WORDS
_PADDING = [(0,) * (layout.MAX_DIMS - rank) for rank in range(layout.MAX_DIMS + 1)]
"""The zeros that follow a tensor's dimensions, by rank."""
