# SPDX-License-Identifier: MIT
"""Structs (`structs`) in compiled code: types, fields, and functions that make structs.

A struct is a pointer. Assignments to its fields change it, and `struct is None` tells whether it is a null pointer. A struct
that is assigned to a field or an item in place is copied; elsewhere its address is stored.
"""

from __future__ import annotations

import ctypes
import operator
import typing
from typing import TYPE_CHECKING, Any, TypeVar

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.imputils import lower_builtin, lower_cast, lower_getattr_generic, lower_setattr_generic
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import intrinsic, register_model, typeof_impl

from ortops.native import structs
from ortops.native.structs import InPlace, Kind, Pointer, Struct, Union, ctypes_type, is_struct, without_none

_BYTE, _INT64 = ir.IntType(8), ir.IntType(64)


class StructType(types.Type):
    """The numba type of a pointer to a struct."""

    def __init__(self, struct: type[Struct]) -> None:
        self.struct = struct
        super().__init__(f"{struct.__module__}.{struct.__qualname__}")


class ItemsType(types.Type):
    """The numba type of a pointer to several structs, or to several addresses."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.item, self.itemsize = kind, _type(kind), ctypes.sizeof(ctypes_type(kind))
        super().__init__(f"{'Items' if _is_in_place(kind) else 'Pointers'}({self.item})")


register_model(StructType)(models.OpaqueModel)
register_model(ItemsType)(models.OpaqueModel)


@typeof_impl.register(type(Struct))
@typeof_impl.register(type(Union))
def _typeof_struct(struct: type[Struct], _context: Any) -> Any:
    return types.TypeRef(StructType(struct))


def is_pointer(numba_type: Any) -> bool:
    """Whether values of a type are pointers."""
    return isinstance(numba_type, types.CPointer | StructType | ItemsType)


def parameter_type(hint: Any) -> Any:
    """The numba type of a C function's parameter: a number, a struct, a list, `Words` or `Doubles`; else None."""
    plain = without_none(hint)
    if getattr(plain, "__metadata__", ()) in (("int64",), ("float64",)):
        return types.CPointer(getattr(types, *plain.__metadata__))
    if plain in (int, float, bool):
        return {int: types.intp, float: types.float64, bool: types.boolean}[plain]
    if typing.get_origin(plain) is list:
        return _several(structs.kind_of(typing.get_args(plain)[0]))
    return StructType(plain) if is_struct(plain) else None


def _type(kind: Kind) -> Any:
    """The numba type of a field's value, in which narrow numbers are wide as in Python."""
    if isinstance(kind, str):
        return types.float64 if kind.startswith("float") else types.int64
    if isinstance(kind, InPlace) or (isinstance(kind, Pointer) and kind.is_several):
        return _several(kind.kind)
    return _type(kind.kind) if isinstance(kind, Pointer) else StructType(kind)


def _several(kind: Kind) -> Any:
    return types.CPointer(getattr(types, kind)) if isinstance(kind, str) else ItemsType(kind)


def _is_in_place(kind: Kind) -> bool:
    """Whether a field's value is the place of the field, and not what it holds."""
    return not isinstance(kind, str | Pointer)


def _emit_load(context: Any, builder: Any, place: Any, kind: Kind) -> Any:
    numba_type = _type(kind)
    if _is_in_place(kind):
        return builder.bitcast(place, context.get_value_type(numba_type))
    stored = getattr(types, kind) if isinstance(kind, str) else numba_type
    value = builder.load(builder.bitcast(place, context.get_value_type(stored).as_pointer()))
    return context.cast(builder, value, stored, numba_type)


def _emit_store(context: Any, builder: Any, place: Any, kind: Kind, value: Any) -> None:
    """Store a value of the type `_type`."""
    if isinstance(kind, str):
        value = context.cast(builder, value, _type(kind), getattr(types, kind))
    elif isinstance(kind, InPlace):
        raise TypeError("several values lie in the field: must be assigned one by one")
    elif not isinstance(kind, Pointer):
        cgutils.raw_memcpy(builder, place, value, _INT64(ctypes.sizeof(kind)), 1)
        return
    builder.store(value, builder.bitcast(place, value.type.as_pointer()))


def emit_item(builder: Any, items: Any, pointer: Any, index: Any) -> Any:
    """Emit the place of an item."""
    item = ir.ArrayType(_BYTE, items.itemsize)
    return builder.bitcast(builder.gep(builder.bitcast(pointer, item.as_pointer()), [index]), pointer.type)


@infer_getattr
class _Fields(AttributeTemplate):
    key = StructType

    def generic_resolve(self, struct: Any, name: str) -> Any:
        field = struct.struct.fields.get(name)
        return field and _type(field.kind)


def _place(builder: Any, struct: Any, pointer: Any, name: str) -> tuple[Any, Kind]:
    field = struct.struct.fields[name]
    return builder.gep(pointer, [_INT64(field.offset)]), field.kind


@lower_getattr_generic(StructType)
def _get(context: Any, builder: Any, struct: Any, pointer: Any, name: str) -> Any:
    return _emit_load(context, builder, *_place(builder, struct, pointer, name))


@lower_setattr_generic(StructType)
def _set(context: Any, builder: Any, sig: Any, args: Any, name: str) -> None:
    _emit_store(context, builder, *_place(builder, sig.args[0], args[0], name), args[1])


@lower_cast(types.NoneType, StructType)
@lower_cast(types.NoneType, ItemsType)
@lower_cast(types.NoneType, types.CPointer)
def _null(context: Any, _builder: Any, _none: Any, to: Any, _value: Any) -> Any:
    return context.get_value_type(to)(None)


@infer_global(operator.getitem)
class _GetItem(AbstractTemplate):
    def generic(self, args: Any, _kws: Any) -> Any:
        if isinstance(args[0], ItemsType) and isinstance(args[1], types.Integer):
            return signature(args[0].item, args[0], types.intp)
        return None


@lower_builtin(operator.getitem, ItemsType, types.intp)
def _get_item(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return _emit_load(context, builder, emit_item(builder, sig.args[0], *args), sig.args[0].kind)


@infer_global(operator.setitem)
class _SetItem(AbstractTemplate):
    def generic(self, args: Any, _kws: Any) -> Any:
        if isinstance(args[0], ItemsType) and isinstance(args[1], types.Integer):
            return signature(types.none, args[0], types.intp, args[0].item)
        return None


@lower_builtin(operator.setitem, ItemsType, types.intp, types.Any)
def _set_item(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    _emit_store(context, builder, emit_item(builder, sig.args[0], *args[:2]), sig.args[0].kind, args[2])
    return context.get_dummy_value()


@lower_builtin(operator.is_, StructType, types.NoneType)
@lower_builtin(operator.is_, ItemsType, types.NoneType)
@lower_builtin(operator.is_, types.CPointer, types.NoneType)
def _is_null(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
    return builder.icmp_unsigned("==", builder.ptrtoint(args[0], _INT64), _INT64(0))


@lower_builtin(operator.is_, StructType, StructType)
def _is_same(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
    return builder.icmp_unsigned("==", *(builder.ptrtoint(pointer, _INT64) for pointer in args))


def _at(result_of: Any) -> Any:
    """An intrinsic that takes an address for a pointer of a type that follows from a struct."""

    @intrinsic
    def at(_typing: Any, struct: Any, address: Any) -> Any:
        result = result_of(struct.instance_type)

        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[1], context.get_value_type(result))

        return result(struct, types.intp), codegen

    return at


@intrinsic
def _size_of(_typing: Any, struct: Any) -> Any:
    size = ctypes.sizeof(struct.instance_type.struct)
    return types.intp(struct), lambda _context, _builder, _signature, _args: _INT64(size)


@intrinsic
def _local_struct(_typing: Any, struct: Any) -> Any:
    result = struct.instance_type
    words = (ctypes.sizeof(result.struct) + 7) // 8

    def codegen(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        memory = cgutils.alloca_once(builder, ir.ArrayType(_INT64, words))
        return builder.bitcast(memory, _BYTE.as_pointer())

    return result(struct), codegen


@intrinsic
def _allocate_struct(_typing: Any, struct: Any) -> Any:
    result = struct.instance_type

    def codegen(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        malloc_type = ir.FunctionType(_BYTE.as_pointer(), [_INT64])
        malloc = cgutils.get_or_insert_function(builder.module, malloc_type, "malloc")
        return builder.call(malloc, [_INT64(ctypes.sizeof(result.struct))])

    return result(struct), codegen


@intrinsic
def _clear_struct(_typing: Any, struct: Any) -> Any:
    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        cgutils.memset(builder, args[0], _INT64(ctypes.sizeof(struct.struct)), 0)
        return context.get_dummy_value()

    return types.void(struct), codegen


@intrinsic(prefer_literal=True)
def _field_pointer(_typing: Any, struct: Any, name: Any) -> Any:
    field = struct.struct.fields[name.literal_value]
    result = types.CPointer(types.int64 if isinstance(field.kind, Pointer) else getattr(types, field.kind))

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        place = builder.gep(args[0], [_INT64(field.offset)])
        return builder.bitcast(place, context.get_value_type(result))

    return result(struct, name), codegen


@intrinsic(prefer_literal=True)
def _field_address(_typing: Any, struct: Any, name: Any) -> Any:
    offset = _INT64(struct.struct.fields[name.literal_value].offset)

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.add(builder.ptrtoint(args[0], _INT64), offset)

    return types.intp(struct, name), codegen


if TYPE_CHECKING:
    S = TypeVar("S", bound=Struct)

    def struct_at(struct: type[S], address: int) -> S:
        """The struct at an address."""

    def items_at(struct: type[S], address: int) -> list[S]:
        """The structs of a class from an address on."""

    def size_of(struct: type[S]) -> int:
        """A struct's size in bytes."""

    def local_struct(struct: type[S]) -> S:
        """An uninitialised struct on the stack, which ends with the function."""

    def allocate_struct(struct: type[S]) -> S | None:
        """An uninitialised struct, which `parallel.release` ends; None if memory has run out."""

    def clear_struct(struct: Struct) -> None:
        """Set all fields of a struct to 0."""

    def field_pointer(struct: Struct, name: str) -> Any:
        """A pointer to the field `name`, a number or an address, for functions that change it; `name` is a constant."""

    def field_address(struct: Struct, name: str) -> int:
        """The address of the field `name`, which is a constant, for functions that set it."""
else:
    struct_at, items_at = _at(lambda struct: struct), _at(lambda struct: ItemsType(struct.struct))
    size_of, clear_struct = _size_of, _clear_struct
    local_struct, allocate_struct = _local_struct, _allocate_struct
    field_pointer, field_address = _field_pointer, _field_address
