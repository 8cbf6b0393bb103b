"""Records of a library's operators, by which its compiled code registers them (`ortops.library.compiled.registration`)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence

from ortops.calls import shapes
from ortops.calls.definitions import definition_of
from ortops.calls.layout import ATTRIBUTE_WORDS, ATTRIBUTES, DEFINITION, ENTRY, SHAPES
from ortops.calls.layout import LABEL as LABEL_OF_NODE
from ortops.calls.records import FunctionOf, Record, SharedWord, Word
from ortops.compiled_operator import CompiledOperator
from ortops.engine.c_api import OPTIONAL, REQUIRED
from ortops.engine.compiled import allocator, callbacks, inputs
from ortops.engine.compiled import layout as table
from ortops.jit import tasks
from ortops.kernels.entries import KINDS, drivers_of, entry_of
from ortops.library.compiled import interface, layout, registration
from ortops.library.objects import UserFunction
from ortops.spec import DOMAIN, ELEMENT_TYPES, Operator, Tensor

_INFER, _CHECK = FunctionOf(shapes.infer_shapes), FunctionOf(shapes.check_wanted)

_SHAPES = Record("shapes", [_INFER, _CHECK])
"""The functions that infer and check shapes, for all operators."""

_INFERS_OPTIONAL = 1024
"""ONNX Runtime 1.20 to 1.23 crash in shape inference if a node leaves an input or an output out."""


def register_record(name: str, operators: Iterable[Operator], types: Sequence[str], domain: str = DOMAIN) -> Record:
    """The record by which a library registers operators, each in its domain.

    Args:
        name: the record's name.
        operators: the operators.
        types: the floating-point element types that nodes may have. Operators have those of them that they are defined for.
        domain: the name that this project's domain gets.
    """
    domains: dict[str, list[Record]] = {}
    for operator in operators:
        name_of_domain = domain if operator.domain == DOMAIN else operator.domain
        domains.setdefault(name_of_domain, []).extend(_records(operator, tuple(types)))
    words: list[Word] = []
    for number, (name_of_domain, records) in enumerate(domains.items()):
        words += (name_of_domain, Record(f"{name}_operators_{number}", [len(records), *records]))
    size = sum(int(str(record.words[layout.TABLE_WORDS])) for records in domains.values() for record in records)
    return Record(name, [len(domains), size, *words])


def interface_record(operators: Iterable[Operator], types: Sequence[str]) -> Record:
    """The record of the interface, by which hosts find operators and call them (`layout.INTERFACE`)."""
    rows: list[Word] = []
    for operator in operators:
        version = operator.standard[1] if operator.standard and not operator.domain else 0
        for record in _records(operator, tuple(types)):
            rows += (operator.domain, operator.name, version, record)
    fields: dict[str, Word] = {
        "version": layout.VERSION,
        "operators": Record("operators", [len(rows) // layout.OPERATOR_WORDS, *rows]),
        "python": SharedWord("python"),
        "make_node": FunctionOf(interface.make_node),
        "release_node": FunctionOf(interface.release_node),
        "infer_shapes": FunctionOf(interface.infer_shapes),
        "compute": FunctionOf(interface.compute),
        "run_on_threads": FunctionOf(tasks.run_on_threads),
        "infer_shapes_of_arrays": FunctionOf(interface.infer_shapes_of_arrays),
        "infer_by_definition": FunctionOf(shapes.infer_shapes),
        "check_wanted": FunctionOf(shapes.check_wanted),
        "make_table": FunctionOf(interface.make_table),
        "release_table": FunctionOf(registration.release_table),
        "fill_callbacks": FunctionOf(callbacks.fill_callbacks),
        "fill_allocator": FunctionOf(allocator.fill_allocator),
        "describe_inputs": FunctionOf(inputs.describe),
    }
    return Record("interface", [fields[name] for name in layout.INTERFACE])


@functools.cache
def _records(operator: Operator, types: tuple[str, ...]) -> list[Record]:
    """A record for each combination of an operator's element types."""
    kinds = [[kind for kind in allowed if kind not in KINDS or kind in types] for allowed in operator.types.values()]
    return [_record(operator, dict(zip(operator.types, chosen, strict=True))) for chosen in itertools.product(*kinds)]


def _record(operator: Operator, types: Mapping[str, str]) -> Record:
    row, drivers, entry, of_shapes = _entry(operator, types)
    is_optional = any(tensor.optional for tensor in (*operator.inputs, *operator.outputs))
    node: list[Word] = [0] * ATTRIBUTES
    node[DEFINITION], node[ENTRY], node[SHAPES] = definition_of(operator), entry, of_shapes
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
        of_shapes = _SHAPES
        if operator.lengths is not None:
            of_user = FunctionOf(UserFunction(operator, kinds, of_shapes=True))
            of_shapes = Record(f"shapes_{operator.name}", [of_user, _CHECK, _INFER])
        return -1, _NO_DRIVERS, entry, of_shapes
    kind = next(KINDS[one] for one in types.values() if one in KINDS)
    return *_drivers(operator, kind), entry_of(operator), _SHAPES


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
