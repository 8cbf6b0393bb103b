# SPDX-License-Identifier: MIT
"""Structs that do not change: described once, and written into this process' memory or into a library."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ortops.native.structs import InPlace, Kind, Pointer, Struct, Union, ctypes_type, is_struct


@dataclass(frozen=True)
class FunctionOf:
    """A compiled function of a library.

    function: the function.
    element: the element type for which it is specialised if it has parameters that point to elements, else "".
    """

    function: Any
    element: str = ""


@dataclass(frozen=True)
class SharedWord:
    """The word of a library that all its functions share (`compiler.parallel.shared_word`)."""

    name: str


class Constant:
    """A struct with a value for each field, or a union with a value for one of them.

    The value of a number is a number, or what has an address: a text, which becomes a C string in UTF-8, a function or other
    structs. The value of a struct in place is a Constant, and that of several values in place is a sequence; where the field
    has room for more, zeros follow. The value of an address is what has an address, a sequence of several values, or None.

    Raises:
        TypeError: a field has no value, or a value has no field.
    """

    def __init__(self, struct: type[Struct], /, **values: Any) -> None:
        if values.keys() != struct.fields.keys() and not (issubclass(struct, Union) and len(values) == 1):
            different = ", ".join(sorted(values.keys() ^ struct.fields.keys()))
            raise TypeError(f"{struct.__name__} and its values differ in {different}: must have the same fields")
        self.struct, self.values = struct, {name: values[name] for name in struct.fields if name in values}


@dataclass(frozen=True, eq=False)
class Several:
    """Several values in a row, to which an address field points."""

    kind: Kind
    values: Sequence[Any]


Target: TypeAlias = "str | FunctionOf | SharedWord | Constant | Several"
"""What has an address. Functions and shared words exist only in libraries."""


class Cell(NamedTuple):
    """A number that is not 0, or an address: where it lies in the memory, in bytes, its NumPy type, and its value."""

    offset: int
    kind: str
    value: int | float | Target


def size_of(target: Constant | Several) -> int:
    """The bytes of structs or numbers."""
    if isinstance(target, Constant):
        size, (name, (_, kind)) = ctypes.sizeof(target.struct), list(target.struct.fields.items())[-1]
        if isinstance(kind, InPlace) and kind.size == 0:
            size += ctypes.sizeof(ctypes_type(kind.kind)) * len(target.values[name])
        return size
    return ctypes.sizeof(ctypes_type(target.kind)) * len(target.values)


def cells(target: Constant | Several) -> Iterator[Cell]:
    """What structs or numbers consist of, in order.

    Raises:
        ValueError: a field has more values than it has room for.
    """
    if isinstance(target, Constant):
        for name, value in target.values.items():
            field = target.struct.fields[name]
            yield from _cells(field.kind, value, field.offset)
    else:
        yield from _cells(InPlace(target.kind, len(target.values)), target.values, 0)


def _cells(kind: Kind, value: Any, offset: int) -> Iterator[Cell]:
    if isinstance(kind, InPlace):
        if kind.size and len(value) > kind.size:  # otherwise they follow the struct
            raise ValueError(f"{len(value)} values: must be at most {kind.size}, for which there is room")
        step = ctypes.sizeof(ctypes_type(kind.kind))
        for i, item in enumerate(value):
            yield from _cells(kind.kind, item, offset + i * step)
    elif is_struct(kind):
        yield from (cell._replace(offset=offset + cell.offset) for cell in cells(value))
    elif isinstance(kind, Pointer):
        is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
        yield Cell(offset, "int64", Several(kind.kind, value) if is_sequence else (value or 0))
    else:
        yield Cell(offset, str(kind), int(value) if isinstance(value, bool) else value)


def functions(targets: Iterable[Target]) -> list[FunctionOf]:
    """The functions whose addresses are in constants, and in all constants whose addresses are in these."""
    reached = dict.fromkeys(targets)
    left = list(reached)
    while left:
        target = left.pop()
        for cell in cells(target) if isinstance(target, Constant | Several) else ():
            if not isinstance(cell.value, int | float) and cell.value not in reached:
                reached[cell.value] = None
                left.append(cell.value)
    return [target for target in reached if isinstance(target, FunctionOf)]


class Memory:
    """Constants in this process, which end with this object."""

    def __init__(self) -> None:
        self._places = dict[Target, Any]()

    def address(self, target: str | Constant | Several) -> int:
        """The address of a text or of structs, which are written once."""
        if target not in self._places:
            self._places[target] = self._written(target)
        return ctypes.addressof(self._places[target])

    def _written(self, target: str | Constant | Several) -> Any:
        if isinstance(target, str):
            return ctypes.create_string_buffer(target.encode())
        memory: Any = (ctypes.c_int64 * ((size_of(target) + 7) // 8))()
        for offset, kind, value in cells(target):
            if isinstance(value, FunctionOf | SharedWord):
                raise TypeError(f"{value}: exists only in a library")
            number = value if isinstance(value, int | float) else self.address(value)
            ctypes_type(kind).from_buffer(memory, offset).value = number
        return memory
