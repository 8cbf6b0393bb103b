"""Shrink a failing case: try changes that make it smaller, and keep those after which it still fails the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from conformance.case import Array, Case
from conformance.fuzz.check import Failure
from ortops.spec import AttributeValue, Tensor

MOST_TRIES = 600  # the most cases that are run to shrink one
MOST_ELEMENTS = 40  # tensors of at most so many elements are simplified element by element
MOST_SINGLE = 16  # about so many entries along an axis are tried alone

MOST_LENGTH = 2000
"""An axis whose length is an element of a tensor is shortened only if it is at most this long: invalid ones may be huge."""

Retry = Callable[[Case], object]


def shrink(failure: Failure, retry: Retry, most_tries: int = MOST_TRIES) -> Failure:
    """Return the smallest failure of the same kind that was found; `retry` returns a `Failure` for a case that fails."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for step in STEPS:
            candidates = step(failure.case)
            while most_tries > 0 and (case := next(candidates, None)) is not None:
                most_tries -= 1
                again = retry(case)
                if isinstance(again, Failure) and again.kind == failure.kind:
                    failure, is_smaller = again, True
                    candidates = step(failure.case)
    return failure


def _fewer_outputs(case: Case) -> Iterator[Case]:
    yield from (replace(case, outputs=(output,)) for output in case.outputs if len(case.outputs) > 1)


def _fewer_inputs(case: Case) -> Iterator[Case]:
    for name in [tensor.name for tensor, _ in _tensors(case) if tensor.optional]:
        yield replace(case, inputs={n: a for n, a in case.inputs.items() if n != name})


def _fewer_leading_axes(case: Case) -> Iterator[Case]:
    for tensor, array in _tensors(case):
        if tensor.max_leading_ones and len(tensor.shape) < array.ndim and array.shape[0] == 1:
            yield _with_inputs(case, {tensor.name: array[0]})


def _default_attributes(case: Case) -> Iterator[Case]:
    for attribute in case.definition.attributes:
        if attribute.name in case.attributes and not attribute.required:
            yield replace(case, attributes={n: v for n, v in case.attributes.items() if n != attribute.name})


def _simpler_attributes(case: Case) -> Iterator[Case]:
    for name, value in case.attributes.items():
        for simpler in _simpler(value):
            yield replace(case, attributes={**case.attributes, name: simpler})


def _simpler(value: AttributeValue) -> Iterator[AttributeValue]:
    """Yield simpler values than this one, by an order without cycles."""
    if isinstance(value, tuple):
        for i, one in enumerate(value):
            for simpler in _simpler(one):
                yield (*value[:i], simpler, *value[i + 1 :])
    elif isinstance(value, int):
        yield from (simpler for simpler in (0, 1, 2) if abs(value) > simpler)
    elif isinstance(value, float) and np.isfinite(value):
        numbers = (0.0, 1.0, 0.5, float(np.round(value)), float(np.round(value * 4) / 4), float(np.round(value, 2)))
        yield from (simpler for simpler in numbers if _length(simpler) < _length(value))


def _length(value: float) -> tuple[int, float]:
    """A sort key of simplicity: the number of characters of a number, and its absolute value."""
    return len(repr(float(value)).strip("-")) + (value < 0), abs(value)


def _fewer_axes(case: Case) -> Iterator[Case]:
    """Remove one axis from all tensors of variable rank."""
    for axis in range(max((array.ndim for tensor, array in _tensors(case) if tensor.has_variable_rank), default=0)):
        changed = {}
        for tensor, array in _tensors(case):
            if tensor.has_variable_rank and array.ndim > max(axis, 1) and array.shape[axis]:
                changed[tensor.name] = array.take(0, axis)
            elif tensor.element_axes and array.ndim == 1 and len(array) > max(axis, 1):
                changed[tensor.name] = np.delete(array, axis)
        lists = {n: v[:axis] + v[axis + 1 :] for n, v in case.attributes.items() if isinstance(v, tuple) and v}
        yield replace(_with_inputs(case, changed), attributes={**case.attributes, **lists})


def _shorter_axes(case: Case) -> Iterator[Case]:
    """Shorten one named axis, in every tensor that has it."""
    lengths: dict[str, int] = {}
    for tensor, name, _, length in _named_axes(case):
        lengths.setdefault(name, 0 if tensor.element_axes and length > MOST_LENGTH else length)
    for name, length in lengths.items():
        # Try each half, single entries, and all entries but one.
        few = range(0, length, max(length // MOST_SINGLE, 1))
        keeps = [[*range(length // 2)], [*range(length // 2, length)], *([i] for i in few)]
        for keep in [*keeps, *([*range(i), *range(i + 1, length)] for i in few)]:
            if len(keep) < length and (keep or name == "num_rois"):
                yield _kept(case, name, length, keep)


def _named_axes(case: Case) -> Iterator[tuple[Tensor, str, int, int]]:
    """Yield the tensor, name, number and length of every named axis, including those whose length is a tensor's element."""
    for tensor, array in _tensors(case):
        axes: Sequence[int | str] = ()
        if tensor.element_axes and array.ndim == 1:
            axes, lengths = tensor.axes_of_elements(array.size), array.tolist()
        elif not tensor.element_axes and array.ndim in tensor.ranks:
            axes, lengths = tensor.axes(array.ndim), array.shape
        if axes and len(axes) == len(lengths):
            yield from ((tensor, a, i, lengths[i]) for i, a in enumerate(axes) if isinstance(a, str))


def _kept(case: Case, name: str, length: int, keep: Sequence[int]) -> Case:
    """Keep only these entries along the axis of this name and length."""
    changed: dict[str, Array] = {}
    for tensor, axis, place, there in _named_axes(case):
        array = case.inputs[tensor.name]
        if axis == name and tensor.element_axes:
            changed[tensor.name] = array.copy()
            changed[tensor.name][place] = len(keep)
        elif axis == name and there == length:
            changed[tensor.name] = array.take(np.array(keep, np.int64), place)
    for tensor, array in _tensors(case):
        if name == "N" and array.dtype.kind in "iu" and not tensor.element_axes:
            changed[tensor.name] = _renumbered(array, keep)
    if name == "N" and all(array.dtype.kind not in "iu" for array in case.inputs.values()):
        # The RoIs begin with batch ids.
        for tensor, array in _tensors(case):
            if isinstance(tensor.shape[-1], int) and array.ndim == 2:
                changed[tensor.name] = np.concatenate([_renumbered(array[:, :1], keep), array[:, 1:]], axis=1)
    return _with_inputs(case, changed)


def _renumbered(images: Array, keep: Sequence[int]) -> Array:
    """Renumber images after only those in `keep` are left; indices of removed images stay as they are."""
    numbers = np.where(np.isin(images, keep), np.searchsorted(keep, images), images)
    return numbers.astype(images.dtype)


def _in_float(case: Case) -> Iterator[Case]:
    """Convert the case to float, which most runtimes support."""
    if case.element_type != "float":
        yield _with_inputs(case, {n: a.astype(np.float32) for n, a in case.inputs.items() if a.dtype.kind not in "iu"})


def _simpler_tensors(case: Case) -> Iterator[Case]:
    """Simplify all elements of a tensor at once."""
    ways: Sequence[Callable[[Array], Array]] = (
        np.zeros_like,
        np.ones_like,
        np.round,
        lambda a: np.round(a * 4) / 4,
        lambda a: np.round(a * 32) / 32,
    )
    for tensor, array in _tensors(case):
        for way in ways if array.size and not tensor.element_axes else ():
            simpler = way(array)
            if _weight(simpler) < _weight(array):
                yield _with_inputs(case, {tensor.name: simpler.astype(array.dtype)})


def _simpler_elements(case: Case) -> Iterator[Case]:
    """Simplify one element of a tensor."""
    for tensor, array in _tensors(case):
        for i in range(array.size if array.size <= MOST_ELEMENTS and not tensor.element_axes else 0):
            for simpler in _simpler(array.flat[i].item() if array.dtype.kind in "iu" else float(array.flat[i])):
                changed = array.copy()
                changed.flat[i] = simpler
                if changed.flat[i] != array.flat[i]:
                    yield _with_inputs(case, {tensor.name: changed})


def _tensors(case: Case) -> list[tuple[Tensor, Array]]:
    """The inputs that the case has."""
    return [(tensor, case.inputs[tensor.name]) for tensor in case.definition.inputs if tensor.name in case.inputs]


def _weight(array: Array) -> float:
    """The number of characters of the first 400 elements: a tensor with fewer is simpler."""
    return float(sum(_length(float(value))[0] for value in array.astype(np.float64).ravel()[:400]))


def _with_inputs(case: Case, changed: Mapping[str, Array]) -> Case:
    contiguous = {name: np.ascontiguousarray(array) for name, array in changed.items()}
    return replace(case, inputs={**case.inputs, **contiguous})


_FEWER = (_shorter_axes, _fewer_axes, _fewer_outputs, _fewer_inputs, _fewer_leading_axes)
_SIMPLER = (_default_attributes, _simpler_attributes, _in_float, _simpler_tensors, _simpler_elements)

STEPS: Sequence[Callable[[Case], Iterator[Case]]] = (*_FEWER, *_SIMPLER)
"""The ways to make a case smaller, tried in this order until none helps."""
