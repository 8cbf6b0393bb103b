"""Compiles operators before their first use: `ortops.warmup`."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ortops.operators import BY_NAME, OPERATORS
from ortops.spec import MAX_RANK, AttributeValue, Operator

if TYPE_CHECKING:
    from ortops.calls.records import Record

FLOAT_TYPES = ("float16", "bfloat16", "float", "double")


def warmup(
    operators: Iterable[str] | None = None, types: Iterable[str] | None = ("float",), **attributes: object
) -> None:
    """Compile operators' kernels, or load them from the cache, so that no later call has to wait for the compiler.

    The function loads all kernels that an operator's nodes may call, for each element type and each string value of its
    attributes. Without it, an operator's first call compiles the kernels that this call needs.

    A wheel may contain LLVM bitcode of all operators, which becomes machine code in about a second. Otherwise the compiler
    takes about 10 s of processor time for the first operator, and 80 s for all operators in all types; the command
    `python -m ortops warmup` compiles kernels in parallel. The code is cached in `__pycache__` next to the kernels, else in
    the user's cache folder, else in a private folder for temporary files; if $NUMBA_CACHE_DIR is set, only there. A
    container image built with this line runs on the same kind of processor, read-only and as any user:

        RUN python -c "import ortops; ortops.warmup(['RoiAlign_16'], mode='avg')"

    You can call it from several threads, and more than once.

    Args:
        operators: names of operators; None for all.
        types: element types to compile for, out of "float16", "bfloat16", "float" and "double"; None for all. Types that an
            operator does not support are skipped.
        attributes: values of string attributes to compile for, such as mode="avg", instead of all values. An operator
            without the attribute is compiled anyway.

    Raises:
        ValueError: an operator or an element type is unknown, or an attribute's value breaks its rule.
        TypeError: `operators` or `types` is a string, no operator has an attribute, or its value is not a string.
    """
    for kernels in nodes(operators, types, **attributes):
        kernels.load()
    compile_entry_points()


class Kernels(NamedTuple):
    """The kernels that an operator's nodes with an element type and string attributes call."""

    operator: Operator
    type: str
    attributes: Mapping[str, AttributeValue]

    @property
    def choices(self) -> dict[str, AttributeValue]:
        """The string attributes."""
        return {one.name: self.attributes[one.name] for one in self.operator.attributes if one.choices}

    @property
    def records(self) -> tuple[Record, ...]:
        """The records of the node's definition, entry, drivers and shape checks."""
        from ortops.calls.definitions import definition_of
        from ortops.calls.node import SHAPES
        from ortops.kernels.entries import KINDS, drivers_for, entry_of  # noqa: TID251 - kernels are compiled here

        drivers = drivers_for(self.operator, self.attributes, KINDS[self.type])
        return (SHAPES, definition_of(self.operator), entry_of(self.operator), *(one for one in drivers if one))

    def load(self) -> None:
        """Compile all kernels, or load them from the cache."""
        from ortops.calls.records import load_all

        for record in self.records:
            load_all(record)


def nodes(
    operators: Iterable[str] | None = None, types: Iterable[str] | None = ("float",), **attributes: object
) -> list[Kernels]:
    """The kernels that `warmup` compiles for the same arguments; raises the same errors."""
    chosen = operators_named(operators)
    floats = checked_types(chosen, types)
    known = {attribute.name for operator in chosen for attribute in operator.attributes if attribute.choices}
    for name, value in attributes.items():
        if name not in known:
            raise TypeError(f"{name} = {value!r}: must be one of the attributes {_joined(known)}")
    return [
        Kernels(operator, kind, given)
        for operator in chosen
        for kind in next(iter(operator.types.values()))
        if kind in floats
        for given in _attribute_combinations(operator, attributes)
    ]


def _joined(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))


def operators_named(names: Iterable[str] | None) -> Sequence[Operator]:
    """The operators with these names; all for None.

    Raises:
        ValueError: a name is unknown.
        TypeError: the argument is a string.
    """
    if names is None:
        return OPERATORS
    if isinstance(names, str):
        raise TypeError(f"operators = {names!r}: must be a list of names")
    names = list(names)
    for name in names:
        if name not in BY_NAME:
            raise ValueError(f"operators has {name!r}: must be among {_joined(BY_NAME)}")
    return [BY_NAME[name] for name in names]


def checked_types(operators: Sequence[Operator], types: Iterable[str] | None) -> Sequence[str]:
    """The element types to compile for; all for None.

    Raises:
        ValueError: a type is unknown, or no operator has it.
        TypeError: the argument is a string.
    """
    if types is None:
        return FLOAT_TYPES
    if isinstance(types, str):
        raise TypeError(f"types = {types!r}: must be a list of names")
    types = list(types)
    tensors = ((operator, one) for operator in operators for one in (*operator.inputs, *operator.outputs))
    allowed = {kind for operator, one in tensors for kind in operator.element_types(one) if kind in FLOAT_TYPES}
    for name in types:
        if name not in allowed:
            raise ValueError(f"types has {name!r}: must be among {_joined(allowed)}, the types of these operators")
    return types


def _attribute_combinations(operator: Operator, fixed: Mapping[str, object]) -> Iterator[dict[str, AttributeValue]]:
    """Checked attributes for all combinations of string values that `fixed` does not give."""
    own = {a.name: fixed[a.name] for a in operator.attributes if a.name in fixed}
    free = [a for a in operator.attributes if a.choices and a.name not in own]
    needed = {names[0]: [1.0] * MAX_RANK for names in operator.needed_attributes}
    for values in itertools.product(*(a.choices for a in free)):
        chosen = dict(zip((a.name for a in free), values, strict=True))
        yield operator.check_attributes({**needed, **own, **chosen})


def compile_entry_points() -> None:
    """Compile the code that all operators share: the reader of a session's tensors, and the threads outside sessions."""
    from ortops.engine.allocator import sized_allocator
    from ortops.engine.c_api import ort_api
    from ortops.engine.extensions import OrtError
    from ortops.engine.tensors import Inputs
    from ortops.jit.runners import thread_runner  # noqa: TID251 - `compute` takes it as its runner

    thread_runner(2)
    with contextlib.suppress(OrtError):  # without the direct engine nothing reads tensors
        Inputs(ort_api(), (), 0).read(0)
        sized_allocator(ort_api())
