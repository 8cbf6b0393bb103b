"""Structs are the same in Python and in compiled code."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from typing import Annotated, Any

import pytest

import struct_functions as functions
from ortops.compiler import machine_code
from ortops.compiler.compile import library_of
from ortops.native.structs import POINTER, InPlace, Pointer, kind_of
from struct_functions import Definition, Node, Rule, Tensor

address: Any = ctypes.addressof


def loaded(name: str) -> Any:
    """A compiled C function, which takes and returns words."""
    library = library_of(name, getattr(functions, name), "")
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
    row: Any = functions.Row.from_buffer(memory)
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
