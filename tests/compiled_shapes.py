"""The compiled checks of a call's shapes, and nodes and calls for them."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from in_process import c_function
from ortops.calls import layout, shapes
from ortops.calls.definitions import attribute_words, definition_of
from ortops.calls.records import address_of
from ortops.spec import Operator

Lengths = Sequence[int | None]


@functools.cache
def function(name: str) -> Any:
    """A function of ``calls.shapes``, which takes the addresses of a node and a call."""
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return run(c_function(getattr(shapes, name)))


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
        self.operator = operator
        words: list[Any] = [0] * layout.ATTRIBUTES
        words[layout.DEFINITION] = address_of(definition_of(operator))
        for attribute in operator.attributes:
            words += attribute_words(attribute, attributes[attribute.name])
        self.node = np.frombuffer(
            b"".join(struct.pack("d" if isinstance(word, float) else "q", word) for word in words)
        )
        self.call = np.zeros(layout.CALL_WORDS + 1, np.int64)
        self.call[layout.TEXT : layout.TEXT + 2] = 1, -1  # of an earlier error
        self.call[-1] = -2
        self._elements = {name: np.array(elements, np.int64) for name, elements in values.items()}
        self._tensors = (*operator.inputs, *operator.outputs)
        for row, tensor in enumerate(self._tensors):
            if tensor.name in shapes:
                self._describe(row, shapes[tensor.name], self._elements.get(tensor.name))

    @property
    def lengths(self) -> list[int]:
        """The copy of the elements that are lengths."""
        return self.call[layout.LENGTHS : layout.TENSORS].tolist()  # type: ignore[no-any-return]

    def _describe(self, row: int, shape: Lengths | None, elements: Any) -> None:
        words = self._words(row)
        words[layout.TYPE] = 1
        words[layout.DIMS_COUNT] = -1 if shape is None else len(shape)
        words[layout.DIMS : layout.DIMS + len(shape or ())] = [-1 if one is None else one for one in shape or ()]
        words[layout.ADDRESS] = 0 if elements is None else elements.ctypes.data

    def _words(self, row: int) -> Any:
        return self.call[layout.TENSORS + layout.TENSOR_WORDS * row :][: layout.TENSOR_WORDS]

    def infer(self) -> list[Lengths | None] | str:
        """The shapes of all outputs, or the error."""
        return self._run("infer_shapes") or [
            self._shape(row) for row in range(len(self.operator.inputs), len(self._tensors))
        ]

    def check_wanted(self) -> str | None:
        """The error, if there is one."""
        self.call[layout.TEXT] = 0
        return self._run("check_wanted")

    def _shape(self, row: int) -> Lengths | None:
        _, _, rank, *lengths = self._words(row).tolist()
        return None if rank < 0 else tuple(None if length < 0 else length for length in lengths[:rank])

    def _run(self, name: str) -> str | None:
        before = self.call.copy()[: layout.LENGTHS]
        status = function(name)(self.node.ctypes.data, self.call.ctypes.data)
        assert (before == self.call[: layout.LENGTHS]).all()
        assert self.call[-1] == -2
        content = self.call[layout.TEXT + 1 :].tobytes()[: self.call[layout.TEXT]]
        assert status in (layout.OK, layout.INVALID)
        return content.decode() if status == layout.INVALID else None
