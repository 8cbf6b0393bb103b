"""Make a random change to a case that usually makes it invalid; the reference decides whether it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from conformance.case import Case
from ortops.spec import Attribute, AttributeValue

NUMBERS = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0)
INTEGERS = (-1, 0, -(2**31), 2, 2**32)
FAR_INDICES = (-1, 2**31, 2**32, -(2**63), 2**63 - 1)
LARGE_LENGTHS = ("output_height", "output_width", "output_sizes", "pooled_shape", "sampling_ratio")
"""Attributes whose large values are valid, but take memory or time."""

T = TypeVar("T")


def corrupt(case: Case, rng: np.random.Generator) -> Case:
    """Return the case with one random change; its twin is the unchanged case."""
    change = pick(rng, (_attribute, _attribute, _data, _data, _shape, _shape, _missing))
    return replace(change(case, rng), note="a random case with one thing changed", twin=replace(case, note=""))


def pick(rng: np.random.Generator, choices: Sequence[T]) -> T:
    """One of the choices, uniformly."""
    return choices[int(rng.integers(len(choices)))]


def _attribute(case: Case, rng: np.random.Generator) -> Case:
    """Change the value of an attribute, usually to an invalid one."""
    attribute = pick(rng, case.definition.attributes)
    return replace(case, attributes={**case.attributes, attribute.name: _wrong_value(attribute, case, rng)})


def _wrong_value(attribute: Attribute, case: Case, rng: np.random.Generator) -> AttributeValue:
    if attribute.type == "STRING":
        return pick(rng, ("", "median", attribute.default.upper(), attribute.default + " ", "bilinear"))
    integers = INTEGERS[:4] if attribute.name in LARGE_LENGTHS else INTEGERS
    value = pick(rng, integers if attribute.type.startswith("INT") else NUMBERS)
    given = list(case.attributes.get(attribute.name, ())) if attribute.is_list else []
    if not given:
        return (value,) if attribute.is_list else value
    if rng.random() < 0.3:
        return tuple(given[:-1] if rng.random() < 0.5 else [*given, given[-1]])
    given[int(rng.integers(len(given)))] = value
    return tuple(given)


def _data(case: Case, rng: np.random.Generator) -> Case:
    """Replace one element of an index, a RoI or a shape by a number that is usually invalid there."""
    known = [t for t in case.definition.inputs if t.name in case.inputs and case.inputs[t.name].size]
    # RoIs are the tensors whose last length is fixed.
    known = [
        t for t in known if t.element_axes or case.inputs[t.name].dtype.kind in "iu" or isinstance(t.shape[-1], int)
    ]
    if not known:
        return _attribute(case, rng)
    tensor = pick(rng, known)
    array = case.inputs[tensor.name].copy()
    numbers: Sequence[float] = NUMBERS[:3]
    if tensor.element_axes:
        numbers = (-1, 0, 2, -(2**63))
    elif not any(a.dtype.kind in "iu" for a in case.inputs.values()):
        numbers = NUMBERS  # RoIs that begin with a batch id
    elif array.dtype.kind in "iu":
        images = next((a.shape[0] for a in case.inputs.values() if a.ndim == 4), 1)
        allowed = np.iinfo(array.dtype)
        numbers = [i for i in (images, *FAR_INDICES) if allowed.min <= i <= allowed.max]
    number = pick(rng, numbers)
    array.flat[int(rng.integers(array.size))] = number
    return replace(case, inputs={**case.inputs, tensor.name: array})


def _shape(case: Case, rng: np.random.Generator) -> Case:
    """Change the rank or a length of a tensor."""
    tensor = pick(rng, [t for t in case.definition.inputs if t.name in case.inputs])
    array = case.inputs[tensor.name]
    axis = int(rng.integers(array.ndim))
    half, none = array.take(range(array.shape[axis] // 2), axis), array.take([], axis)
    first = [array.take(0, axis)] if array.shape[axis] else []
    changed = pick(rng, [array[None], array.reshape(-1), np.concatenate([array, array], axis), half, none, *first])
    # No valid tensor here has more than 5 axes, and not every runtime takes a scalar.
    changed = changed if 0 < changed.ndim < 6 else array.reshape(-1)
    return replace(case, inputs={**case.inputs, tensor.name: np.ascontiguousarray(changed)})


def _missing(case: Case, rng: np.random.Generator) -> Case:
    """Leave out an optional input, or change the shape of a tensor if there is none."""
    optional = [t.name for t in case.definition.inputs if t.optional and t.name in case.inputs]
    if not optional:
        return _shape(case, rng)
    return replace(case, inputs={name: array for name, array in case.inputs.items() if name != optional[0]})
