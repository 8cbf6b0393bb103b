"""One random change to a case, most of which make it wrong. Whether it is, the reference says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from conformance.case import Array, Case
from ortops.spec import Attribute, AttributeValue, Tensor

NUMBERS = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0)
WHOLES = (-1, 0, -(2**31), 2, 2**32)
FAR_INDICES = (-1, 2**31, 2**32, -(2**63), 2**63 - 1)
LARGE_LENGTHS = ("output_height", "output_width", "output_sizes", "sampling_ratio")
"""Attributes of which a large value is allowed, and takes memory or time."""

T = TypeVar("T")


def spoil(case: Case, rng: np.random.Generator) -> Case:
    """The case with one change; it is its twin itself."""
    change = _one(rng, (_attribute, _attribute, _data, _data, _shape, _shape, _missing))
    changed: Case = change(case, rng)
    return replace(changed, note="a random case with one thing changed", twin=replace(case, note=""))


def _one(rng: np.random.Generator, choices: Sequence[T]) -> T:
    return choices[int(rng.integers(len(choices)))]


def _attribute(case: Case, rng: np.random.Generator) -> Case:
    attribute = _one(rng, case.definition.attributes)
    return replace(case, attributes={**case.attributes, attribute.name: _wrong_value(attribute, case, rng)})


def _wrong_value(attribute: Attribute, case: Case, rng: np.random.Generator) -> AttributeValue:
    if attribute.type == "STRING":
        return _one(rng, ("", "median", attribute.default.upper(), attribute.default + " ", "bilinear"))
    wholes = WHOLES[:4] if attribute.name in LARGE_LENGTHS else WHOLES
    value = _one(rng, wholes if attribute.type.startswith("INT") else NUMBERS)
    if not attribute.is_list:
        return value
    given = list(case.attributes.get(attribute.name, ()))
    if not given:
        return (value,)
    if rng.random() < 0.3:
        return tuple(given[:-1] if rng.random() < 0.5 else [*given, given[-1]])
    given[int(rng.integers(len(given)))] = value
    return tuple(given)


def _data(case: Case, rng: np.random.Generator) -> Case:
    """A number that does not belong: of an index, of a RoI, of a shape."""
    known = [t for t in case.definition.inputs if t.name in case.inputs and case.inputs[t.name].size]
    known = [t for t in known if t.values or case.inputs[t.name].dtype.kind in "iu" or 4 in t.shape]
    if not known:
        return _attribute(case, rng)
    tensor = _one(rng, known)
    array = case.inputs[tensor.name].copy()
    array.flat[int(rng.integers(array.size))] = _wrong_number(tensor, array, case, rng)
    return _with_input(case, tensor, array)


def _wrong_number(tensor: Tensor, array: Array, case: Case, rng: np.random.Generator) -> Any:
    if tensor.values:
        return _one(rng, (-1, 0, 2, -(2**63)))
    if array.dtype.kind not in "iu":
        return _one(rng, NUMBERS[:3])
    images = next((a.shape[0] for a in case.inputs.values() if a.ndim == 4), 1)
    allowed = np.iinfo(array.dtype)
    return _one(rng, [i for i in (images, *FAR_INDICES) if allowed.min <= i <= allowed.max])


def _shape(case: Case, rng: np.random.Generator) -> Case:
    """A tensor of another rank or with another length."""
    tensor = _one(rng, [t for t in case.definition.inputs if t.name in case.inputs])
    array = case.inputs[tensor.name]
    axis = int(rng.integers(array.ndim))
    ways = [
        array[None],
        array.reshape(-1),
        np.concatenate([array, array], axis),
        array.take(range(array.shape[axis] // 2), axis),
        array.take([], axis),
    ]
    if array.shape[axis]:
        ways.append(array.take(0, axis))
    changed = _one(rng, ways)
    # ONNX's tensors have no more axes than this anywhere here, and a scalar is not an array to every runtime.
    return _with_input(case, tensor, changed if 0 < changed.ndim < 6 else array.reshape(-1))


def _missing(case: Case, rng: np.random.Generator) -> Case:
    """Without an optional input, or with nothing to compute."""
    optional = [t.name for t in case.definition.inputs if t.optional and t.name in case.inputs]
    if not optional:
        return _shape(case, rng)
    return replace(case, inputs={name: array for name, array in case.inputs.items() if name != optional[0]})


def _with_input(case: Case, tensor: Tensor, array: Array) -> Case:
    return replace(case, inputs={**case.inputs, tensor.name: np.ascontiguousarray(array)})
