"""From a failing case to a small one that fails in the same way: each change that keeps the failure is kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import Array, Case
from conformance.fuzz.check import Failure
from ortops.spec import AttributeValue, Tensor

MOST_TRIES = 600
"""Cases that are asked to shrink one."""

MOST_ELEMENTS = 40
"""Of a tensor of which each number is made simpler by itself."""

MOST_SINGLE = 16
"""Entries along an axis that are tried by themselves, about."""

MOST_LENGTH = 2000
"""Of an axis that a tensor's value says; the lengths of wrong ones are not tried one by one."""

Retry = Callable[[Case], object]


def shrink(failure: Failure, retry: Retry, most_tries: int = MOST_TRIES) -> Failure:
    """The smallest failure of the same kind that was found.

    Args:
        failure: where to begin.
        retry: asks a case, and returns a `Failure` where it fails.
        most_tries: how many cases are asked.
    """
    tries = 0
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidates in STEPS:
            found: Failure | None = failure
            while found is not None and tries < most_tries:
                found = None
                for case in candidates(failure.case):
                    tries += 1
                    again = retry(case)
                    if isinstance(again, Failure) and again.kind == failure.kind:
                        found = failure = again
                        is_smaller = True
                        break
                    if tries >= most_tries:
                        return failure
        if tries >= most_tries:
            break
    return failure


def _fewer_outputs(case: Case) -> Iterator[Case]:
    if len(case.outputs) > 1:
        for output in case.outputs:
            yield replace(case, outputs=(output,))


def _fewer_inputs(case: Case) -> Iterator[Case]:
    for tensor in case.definition.inputs:
        if tensor.optional and tensor.name in case.inputs:
            yield replace(case, inputs={n: a for n, a in case.inputs.items() if n != tensor.name})


def _fewer_leading_axes(case: Case) -> Iterator[Case]:
    for tensor in case.definition.inputs:
        array = case.inputs.get(tensor.name)
        if array is not None and tensor.leading and len(tensor.shape) < array.ndim and array.shape[0] == 1:
            yield _with_input(case, tensor.name, array[0])


def _default_attributes(case: Case) -> Iterator[Case]:
    for name in case.attributes:
        yield replace(case, attributes={n: v for n, v in case.attributes.items() if n != name})


def _simpler_attributes(case: Case) -> Iterator[Case]:
    for name, value in case.attributes.items():
        for simpler in _simpler(value):
            yield replace(case, attributes={**case.attributes, name: simpler})


def _simpler(value: AttributeValue) -> Iterator[AttributeValue]:
    """Simpler values than this one; none of them leads back to it."""
    if isinstance(value, tuple):
        for i, one in enumerate(value):
            for simpler in _simpler(one):
                yield (*value[:i], simpler, *value[i + 1 :])
    elif isinstance(value, int):
        yield from (simpler for simpler in (0, 1, 2) if abs(value) > simpler)
    elif isinstance(value, float):
        yield from _simpler_number(value)


def _simpler_number(value: float) -> Iterator[float]:
    if not np.isfinite(value):
        return
    rank = _length(value)
    for simpler in (0.0, 1.0, 0.5, float(np.round(value)), float(np.round(value * 4) / 4), float(np.round(value, 2))):
        if _length(simpler) < rank:
            yield simpler


def _length(value: float) -> tuple[int, float]:
    """How long a number is to write, by which one is simpler than another."""
    return len(repr(float(value)).strip("-")) + (value < 0), abs(value)


def _fewer_axes(case: Case) -> Iterator[Case]:
    """Of tensors whose rank is open: one axis less."""
    open_inputs = [t for t in case.definition.inputs if t.is_open and t.name in case.inputs]
    if not open_inputs:
        return
    for axis in range(max(case.inputs[t.name].ndim for t in open_inputs)):
        inputs = dict(case.inputs)
        for tensor in case.definition.inputs:
            array = inputs.get(tensor.name)
            if array is not None and tensor.is_open and array.ndim > max(axis, 1) and array.shape[axis]:
                inputs[tensor.name] = np.ascontiguousarray(array.take(0, axis))
            elif array is not None and tensor.values and array.ndim == 1 and len(array) > max(axis, 1):
                inputs[tensor.name] = np.delete(array, axis)
        lists = {n: v[:axis] + v[axis + 1 :] for n, v in case.attributes.items() if isinstance(v, tuple) and v}
        yield replace(case, inputs=inputs, attributes={**case.attributes, **lists})


def _shorter_axes(case: Case) -> Iterator[Case]:
    """One named axis shorter, in every tensor that has it."""
    for name in _axis_names(case):
        length = _length_of(case, name)
        if length is None or length < 1:
            continue
        # Each half; single entries, which differ; all but one of them.
        few = range(0, length, max(length // MOST_SINGLE, 1))
        keeps = [[*range(length // 2)], [*range(length // 2, length)]] + [[i] for i in few if length > 1]
        for keep in [*keeps, *([*range(i), *range(i + 1, length)] for i in few)]:
            if len(keep) < length and (keep or name == "num_rois"):
                yield _kept(case, name, keep)


def _axis_names(case: Case) -> list[str]:
    names: dict[str, None] = {}
    for tensor in case.definition.inputs:
        if tensor.name in case.inputs:
            names |= dict.fromkeys(str(a) for a in _axes(tensor, case.inputs[tensor.name]) if isinstance(a, str))
            names |= dict.fromkeys(map(str, _valued(tensor, case.inputs[tensor.name])))
    return list(names)


def _axes(tensor: Tensor, array: Array) -> tuple[int | str, ...]:
    return tensor.axes(array.ndim) if array.ndim in tensor.ranks and not tensor.values else ()


def _valued(tensor: Tensor, array: Array) -> tuple[int | str, ...]:
    axes = tensor.valued_axes(array.size) if tensor.values else ()
    return axes if array.ndim == 1 and len(axes) == array.size else ()


def _length_of(case: Case, name: str) -> int | None:
    for tensor in case.definition.inputs:
        array = case.inputs.get(tensor.name)
        if array is not None and name in _axes(tensor, array):
            return int(array.shape[_axes(tensor, array).index(name)])
        if array is not None and name in _valued(tensor, array):
            value = int(array[_valued(tensor, array).index(name)])
            return value if value <= MOST_LENGTH else None
    return None


def _kept(case: Case, name: str, keep: Sequence[int]) -> Case:
    inputs, length = dict(case.inputs), _length_of(case, name)
    for tensor in case.definition.inputs:
        array = inputs.get(tensor.name)
        if array is None:
            continue
        axes, valued = _axes(tensor, array), _valued(tensor, array)
        if name in axes and array.shape[axes.index(name)] == length:
            inputs[tensor.name] = np.ascontiguousarray(array.take(np.array(keep, np.int64), axes.index(name)))
        if name in valued:
            inputs[tensor.name] = array.copy()
            inputs[tensor.name][valued.index(name)] = len(keep)
        if name == "N" and array.dtype.kind in "iu" and not tensor.values:
            inputs[tensor.name] = np.where(np.isin(array, keep), np.searchsorted(keep, array), array).astype(
                array.dtype
            )
    return replace(case, inputs=inputs)


def _in_float(case: Case) -> Iterator[Case]:
    """In float, the type that most runtimes have."""
    if case.element_type != "float":
        floats = {n: a.astype(np.float32) for n, a in case.inputs.items() if a.dtype.kind not in "iu"}
        yield replace(case, inputs={**case.inputs, **floats})


def _simpler_tensors(case: Case) -> Iterator[Case]:
    """All numbers of a tensor at once."""
    ways: Sequence[Callable[[Array], Array]] = (
        np.zeros_like,
        np.ones_like,
        np.round,
        lambda a: np.round(a * 4) / 4,
        lambda a: np.round(a * 32) / 32,
    )
    for name, array in _data(case):
        for way in ways:
            simpler = way(array)
            if _weight(simpler) < _weight(array):
                yield _with_input(case, name, simpler.astype(array.dtype))


def _simpler_elements(case: Case) -> Iterator[Case]:
    """One number of a tensor."""
    for name, array in _data(case):
        for i in range(array.size if array.size <= MOST_ELEMENTS else 0):
            for simpler in _simpler(array.flat[i].item() if array.dtype.kind in "iu" else float(array.flat[i])):
                changed = array.copy()
                changed.flat[i] = simpler
                if changed.flat[i] != array.flat[i]:
                    yield _with_input(case, name, changed)


def _data(case: Case) -> Iterator[tuple[str, Array]]:
    shapes = {tensor.name for tensor in case.definition.inputs if tensor.values}
    yield from ((name, array) for name, array in case.inputs.items() if name not in shapes and array.size)


def _weight(array: Array) -> float:
    """How much there is to write: less is simpler."""
    return float(sum(_length(float(value))[0] for value in itertools.islice(array.astype(np.float64).flat, 400)))


def _with_input(case: Case, name: str, array: Array) -> Case:
    inputs: Mapping[str, Any] = {**case.inputs, name: np.ascontiguousarray(array)}
    return replace(case, inputs=inputs)


STEPS: Sequence[Callable[[Case], Iterator[Case]]] = (
    _shorter_axes,
    _fewer_axes,
    _fewer_outputs,
    _fewer_inputs,
    _fewer_leading_axes,
    _default_attributes,
    _simpler_attributes,
    _in_float,
    _simpler_tensors,
    _simpler_elements,
)
"""In this order, over and over until none helps."""
