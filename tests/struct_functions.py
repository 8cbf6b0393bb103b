"""Structs, and C functions with structs, for `test_structs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from ortops.compiler.compile import compiled
from ortops.compiler.parallel import call, call_unchecked, pointer_to
from ortops.compiler.scalar import address_of
from ortops.compiler.struct_types import items_at
from ortops.native.elements import Address, Words
from ortops.native.structs import POINTER, Byte, Float32, Struct, Union


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
