# SPDX-License-Identifier: MIT
"""Structs are the same in Python and in compiled code."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any

import pytest

from ortops.compiler import machine_code
from ortops.compiler.compile import compiled, library_of
from ortops.compiler.parallel import call, call_unchecked, pointer_to
from ortops.compiler.scalar import address_of
from ortops.compiler.struct_types import items_at
from ortops.native.elements import Address, Words
from ortops.native.structs import POINTER, Byte, Float32, InPlace, Pointer, Struct, Union, kind_of


class Tensor(Struct):
    """A tensor."""

    rank: int
    dims: Annotated[list[int], 4]
    is_wanted: Byte
    scale: Float32
    offset: float


class Rule(Struct):
    """What a definition says of a tensor."""

    rank: int
    kind: Byte


class Definition(Struct):
    """An operator."""

    name: Annotated[list[Byte], POINTER]
    rules: Annotated[list[Rule], POINTER]
    weights: Annotated[list[float], POINTER]
    factors: Annotated[list[Float32], POINTER]
    spare: Annotated[list[Annotated[Rule, POINTER]], 2]
    others: Annotated[list[Rule] | None, POINTER]
    lengths: Annotated[list[int] | None, POINTER]
    starts: Words


class Node(Struct):
    """A node, perhaps with one after it."""

    definition: Annotated[Definition, POINTER]
    next: Annotated[Node | None, POINTER]
    tensors: Annotated[list[Tensor], 3]
    latest: Tensor
    text: Annotated[list[Byte], 5]
    compute: Address[Callable[[Node, int], int]]


class Number(Union):
    """A float or the integer of its bits."""

    bits: int
    value: float


class Row(Struct):
    """A number, and structs that follow."""

    number: Number
    rules: Annotated[list[Rule], 0]


@compiled
def share(row: Row, i: int) -> int:
    """Read the bits of the double, and set a struct that follows."""
    row.number.value *= 2
    row.rules[i].rank = row.number.bits
    return row.number.bits


@compiled
def read(node: Node, i: int) -> float:
    """A number that each kind of field takes part in."""
    definition, tensor = node.definition, node.tensors[i]
    total = definition.name[1] + definition.rules[1].rank + definition.rules[1].kind + definition.spare[1].rank
    total += tensor.rank + tensor.dims[3] + tensor.is_wanted + node.text[4]
    return total + definition.weights[1] + definition.factors[1] + tensor.scale + tensor.offset


@compiled
def change(node: Node, value: int) -> int:
    """Set each kind of field."""
    tensor, definition = node.tensors[1], node.definition
    tensor.rank, tensor.dims[2], tensor.is_wanted = value, value + 1, value + 256
    tensor.scale, tensor.offset = value / 3, value / 3
    node.text[1], definition.weights[0], definition.factors[0] = value, value / 3, value / 3
    definition.rules[1].kind, definition.spare[0] = value, definition.rules[1]
    node.latest, node.tensors[2], node.next = tensor, tensor, node
    node.latest.rank += 1
    return node.tensors[2].rank


@compiled
def lacks(definition: Definition) -> int:
    """What a definition lacks, a bit for each of two."""
    missing = 1 if definition.others is None else 0
    if definition.lengths is None:
        return missing + 2
    definition.starts, definition.others, definition.lengths = definition.lengths, None, None
    return missing + definition.starts[1]


@compiled
def rank_of(tensors: list[Tensor], node: Node, factor: float) -> float:
    """A C function that others call by its address."""
    return tensors[1].rank * node.tensors[1].rank * factor


@compiled
def call_back(node: Node, tensor: Tensor) -> int:
    """Call functions by their addresses, with structs."""
    address: Address[Callable[[list[Tensor], Node, float], float]] = pointer_to(rank_of)
    first = call(address, (items_at(Tensor, address_of(tensor)), node, 0.5))
    if node.compute == 0:
        return -1
    found: int = call_unchecked(node.compute, (node, 7))
    return first + found


address: Any = ctypes.addressof


def loaded(name: str) -> Any:
    """A compiled C function, which takes and returns words."""
    library = library_of(name, globals()[name], "")
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(machine_code.load(library.emit(library.module)))


def as_float(word: int) -> float:
    number: float
    (number,) = struct.unpack("d", struct.pack("q", word))
    return number


class Example:
    """A node with a definition."""

    def __init__(self) -> None:
        kinds: Any = (Rule * 2, ctypes.c_double * 2, ctypes.c_float * 2)
        self.name = ctypes.create_string_buffer(b"\1\2\3")
        self.rules, self.weights, self.factors = (kind() for kind in kinds)
        parts = (self.name, self.rules, self.weights, self.factors)
        self.definition: Any = Definition(*map(address, parts))
        self.node: Any = Node(address(self.definition))


def test_null_pointers_are_none() -> None:
    definition: Any = Definition()
    numbers, rules = (ctypes.c_int64 * 2)(3, 40), (Rule * 1)()
    lacks = loaded("lacks")
    assert lacks(address(definition), 0, 0) == 3
    definition.others, definition.lengths = rules, numbers
    assert (lacks(address(definition), 0, 0), definition.starts[1]) == (40, 40)
    assert (definition.others, definition.lengths) == (None, None)


def test_fields_are_where_a_c_compiler_puts_them() -> None:
    assert [field.offset for field in Tensor.fields.values()] == [0, 8, 40, 44, 48]
    assert [field.offset for field in Node.fields.values()] == [0, 8, 16, 184, 240, 248]
    assert (ctypes.sizeof(Tensor), ctypes.sizeof(Rule), ctypes.sizeof(Node)) == (56, 16, 256)


def test_compiled_code_reads_what_python_wrote() -> None:
    example = Example()
    example.rules[1].rank, example.rules[1].kind = 10, 200
    example.definition.spare[1] = address(example.rules) + ctypes.sizeof(Rule)
    example.weights[1], example.factors[1] = 0.25, 0.125
    tensor = example.node.tensors[2]
    tensor.rank, tensor.dims[3], tensor.is_wanted, tensor.scale, tensor.offset = 1000, -5000, 255, 0.5, 2.0**-40
    example.node.text[4] = 130
    expected = 2 + 10 + 200 + 10 + 1000 - 5000 + 255 + 130 + 0.25 + 0.125 + 0.5 + 2.0**-40
    assert as_float(loaded("read")(address(example.node), 2, 0)) == expected


def test_python_reads_what_compiled_code_wrote() -> None:
    example = Example()
    assert loaded("change")(address(example.node), 5, 0) == 5
    node = example.node
    for tensor, rank in ((node.tensors[1], 5), (node.tensors[2], 5), (node.latest, 6)):
        assert (tensor.rank, list(tensor.dims), tensor.is_wanted) == (rank, [0, 0, 6, 0], 5)
        assert (tensor.scale, tensor.offset) == (ctypes.c_float(5 / 3).value, 5 / 3)
    assert (list(node.text), node.tensors[0].rank, address(node.next)) == ([0, 5, 0, 0, 0], 0, address(node))
    assert (list(example.weights), list(example.factors)) == ([5 / 3, 0], [ctypes.c_float(5 / 3).value, 0])
    assert list(example.definition.spare) == [address(example.rules) + 16, 0]
    assert [rule.kind for rule in node.definition.rules[:2]] == [0, 5]
    assert (node.definition.weights[0], node.definition.name[2]) == (5 / 3, 3)
    assert (example.rules[1].kind, example.rules[1].rank) == (5, 0)


def test_a_union_and_structs_that_follow() -> None:
    memory = (ctypes.c_int64 * 6)()
    row: Any = Row.from_buffer(memory)
    row.number.value = 0.75
    assert as_float(loaded("share")(address(memory), 1, 0)) == 1.5
    assert (list(memory[1:]), ctypes.sizeof(row)) == ([0, 0, row.number.bits, 0, 0], 8)


def test_functions_get_structs_by_their_addresses() -> None:
    example = Example()
    tensors: Any = (Tensor * 2)()
    tensors[1].rank, example.node.tensors[1].rank = 3, 4
    call_back = loaded("call_back")
    assert call_back(address(example.node), address(tensors), 0) == -1
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    callback = kind(lambda node, number: number if node == address(example.node) else -1)
    example.node.compute = ctypes.cast(callback, ctypes.c_void_p).value
    (six,) = struct.unpack("q", struct.pack("d", 6.0))
    assert call_back(address(example.node), address(tensors), 0) == six + 7


@pytest.mark.parametrize(
    "hint", [str, bool, list[int], Annotated[int, 4], Annotated[int, POINTER, 2], Annotated[int, "x"]]
)
def test_a_field_of_another_type_is_refused(hint: Any) -> None:
    with pytest.raises(
        TypeError, match="must be int, float, Byte, Float32, a struct, or a list or an address of these"
    ):
        kind_of(hint)


def test_kinds_nest() -> None:
    rules = Annotated[list[Annotated[list[Annotated[Rule, POINTER]], POINTER]], 2]
    assert kind_of(rules) == InPlace(Pointer(Pointer(Rule, False), True), 2)


def test_structs_need_no_compiler() -> None:
    code = "import sys, ortops.native.structs; print({'numba', 'llvmlite'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"  # noqa: S603
