"""Compiles operators before their first use: `ortops.warmup`."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ortops.compute import compute
from ortops.operators import BY_NAME, OPERATORS
from ortops.shapes import Shape
from ortops.spec import ELEMENT_DTYPES, MAX_RANK, RANK, AttributeValue, Operator

FLOAT_TYPES = ("float16", "bfloat16", "float", "double")


def warmup(
    operators: Iterable[str] | None = None, types: Iterable[str] | None = ("float",), **attributes: object
) -> None:
    """Compile the kernels of operators, or load them from disk, so that no later call has to wait for the compiler.

    The function runs every operator on tiny arrays, for each of the element types and for every string value of its
    attributes. Without it, the first call of an operator compiles the kernels of that call.

    A wheel may contain LLVM bitcode of all operators, which becomes machine code in about a second. Otherwise the compiler
    takes about 10 s of processor time for the first operator, and 80 s for all operators in all types; the command
    `python -m ortops warmup` compiles kernels in parallel. The code is stored in `__pycache__` beside the kernels, else in
    the user's cache folder, else in a private folder for temporary files; if $NUMBA_CACHE_DIR is set, only there. A
    container image can be built with it and then runs on the same kind of processor, read-only and as any user:

        RUN python -c "import ortops; ortops.warmup(['RoiAlign_16'], mode='avg')"

    It may be called from several threads, and more than once.

    Args:
        operators: names of operators; None for all.
        types: element types to compile for, out of "float16", "bfloat16", "float" and "double"; None for all. An operator
            is compiled for those that it has.
        attributes: values of string attributes, such as mode="avg", to compile for instead of all values. An operator
            without the attribute is compiled all the same.

    Raises:
        ValueError: an operator or an element type is unknown, or an attribute's value breaks its rule.
        TypeError: `operators` or `types` is a string, no operator has an attribute, or its value is not a string.
    """
    for call in calls(operators, types, **attributes):
        call.run()
    compile_entry_points()


class Call(NamedTuple):
    """A call of an operator that compiles what later calls with these types and string attributes need.

    types: the element type of each type variable.
    """

    operator: Operator
    types: Mapping[str, str]
    attributes: Mapping[str, AttributeValue]

    def run(self) -> None:
        """Run the operator on arrays of zeros. Axes have the length that an attribute gives, else 2."""
        lengths = {**self.attributes, RANK: MAX_RANK}

        def length(axis: int | str) -> int:
            return axis if isinstance(axis, int) else int(lengths.get(axis, 2))

        for equation in self.operator.equations:
            lengths[equation.of] = math.prod(map(length, (equation.axis, *equation.by)))

        def empty(shape: Shape, kind: str) -> np.ndarray[Any, Any]:
            return np.zeros(shape, ELEMENT_DTYPES[self.types.get(kind, kind)])

        inputs = []
        for tensor in self.operator.inputs:
            rank = MAX_RANK if tensor.has_variable_rank else len(tensor.shape)
            array = empty(tuple(length(axis) for axis in tensor.axes(rank)), tensor.type)
            if tensor.element_axes:
                array[...] = [length(axis) for axis in tensor.axes_of_elements(array.size)]
            inputs.append(array)
        outputs = self.operator.outputs
        compute(self.operator, inputs, self.attributes, lambda i, shape: empty(shape, outputs[i].type), (0, 0))
        from ortops.kernels.drivers import load_all  # noqa: TID251 - kernels are compiled here

        load_all()  # what calls on larger arrays need, too

    @property
    def choices(self) -> dict[str, AttributeValue]:
        """The attributes that are strings."""
        return {one.name: self.attributes[one.name] for one in self.operator.attributes if one.choices}


def calls(
    operators: Iterable[str] | None = None, types: Iterable[str] | None = ("float",), **attributes: object
) -> list[Call]:
    """The calls of `warmup`, which takes the same arguments and raises the same errors."""
    chosen = _operators_named(operators)
    floats = _checked_types(chosen, types)
    known = {attribute.name for operator in chosen for attribute in operator.attributes if attribute.choices}
    for name, value in attributes.items():
        if name not in known:
            raise TypeError(f"{name} = {value!r}: must be one of the attributes {_joined(known)}")
    return [
        Call(operator, kinds, given)
        for operator in chosen
        for kinds in _type_combinations(operator, floats)
        for given in _attribute_combinations(operator, attributes)
    ]


def _joined(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))


def _operators_named(names: Iterable[str] | None) -> Sequence[Operator]:
    if names is None:
        return OPERATORS
    if isinstance(names, str):
        raise TypeError(f"operators = {names!r}: must be a list of names")
    names = list(names)
    for name in names:
        if name not in BY_NAME:
            raise ValueError(f"operators has {name!r}: must be among {_joined(BY_NAME)}")
    return [BY_NAME[name] for name in names]


def _checked_types(operators: Sequence[Operator], types: Iterable[str] | None) -> Sequence[str]:
    """The element types to compile for."""
    if types is None:
        return FLOAT_TYPES
    if isinstance(types, str):
        raise TypeError(f"types = {types!r}: must be a list of names")
    types = list(types)
    allowed = {
        kind for operator in operators for kinds in operator.types.values() for kind in kinds if kind in FLOAT_TYPES
    }
    for name in types:
        if name not in allowed:
            raise ValueError(f"types has {name!r}: must be among {_joined(allowed)}, the types of these operators")
    return types


def _type_combinations(operator: Operator, floats: Sequence[str]) -> Iterator[dict[str, str]]:
    """All combinations of allowed element types, one for each type variable; `floats` restricts the floating-point ones."""
    choices = [
        [kind for kind in allowed if kind in floats or kind not in FLOAT_TYPES] for allowed in operator.types.values()
    ]
    for kinds in itertools.product(*choices):
        yield dict(zip(operator.types, kinds, strict=True))


def _attribute_combinations(operator: Operator, fixed: Mapping[str, object]) -> Iterator[dict[str, AttributeValue]]:
    """Checked attributes for all combinations of string values, where `fixed` does not give the value."""
    own = {a.name: fixed[a.name] for a in operator.attributes if a.name in fixed}
    free = [a for a in operator.attributes if a.choices and a.name not in own]
    needed = {names[0]: [1.0] * MAX_RANK for names in operator.needed_attributes}
    for values in itertools.product(*(a.choices for a in free)):
        chosen = dict(zip((a.name for a in free), values, strict=True))
        yield operator.check_attributes({**needed, **own, **chosen})


def compile_entry_points() -> None:
    """Compile what all operators share: readers of a session's values, and the threads of calls outside of sessions."""
    from ortops.engine.allocator import sized_allocator
    from ortops.engine.c_api import ort_api
    from ortops.engine.extensions import OrtError
    from ortops.engine.tensors import Inputs
    from ortops.jit.runners import thread_runner  # noqa: TID251 - `compute` takes it as its runner

    thread_runner(2)
    with contextlib.suppress(OrtError):  # without the direct engine nothing reads them
        Inputs(ort_api(), (), 0).read(0)
        sized_allocator(ort_api())
