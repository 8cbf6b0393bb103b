# SPDX-License-Identifier: MIT
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

from ortops import exceptions
from ortops.memory import OBJECT_HEAD, data_pointer
from ortops.native import types
from ortops.native.constants import Constant, Memory, Several
from ortops.native.definitions import attribute_value, definition_of
from ortops.native.interface import Given
from ortops.native.structs import offset_of
from ortops.runtime import library
from ortops.spec import ELEMENT_DTYPES, ELEMENT_TYPES, Allocate, AttributeValue, Operator

TYPES = {dtype: ELEMENT_TYPES[name] for name, dtype in ELEMENT_DTYPES.items() if name != "string"}
"""The numbers that ONNX's TensorProto gives NumPy's types."""


class Node:
    """A node with its attributes.

    Args:
        operator: the definition.
        address: the address of the node (`types.Node`), valid while `memory` lives.
        memory: what holds the node.
    """

    def __init__(self, operator: Operator, address: int, memory: object) -> None:
        self.address, self._memory = address, memory
        inputs, outputs = len(operator.inputs), len(operator.outputs)
        self._pack = _packer(inputs, outputs)
        self._outputs = [offset_of(types.Call, "tensors", i) for i in range(inputs, inputs + outputs)]
        self._sets_lengths = operator.output_memory == types.BUFFERS_FOR_ALL
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

_RANK, _SIZE = offset_of(types.Tensor, "rank"), ctypes.sizeof(types.Tensor)
_pack_output = struct.Struct("2q").pack_into  # the address and the type, as the fields of structs take longer
_unpack_dims = struct.Struct(f"{_RANK}x{1 + types.MAX_DIMS}q").unpack_from


def _new_call() -> tuple[Any, int]:
    memory = types.Call()
    return memory, ctypes.addressof(memory)


@functools.cache
def _packer(inputs: int, outputs: int) -> Any:
    """What packs a call before its text: the runner, and the address and type of each input; all else is 0."""
    skipped = offset_of(types.Call, "tensors") - offset_of(types.Call, "status")
    tensor = f"2q{_SIZE - _RANK}x"
    return struct.Struct(f"2q{skipped}x{tensor * inputs}{_SIZE * outputs}x").pack_into


def _shape_at(memory: Any, at: int) -> tuple[int, ...]:
    """The shape of the tensor at an offset in a call."""
    rank_and_dims: tuple[int, ...] = _unpack_dims(memory, at)
    return rank_and_dims[1 : 1 + rank_and_dims[0]]


@functools.cache
def _functions() -> tuple[Any, Any]:
    addresses = ctypes.c_void_p, ctypes.c_void_p  # measured: half of what ctypes takes to convert a c_int64
    infer = library().interface.infer_shapes_of_arrays  # takes less time than to release the GIL
    return ctypes.PYFUNCTYPE(ctypes.c_int64, *addresses)(infer), library().function("compute", *addresses)


def _raise(status: int, call: int) -> NoReturn:
    if status == types.INTERRUPTED:
        raise exceptions.take() or KeyboardInterrupt
    text = ctypes.string_at(call + offset_of(types.Call, "text")).decode()
    raise MemoryError(text) if status == types.OUT_OF_MEMORY else ValueError(text)


def node_of(operator: Operator, attributes: Mapping[str, AttributeValue], dtype: Any) -> Node:
    """A node of one of this project's operators.

    Args:
        operator: the definition.
        attributes: the result of `Operator.check_attributes`.
        dtype: the NumPy element type of the first input.
    """
    given: list[Constant] = []
    for attribute in operator.attributes:
        value = attributes[attribute.name]
        values = list(value) if isinstance(value, tuple) else [value]
        kind = "float64" if attribute.type.startswith("FLOAT") else "int64"
        given.append(
            Constant(
                Given,
                name=attribute.name,
                type=types.ATTRIBUTE_TYPES[attribute.type],
                count=len(values),
                values=values[0] if attribute.type == "STRING" else Several(kind, values),
            )
        )
    (_, call), memory = _new_call(), Memory()
    make_node = library().function("make_node", ctypes.c_int64, ctypes.c_char_p, *[ctypes.c_int64] * 4)
    arguments = TYPES[dtype], len(given), memory.address(Several(Given, given)), call
    address = make_node(ctypes.addressof(library().interface.operators), operator.name.encode(), *arguments)
    if not address:
        _raise(types.INVALID, call)
    memory_of_node = _Memory()
    weakref.finalize(memory_of_node, library().function("release_node", ctypes.c_int64), address)
    return Node(operator, address, memory_of_node)


class _Memory:
    """Lives as long as a node of the library."""


def node_of_user(
    operator: Operator, attributes: Mapping[str, AttributeValue], entry: int, infer: int | None = None
) -> Node:
    """A node of a user's operator.

    Args:
        operator: the definition.
        attributes: the result of `Operator.check_attributes`.
        entry: the address of its entry.
        infer: the address of its function that infers shapes, if its definition does not say all.
    """
    interface = library().interface
    by_definition = interface.infer_by_definition
    node = Constant(
        types.Node,
        definition=definition_of(operator),
        shapes=Constant(
            types.Shapes, infer=infer or by_definition, check=interface.check_wanted, infer_by_names=by_definition
        ),
        entry=Constant(types.Entry, enter=entry, short_of_memory=f"out of memory in {operator.label}"),
        first_type=0,
        driver=None,
        driver_of_rois=None,
        label=operator.label,
        attributes=[attribute_value(attribute, attributes[attribute.name]) for attribute in operator.attributes],
    )
    memory = Memory()
    return Node(operator, memory.address(node), memory)
