"""Structs that do not change: described once, and written into this process' memory or into a library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ortops.jit.structs import InPlace, Kind, Pointer, Struct, Union, ctypes_type, is_struct


@dataclass(frozen=True)
class FunctionOf:
    """A C function, specialised for an element type if it has parameters that point to elements."""

    function: Any
    element: str = ""


class Constant:
    """A struct with a value for each field, or a union with a value for one of them.

    The value of a number is a number, or what has an address: a text, which becomes a C string in UTF-8, a function or a
    Constant. The value of a struct in place is a Constant. That of several values is a sequence, with zeros behind it where
    the field has room for more; elsewhere lies what an address field gets, whose value is a sequence, a Constant, a text, or
    None for 0.

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


Target: TypeAlias = "str | FunctionOf | Constant | Several"
"""What has an address."""


class Cell(NamedTuple):
    """A number that is not 0, or an address: where it lies in the memory, in bytes, its NumPy type, and its value."""

    offset: int
    kind: str
    value: int | float | Target


def size_of(target: Constant | Several) -> int:
    """The bytes of structs or numbers."""
    if isinstance(target, Constant):
        return ctypes.sizeof(target.struct)
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
        if len(value) > kind.size:
            raise ValueError(f"{len(value)} values: must be at most {kind.size}, for which there is room")
        step = ctypes.sizeof(ctypes_type(kind.kind))
        for i, item in enumerate(value):
            yield from _cells(kind.kind, item, offset + i * step)
    elif is_struct(kind):
        yield from (cell._replace(offset=offset + cell.offset) for cell in cells(value))
    elif isinstance(kind, Pointer):
        is_address = value is None or isinstance(value, int | str | FunctionOf | Constant)
        yield Cell(offset, "int64", (value or 0) if is_address else Several(kind.kind, value))
    else:
        yield Cell(offset, str(kind), value)


class Memory:
    """Constants in this process, which end with this object.

    Args:
        address_of: the address of a function.
    """

    def __init__(self, address_of: Callable[[FunctionOf], int]) -> None:
        self._function, self._places = address_of, dict[Target, Any]()

    def address(self, target: Target) -> int:
        """The address of a function, or of something that is written once."""
        if isinstance(target, FunctionOf):
            return self._function(target)
        if isinstance(target, str) and target not in self._places:
            self._places[target] = ctypes.create_string_buffer(target.encode())
        elif not isinstance(target, str) and target not in self._places:
            memory: Any = (ctypes.c_int64 * ((size_of(target) + 7) // 8))()
            for offset, kind, value in cells(target):
                number = value if isinstance(value, int | float) else self.address(value)
                ctypes_type(kind).from_buffer(memory, offset).value = number
            self._places[target] = memory
        return ctypes.addressof(self._places[target])
