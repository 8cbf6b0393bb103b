"""Make a random change to a case, which usually makes it invalid. The reference decides whether it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from conformance.case import Case
from ortops.spec import Attribute, AttributeValue

if TYPE_CHECKING:
    from conformance.families.random_draw import RandomDraw

NUMBERS = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0)
INTEGERS = (-1, 0, -(2**31), 2, 2**32)
FAR_INDICES = (-1, 2**31, 2**32, -(2**63), 2**63 - 1)
LARGE_LENGTHS = ("output_height", "output_width", "output_sizes", "pooled_shape", "sampling_ratio")
"""Attributes whose large values are valid, but take memory or time."""


def corrupt(case: Case, draw: RandomDraw) -> Case:
    """Return the case with one random change; its twin is the unchanged case."""
    change = draw.choice((_attribute, _attribute, _data, _data, _shape, _shape, _missing))
    return replace(change(case, draw), note="a random case with one thing changed", twin=replace(case, note=""))


def _attribute(case: Case, draw: RandomDraw) -> Case:
    """Change the value of an attribute, usually to an invalid one."""
    attribute = draw.choice(case.definition.attributes)
    return replace(case, attributes={**case.attributes, attribute.name: _wrong_value(attribute, case, draw)})


def _wrong_value(attribute: Attribute, case: Case, draw: RandomDraw) -> AttributeValue:
    if attribute.type == "STRING":
        return draw.choice(("", "median", attribute.default.upper(), attribute.default + " ", "bilinear"))
    integers = INTEGERS[:4] if attribute.name in LARGE_LENGTHS else INTEGERS
    value = draw.choice(integers if attribute.type.startswith("INT") else NUMBERS)
    given = list(case.attributes.get(attribute.name, ())) if attribute.is_list else []
    if not given:
        return (value,) if attribute.is_list else value
    if draw.chance(0.3):
        return tuple(given[:-1] if draw.chance(0.5) else [*given, given[-1]])
    given[draw.integer(0, len(given) - 1)] = value
    return tuple(given)


def _data(case: Case, draw: RandomDraw) -> Case:
    """Replace one element of an index, a RoI or a shape by a number that is usually invalid there."""
    known = [t for t in case.definition.inputs if t.name in case.inputs and case.inputs[t.name].size]
    # RoIs are the tensors whose last length is fixed.
    known = [
        t for t in known if t.element_axes or case.inputs[t.name].dtype.kind in "iu" or isinstance(t.shape[-1], int)
    ]
    if not known:
        return _attribute(case, draw)
    tensor = draw.choice(known)
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
    number = draw.choice(numbers)
    array.flat[draw.integer(0, array.size - 1)] = number
    return replace(case, inputs={**case.inputs, tensor.name: array})


def _shape(case: Case, draw: RandomDraw) -> Case:
    """Change the rank or a length of a tensor."""
    tensor = draw.choice([t for t in case.definition.inputs if t.name in case.inputs])
    array = case.inputs[tensor.name]
    axis = draw.integer(0, array.ndim - 1)
    half, none = array.take(range(array.shape[axis] // 2), axis), array.take([], axis)
    first = [array.take(0, axis)] if array.shape[axis] else []
    changed = draw.choice([array[None], array.reshape(-1), np.concatenate([array, array], axis), half, none, *first])
    # No valid tensor here has more than 5 axes, and not every runtime takes a scalar.
    changed = changed if 0 < changed.ndim < 6 else array.reshape(-1)
    return replace(case, inputs={**case.inputs, tensor.name: np.ascontiguousarray(changed)})


def _missing(case: Case, draw: RandomDraw) -> Case:
    """Leave out an optional input; without one, change the shape of a tensor."""
    optional = [t.name for t in case.definition.inputs if t.optional and t.name in case.inputs]
    if not optional:
        return _shape(case, draw)
    return replace(case, inputs={name: array for name, array in case.inputs.items() if name != optional[0]})
