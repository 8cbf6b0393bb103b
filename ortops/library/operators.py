"""Records of a library's operators, by which its compiled code registers them (`ortops.library.compiled.registration`)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ortops.calls.definitions import definition_of
from ortops.calls.layout import ATTRIBUTE_WORDS, ATTRIBUTES, DEFINITION, ENTRY, SHAPES
from ortops.calls.layout import LABEL as LABEL_OF_NODE
from ortops.calls.node import SHAPES as SHAPES_RECORD
from ortops.calls.node import shapes_with
from ortops.calls.records import FunctionOf, Record, Word
from ortops.compiled_operator import CompiledOperator
from ortops.engine.c_api import OPTIONAL, REQUIRED
from ortops.engine.compiled import layout as table
from ortops.jit.source import Unimported
from ortops.kernels.entries import KINDS, drivers_of, entry_of
from ortops.library.compiled import layout
from ortops.library.objects import UserFunction
from ortops.spec import ELEMENT_TYPES, Operator, Tensor

if TYPE_CHECKING:
    from ortops.library.compiled import registration
else:
    registration = Unimported("library.compiled.registration")

REGISTER = FunctionOf(registration.register)
"""The C function (options, api_base, record) -> status that registers what `record_of` makes."""

_INFERS_OPTIONAL = 1024
"""ONNX Runtime 1.20 to 1.23 crash in shape inference if a node leaves an input or an output out."""


def record_of(name: str, operators: Iterable[Operator], types: Collection[str]) -> Record:
    """The record of operators, each in its domain.

    Args:
        name: the record's name.
        operators: the operators.
        types: the floating-point element types that nodes may have. Operators have those of them that they are defined for.
    """
    domains: dict[str, list[Record]] = {}
    for operator in operators:
        domains.setdefault(operator.domain, []).extend(_records(operator, types))
    words: list[Word] = []
    for number, (domain, records) in enumerate(domains.items()):
        words += (domain, Record(f"{name}_operators_{number}", [len(records), *records]))
    size = sum(int(str(one.words[layout.TABLE_WORDS])) for records in domains.values() for one in records)
    return Record(name, [len(domains), size, *words])


def _records(operator: Operator, types: Collection[str]) -> Iterator[Record]:
    """A record for each combination of an operator's element types."""
    kinds = [[kind for kind in allowed if kind not in KINDS or kind in types] for allowed in operator.types.values()]
    for chosen in itertools.product(*kinds):
        yield _record(operator, dict(zip(operator.types, chosen, strict=True)))


def _record(operator: Operator, types: Mapping[str, str]) -> Record:
    row, drivers, entry, shapes = _entry(operator, types)
    is_optional = any(tensor.optional for tensor in (*operator.inputs, *operator.outputs))
    node: list[Word] = [0] * ATTRIBUTES
    node[DEFINITION], node[ENTRY], node[SHAPES] = definition_of(operator), entry, shapes
    node[LABEL_OF_NODE] = operator.label
    words = _table(operator, types)
    return Record(
        "_".join((operator.name, *types.values())),
        [
            ATTRIBUTES + ATTRIBUTE_WORDS * len(operator.attributes),
            row,
            drivers,
            _INFERS_OPTIONAL if is_optional else 0,
            table.NAME + len(words),
            *node,
            *words,
        ],
    )


def _entry(operator: Operator, types: Mapping[str, str]) -> tuple[int, Record, Record, Record]:
    """The row of the attribute that chooses drivers, or -1, the record of all of them, the entry, and that of shapes."""
    if isinstance(operator, CompiledOperator):
        tensors = (*operator.inputs, *operator.outputs)
        kinds = tuple((tensor.name, types.get(tensor.type, tensor.type)) for tensor in tensors)
        function = FunctionOf(UserFunction(operator, kinds))
        entry = Record(f"entry_{operator.name}", [function, f"out of memory in {operator.label}"])
        shapes = SHAPES_RECORD
        if operator.lengths is not None:
            shapes = shapes_with(FunctionOf(UserFunction(operator, kinds, of_shapes=True)), operator.name)
        return -1, _NO_DRIVERS, entry, shapes
    kind = next(KINDS[one] for one in types.values() if one in KINDS)
    return *_drivers(operator, kind), entry_of(operator), SHAPES_RECORD


_NO_DRIVERS = Record("no_drivers", [0] * layout.DRIVER_WORDS)


@functools.cache
def _drivers(operator: Operator, kind: int) -> tuple[int, Record]:
    """The row of the attribute that chooses drivers, or -1, and the record of all of them."""
    row, drivers = drivers_of(operator)
    words: list[Word] = []
    for one in drivers[kind]:
        words += one
    return row, Record(f"drivers_{operator.name}_{kind}", words)


def _table(operator: Operator, types: Mapping[str, str]) -> list[Word]:
    """The words of an operator's table from NAME on."""
    words: dict[int, Word] = {
        table.NAME: operator.name,
        table.INPUTS: len(operator.inputs),
        table.OUTPUTS: len(operator.outputs),
    }
    sides: tuple[tuple[int, Sequence[Tensor]], ...] = (
        (table.INPUT_TYPE, operator.inputs),
        (table.OUTPUT_TYPE, operator.outputs),
    )
    for first, tensors in sides:
        for i, tensor in enumerate(tensors):
            at = first + i * table.TENSOR_WORDS
            words[at] = ELEMENT_TYPES[types.get(tensor.type, tensor.type)]
            words[at + 1] = OPTIONAL if tensor.optional else REQUIRED
    end = table.TENSORS + table.TENSOR_WORDS * max(len(operator.inputs), len(operator.outputs))
    return [words.get(i, 0) for i in range(table.NAME, end)]
