"""The compiled checks of a call's shapes, and nodes and calls for them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from in_process import c_function
from ortops.native import types
from ortops.native.constants import Constant, Memory, Several
from ortops.native.definitions import attribute_value, definition_of
from ortops.native.node import shapes
from ortops.native.structs import Struct, offset_of
from ortops.spec import Operator

Lengths = Sequence[int | None]


@functools.cache
def function(name: str) -> Any:
    """A function of ``native.node.shapes``, which takes the addresses of a node and a call."""
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return run(c_function(getattr(shapes, name)))


class _Guarded(Struct):
    """A call, and a number that nobody may change."""

    call: types.Call
    guard: int


_BEFORE_LENGTHS = offset_of(types.Call, "lengths")


class Call:
    """A node with checked attributes, and one call of it.

    Args:
        operator: the definition.
        attributes: the result of `Operator.check_attributes`.
        shapes: by name, the shape of each tensor that the call has, with None for an unknown length; None for an unknown
            rank. Of an output it does not matter.
        values: by name, the elements of inputs that are lengths.
    """

    def __init__(
        self,
        operator: Operator,
        attributes: Mapping[str, Any],
        shapes: Mapping[str, Lengths | None],
        values: Mapping[str, Sequence[int]],
    ) -> None:
        self.operator, self._memory = operator, Memory()
        node = dict.fromkeys(types.Node.fields) | {
            "definition": definition_of(operator),
            "first_type": 0,
            "label": 0,
            "attributes": [attribute_value(attribute, attributes[attribute.name]) for attribute in operator.attributes],
        }
        self._node = self._memory.address(Constant(types.Node, **node))
        self._guarded = _Guarded()
        self._guarded.guard = -2
        self._call: Any = self._guarded.call
        self._call.text_size, self._call.text[0] = 1, 255  # of an earlier error
        self._tensors = (*operator.inputs, *operator.outputs)
        for row, tensor in enumerate(self._tensors):
            if tensor.name in shapes:
                self._describe(row, shapes[tensor.name], values.get(tensor.name))

    @property
    def lengths(self) -> list[int]:
        """The copy of the elements that are lengths."""
        return list(self._call.lengths)

    def _describe(self, row: int, shape: Lengths | None, elements: Sequence[int] | None) -> None:
        tensor = self._call.tensors[row]
        tensor.type = 1
        tensor.rank = -1 if shape is None else len(shape)
        for i, length in enumerate(shape or ()):
            tensor.dims[i] = -1 if length is None else length
        tensor.address = 0 if elements is None else self._memory.address(Several("int64", elements))

    def infer(self) -> list[Lengths | None] | str:
        """The shapes of all outputs, or the error."""
        return self._run("infer_shapes") or [
            self._shape(row) for row in range(len(self.operator.inputs), len(self._tensors))
        ]

    def check_wanted(self) -> str | None:
        """The error, if there is one."""
        self._call.text_size = 0
        return self._run("check_wanted")

    def _shape(self, row: int) -> Lengths | None:
        tensor = self._call.tensors[row]
        if tensor.rank < 0:
            return None
        return tuple(None if length < 0 else length for length in tensor.dims[: tensor.rank])

    def _run(self, name: str) -> str | None:
        before = bytes(self._guarded)[:_BEFORE_LENGTHS]
        status = function(name)(self._node, ctypes.addressof(self._call))
        assert bytes(self._guarded)[:_BEFORE_LENGTHS] == before
        assert self._guarded.guard == -2
        assert status in (types.OK, types.INVALID)
        content = bytes(self._call.text[: self._call.text_size])
        return content.decode() if status == types.INVALID else None
