# SPDX-License-Identifier: MIT
"""Structs that Python and compiled code share: one class is the layout, the documentation and the type on both sides.

    class Tensor(Struct):
        rank: int                                    # an int64
        scale: Float32
        dims: Annotated[list[int], 8]                # eight int64s, in place

    class Node(Struct):
        definition: Annotated[Definition, POINTER]   # the address of a struct
        next: Annotated[Node | None, POINTER]        # the address of a struct, or 0
        rules: Annotated[list[Rule], POINTER]        # the address of the first of several structs
        drivers: Annotated[list[Annotated[Driver, POINTER]], POINTER]    # the address of the first of several addresses
        starts: Words                                # the address of the first of several int64s
        tensors: Annotated[list[Tensor], 12]         # twelve structs, in place
        latest: Tensor                               # a struct in place
        attributes: Annotated[list[Attribute], 0]    # structs that follow, as many as there is memory for
        compute: Address[Callable[[int], int]]       # the address of a C function

In Python a struct is a ctypes.Structure, and in compiled code (`struct_types`) it is a pointer. Its fields have the same
names in both: `node.rules[i].rank`, `node.tensors[i].dims[k]`, `tensor.rank = 2`. In Python, addresses keep nothing alive.
"""

from __future__ import annotations

import ctypes
import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeAlias

POINTER = "pointer"
"""Says in an annotation that a field holds the address of its values."""

Byte: TypeAlias = Annotated[int, "uint8"]
"""A field's type: an integer in [0, 255]."""

Float32: TypeAlias = Annotated[float, "float32"]
"""A field's type: a float that is stored as a float32."""


class InPlace(NamedTuple):
    """Several values that lie in a field: the kind of each, and their number."""

    kind: Kind
    size: int


class Pointer(NamedTuple):
    """The address of a value, or of the first of several: the kind of each, and whether there may be several."""

    kind: Kind
    is_several: bool


Kind: TypeAlias = "str | InPlace | Pointer | type[Struct]"
"""What a field holds: a number, of a NumPy type; several values; an address; or a struct."""


class Field(NamedTuple):
    """Where a field begins, in bytes, and what it holds."""

    offset: int
    kind: Kind


_NUMBERS: Mapping[str, Any] = {
    "int64": ctypes.c_int64,
    "float64": ctypes.c_double,
    "float32": ctypes.c_float,
    "uint8": ctypes.c_uint8,
}


def ctypes_type(kind: Kind) -> Any:
    """The type of a kind of field in Python."""
    if isinstance(kind, str):
        return _NUMBERS[kind]
    if isinstance(kind, InPlace):
        return ctypes_type(kind.kind) * kind.size
    return ctypes.c_size_t if isinstance(kind, Pointer) else kind


def without_none(hint: Any) -> Any:
    """An annotation without the None that says that an address may be 0."""
    if isinstance(hint, types.UnionType):
        return next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return hint


def is_struct(hint: Any) -> bool:
    """Whether an annotation is a struct."""
    return isinstance(hint, type) and issubclass(hint, Struct | Union)


def kind_of(hint: Any) -> Kind:
    """The kind of an annotation.

    Raises:
        TypeError: a struct has no such field.
    """
    extras: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    if hint in (int, float):
        return "int64" if hint is int else "float64"
    if is_struct(hint):
        return hint
    if len(extras) == 1 and extras[0] in _NUMBERS:
        return str(extras[0]) if hint.__origin__ in (int, float) else Pointer(extras[0], True)
    if len(extras) == 1 and (extras[0] == POINTER or isinstance(extras[0], int)):
        inner = without_none(hint.__origin__)
        if typing.get_origin(inner) is list:
            kind = kind_of(typing.get_args(inner)[0])
            return Pointer(kind, True) if extras[0] == POINTER else InPlace(kind, extras[0])
        if extras[0] == POINTER:
            return Pointer(kind_of(inner), False)
    raise TypeError(f"{hint!r}: must be int, float, Byte, Float32, a struct, or a list or an address of these")


def offset_of(struct: type[Struct], *path: str | int) -> int:
    """The offset in bytes of what lies in a struct: by the names of fields and the numbers of items."""
    kind: Kind = struct
    offset = 0
    for step in path:
        if isinstance(kind, InPlace) and isinstance(step, int):
            kind = kind.kind
            offset += step * ctypes.sizeof(ctypes_type(kind))
        elif isinstance(kind, type) and isinstance(step, str):
            more, kind = kind.fields[step]
            offset += more
        else:
            raise TypeError(f"{path!r}: {step!r} is not in place in {kind}")
    return offset


def _pointed(stored: str, kind: Pointer) -> property:
    """What a field of addresses is in Python: a struct, or several values by their numbers; None at the address 0."""
    target = ctypes_type(kind.kind)

    def read(struct: Any) -> Any:
        address = getattr(struct, stored)
        values = ctypes.cast(address, ctypes.POINTER(target))
        return None if address == 0 else values if kind.is_several else values.contents

    def write(struct: Any, value: Any) -> None:
        setattr(struct, stored, 0 if value is None else ctypes.addressof(value))

    return property(read, write)


if TYPE_CHECKING:

    class Struct(ctypes.Structure):
        """The base of all structs. Each field has an annotation; values that a constructor gets are those of the first."""

        fields: ClassVar[Mapping[str, Field]]

        def __init__(self, *values: object, **named: object) -> None: ...

    class Union(Struct):
        """The base of structs whose fields share their memory."""

else:

    class Fields:
        """Gives a struct its fields by its annotations."""

        def __init__(self, name: str, *args: Any) -> None:
            super().__init__(name, *args)
            hints = typing.get_type_hints(self, localns={name: self}, include_extras=True)
            if hints:
                kinds = {name: kind_of(hint) for name, hint in hints.items()}
                stored = {name: f"_{name}" if isinstance(kind, Pointer) else name for name, kind in kinds.items()}
                self._fields_ = [(stored[name], ctypes_type(kind)) for name, kind in kinds.items()]
                self.fields = {name: Field(getattr(self, stored[name]).offset, kind) for name, kind in kinds.items()}
                for name, kind in kinds.items():
                    if isinstance(kind, Pointer):
                        setattr(self, name, _pointed(stored[name], kind))

    class StructClass(Fields, type(ctypes.Structure)):
        """The class of structs."""

    class UnionClass(Fields, type(ctypes.Union)):
        """The class of unions."""

    class Struct(ctypes.Structure, metaclass=StructClass):
        """The base of all structs."""

    class Union(ctypes.Union, metaclass=UnionClass):
        """The base of structs whose fields share their memory."""
