# SPDX-License-Identifier: MIT
"""Structs that do not change have the same bytes in this process and in a library."""

from __future__ import annotations

import ctypes
from typing import Annotated, Any

import pytest
from llvmlite import binding as llvm
from llvmlite import ir

from ortops.compiler import machine_code
from ortops.library.objects import ConstantData
from ortops.native.constants import Constant, FunctionOf, Memory, Several
from ortops.native.structs import POINTER, Byte, Float32, Struct, Union


class Numbers(Union):
    """Integers or floats."""

    ints: Annotated[list[int], 2]
    floats: Annotated[list[float], 2]


class Part(Struct):
    """A struct within another one."""

    name: int
    kind: Byte
    scale: Float32
    numbers: Numbers


class Whole(Struct):
    """A struct with each kind of field."""

    part: Part
    parts: Annotated[list[Part], 2]
    shared: Annotated[Part, POINTER]
    several: Annotated[list[Part], POINTER]
    lengths: Annotated[list[int], POINTER]
    scales: Annotated[list[Float32], POINTER]
    nothing: Annotated[Part | None, POINTER]
    text: Annotated[list[Byte], POINTER]
    function: int
    bytes: Annotated[list[Byte], 3]


class Row(Struct):
    """A number, and structs that follow."""

    count: int
    parts: Annotated[list[Part], 0]


FUNCTION = FunctionOf(None)


def part(name: str | int, kind: int = 0, scale: float = 0.0, **numbers: Any) -> Constant:
    return Constant(Part, name=name, kind=kind, scale=scale, numbers=Constant(Numbers, **numbers or {"ints": ()}))


SHARED = part("größer", ints=[1, -(2**63)])


def whole(function: Any) -> Constant:
    return Constant(
        Whole,
        part=part("", 255, 0.1, floats=[0.1, -0.0]),
        parts=[SHARED],
        shared=SHARED,
        several=[SHARED, part(7), part("größer")],
        lengths=[3, 4],
        scales=(0.1, 2),
        nothing=None,
        text="a text",
        function=function,
        bytes=[True, 2],
    )


def loaded() -> int:
    """The address of the struct in a library."""
    module = ir.Module()
    data = ConstantData(module, lambda _: ir.Function(module, ir.FunctionType(ir.VoidType(), []), "abort"))
    function = ir.Function(module, ir.FunctionType(ir.IntType(64), []), machine_code.SYMBOL)
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(data.place(whole(FUNCTION)).ptrtoint(ir.IntType(64)))
    machine_code.processor()  # initializes LLVM
    code = machine_code.portable_machine().emit_object(llvm.parse_assembly(str(module)))
    return ctypes.CFUNCTYPE(ctypes.c_int64)(machine_code.load(code))()  # type: ignore[no-any-return]


ABORT = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value or 0
MEMORY = Memory()
WHOLE = whole(ABORT)


@pytest.mark.parametrize("address", [lambda: MEMORY.address(WHOLE), loaded], ids=["process", "library"])
def test_a_struct_has_the_values_that_it_was_described_with(address: Any) -> None:
    found: Any = Whole.from_address(address())

    def read(one: Any) -> tuple[Any, ...]:
        return (ctypes.string_at(one.name).decode(), one.kind, one.scale, list(one.numbers.ints))

    tenth = ctypes.c_float(0.1).value
    assert read(found.part)[:3] == ("", 255, tenth)
    assert repr(list(found.part.numbers.floats)) == "[0.1, -0.0]"
    shared, several = ("größer", 0, 0.0, [1, -(2**63)]), found.several
    assert [read(one) for one in (found.parts[0], found.shared, several[0])] == [shared] * 3
    assert (several[1].name, read(several[2])) == (7, ("größer", 0, 0.0, [0, 0]))
    assert several[2].name == several[0].name == found.parts[0].name
    assert found.parts[1].name == 0
    assert (found.lengths[:2], found.scales[:2], found.nothing) == ([3, 4], [tenth, 2.0], None)
    assert (bytes(found.text[:7]), list(found.bytes), found.function) == (b"a text\0", [1, 2, 0], ABORT)


def test_what_follows_a_struct_is_as_long_as_its_values() -> None:
    row = Constant(Row, count=2, parts=[part(5, ints=[6]), part("seven")])
    found: Any = Row.from_address(MEMORY.address(row))
    parts = (Part * 2).from_address(ctypes.addressof(found) + ctypes.sizeof(Row))
    assert (found.count, parts[0].name, list(parts[0].numbers.ints)) == (2, 5, [6, 0])
    assert ctypes.string_at(parts[1].name) == b"seven"


def test_values_that_fields_lack_or_have_no_room_for_are_refused() -> None:
    with pytest.raises(TypeError, match="Part and its values differ in kind, numbers, rule, scale: must have the same"):
        Constant(Part, name=1, rule=2)
    with pytest.raises(TypeError, match="Numbers and its values differ in floats, ints"):
        Constant(Numbers)
    with pytest.raises(ValueError, match="3 values: must be at most 2, for which there is room"):
        Memory().address(part(1, ints=[1, 2, 3]))
    with pytest.raises(TypeError, match="exists only in a library"):
        Memory().address(whole(FUNCTION))


def test_memory_ends_with_what_holds_it() -> None:
    memory = Memory()
    first = memory.address(WHOLE)
    assert memory.address(WHOLE) == first != MEMORY.address(WHOLE)
    assert memory.address("text") == memory.address("text")
    assert memory.address(Several("int64", [1])) != memory.address(Several("int64", [1]))
