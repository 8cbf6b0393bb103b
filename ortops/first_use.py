"""What the first use of an operator costs, paid beforehand."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ortops.compute import compute
from ortops.operators import BY_NAME, OPERATORS
from ortops.shapes import Shape
from ortops.spec import ELEMENT_DTYPES, MOST_RANK, RANK, AttributeValue, Operator

FLOATS = ("float16", "bfloat16", "float", "double")


def warmup(
    operators: Iterable[str] | None = None, types: Iterable[str] | None = ("float",), **attributes: object
) -> None:
    """Compile what the operators need, or load it from disk, so that no later call has to wait.

    Every operator is computed on tiny arrays, for every element type and every string value of its attributes, as a session
    and as a function would do it. Without this, the first call of an operator compiles what that call needs.

    A wheel may hold the machine code of all operators, which is then loaded. Otherwise an operator takes 2 to 4 s of
    processor time to compile for a mode and an element type, all operators in float 15 s, and `python -m ortops warmup`
    compiles the types in parallel. The code is kept in `__pycache__` beside the kernels, else in the user's cache folder,
    else in a private folder for temporary files, or only in $NUMBA_CACHE_DIR where that is set. So a container image may be
    built with it,

        RUN python -c "import ortops; ortops.warmup(['RoiAlign_16'], mode='avg')"

    to run on the same kind of processor, read-only and as any user. May be called from several threads, and again.

    Args:
        operators: their names; without, all.
        types: element types, "float16", "bfloat16", "float" or "double", for the operators that have them; None for all.
        attributes: values of string attributes to restrict it to, for the operators that have them: mode="avg".

    Raises:
        ValueError: an operator or an element type is unknown, or an attribute's value breaks its rule.
        TypeError: a name is given in place of a list, no operator has such an attribute, or its value is no string.
    """
    chosen = _named(operators)
    floats = _lawful(chosen, types)
    known = {attribute.name for operator in chosen for attribute in operator.attributes if attribute.choices}
    for name, value in attributes.items():
        if name not in known:
            raise TypeError(f"{name} = {value!r}: must be one of the attributes {_list(known)}")
    calls = [
        (operator, kinds, given)
        for operator in chosen
        for kinds in _kinds(operator, floats)
        for given in _attributes(operator, attributes)
    ]
    for operator, kinds, given in calls:
        _call(operator, kinds, given)
    _warm_calls()


def _list(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))


def _named(names: Iterable[str] | None) -> Sequence[Operator]:
    if names is None:
        return OPERATORS
    if isinstance(names, str):
        raise TypeError(f"operators = {names!r}: must be a list of names")
    names = list(names)
    for name in names:
        if name not in BY_NAME:
            raise ValueError(f"operators has {name!r}: must be among {_list(BY_NAME)}")
    return [BY_NAME[name] for name in names]


def _lawful(operators: Sequence[Operator], types: Iterable[str] | None) -> Sequence[str]:
    """The element types to compile for."""
    if types is None:
        return FLOATS
    if isinstance(types, str):
        raise TypeError(f"types = {types!r}: must be a list of names")
    types = list(types)
    allowed = {kind for operator in operators for kinds in operator.types.values() for kind in kinds if kind in FLOATS}
    for name in types:
        if name not in allowed:
            raise ValueError(f"types has {name!r}: must be among {_list(allowed)}, the types of these operators")
    return types


def _kinds(operator: Operator, floats: Sequence[str]) -> Iterator[dict[str, str]]:
    """One element type for each type variable, in every lawful way."""
    choices = [
        [kind for kind in allowed if kind in floats or kind not in FLOATS] for allowed in operator.types.values()
    ]
    for kinds in itertools.product(*choices):
        yield dict(zip(operator.types, kinds, strict=True))


def _attributes(operator: Operator, fixed: Mapping[str, object]) -> Iterator[dict[str, AttributeValue]]:
    """Checked attributes with every choice of those that have choices, but for those that are fixed."""
    own = {a.name: fixed[a.name] for a in operator.attributes if a.name in fixed}
    free = [a for a in operator.attributes if a.choices and a.name not in own]
    needed = {name: [1.0] * MOST_RANK for name in operator.either[:1]}
    for values in itertools.product(*(a.choices for a in free)):
        chosen = dict(zip((a.name for a in free), values, strict=True))
        yield operator.check_attributes({**needed, **own, **chosen})


def _call(operator: Operator, kinds: Mapping[str, str], attributes: Mapping[str, AttributeValue]) -> None:
    """Compute the operator on arrays of zeros, the lengths of whose axes are those of the attributes or 1."""
    lengths = {**attributes, RANK: MOST_RANK}

    def length(axis: int | str) -> int:
        return axis if isinstance(axis, int) else int(lengths.get(axis, 1))

    def empty(shape: Shape, kind: str) -> np.ndarray[Any, Any]:
        return np.zeros(shape, ELEMENT_DTYPES[kinds.get(kind, kind)])

    inputs = []
    for tensor in operator.inputs:
        rank = MOST_RANK if tensor.is_open else len(tensor.shape)
        array = empty(tuple(length(axis) for axis in tensor.axes(rank)), tensor.type)
        if tensor.values:
            array[...] = [length(axis) for axis in tensor.valued_axes(array.size)]
        inputs.append(array)
    compute(operator, inputs, attributes, lambda i, shape: empty(shape, operator.outputs[i].type), (0, 0))


def _warm_calls() -> None:
    """What is compiled for calls and not for operators: reading a session's tensors, and threads outside of sessions."""
    from ortops.engine.c_api import OrtError, ort_api
    from ortops.engine.tensors import Inputs
    from ortops.kernels.jit.runners import thread_runner  # noqa: TID251 - what `compute` is given, too

    thread_runner(2)
    with contextlib.suppress(OrtError):  # where the direct engine, which alone reads them, cannot be had
        Inputs(ort_api(), 0).of(0)
