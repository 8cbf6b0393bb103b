# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random cases as a strategy of hypothesis, which draws and shrinks them.

A share of the cases is exact: coordinates and all intermediate numbers are short binary fractions, so that samples lie
exactly on borders and pixels, and numbers of samples are exactly whole. The other cases have arbitrary numbers.

At most two axes of a case are as long as in practice, because the reference computes every sample in Python. A case that
would take too long is drawn again. A random change makes some cases invalid, or not: the reference decides.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import Phase, Verbosity, find, reject, settings
from hypothesis.errors import Flaky, NoSuchExample

from conformance.case import Case
from conformance.families import family_of
from conformance.families.random_draw import RandomDraw
from conformance.fuzz.check import BY_REFERENCE
from ortops.operators.asked import OPERATORS
from ortops.spec import ELEMENT_DTYPES, Attribute, AttributeValue, Operator

EXACT, CORRUPT, LEFT_OUT, WILD = 0.35, 0.15, 0.1, 0.3
"""The shares of exact cases, of corrupted cases, of attributes that are left out, and of valid cases that may have
infinities, NaN and numbers at either end of their type's range."""

ROUND = 32
"""The number of cases in a search: in a longer search hypothesis varies earlier draws, which finds less."""

MAX_WORK = 15_000
"""The most samples that the reference computes for a case, which takes 0.1 to 0.2 s."""


NUMBERS = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0)
INTEGERS = (-1, 0, -(2**31), 2, 2**32)
FAR_INDICES = (-1, 2**31, 2**32, -(2**63), 2**63 - 1)
LARGE_LENGTHS = ("output_height", "output_width", "output_sizes", "pooled_shape", "sampling_ratio")
"""Attributes whose large values are valid, but take memory or time."""


@st.composite
def cases(draw: Callable[[Any], Any], names: Sequence[str], place: str) -> Case:
    """Cases of the named operators, or of all; `place` is the end of their ids."""
    choices = RandomDraw(draw)
    operator = choices.choice([operator for operator in OPERATORS if not names or operator.name in names])
    is_corrupt = choices.chance(CORRUPT)
    case = _case(draw, operator, f"{operator.function}/fuzz/{place}", no_extremes=is_corrupt)
    if family_of(operator).work(case) > MAX_WORK:
        reject()
    return corrupt(case, choices) if is_corrupt else case


def _case(draw: Callable[[Any], Any], operator: Operator, id_: str, *, no_extremes: bool) -> Case:
    before = RandomDraw(draw)
    types = {variable: before.choice(allowed) for variable, allowed in operator.types.items()}
    dtype = ELEMENT_DTYPES[next(iter(types.values()))]
    choices = RandomDraw(draw, before.chance(EXACT), no_extremes or not before.chance(WILD), dtype)
    attributes, inputs, outputs = family_of(operator).random_case(choices, operator)
    required = {attribute.name for attribute in operator.attributes if attribute.required}
    dtypes = {t.name: ELEMENT_DTYPES[types.get(t.type, t.type)] for t in operator.inputs if t.name in inputs}
    with np.errstate(over="ignore", invalid="ignore"):
        typed = {name: inputs[name].astype(dtype) for name, dtype in dtypes.items()}
    return Case(
        id=id_,
        source=BY_REFERENCE,
        operator=operator.name,
        attributes={n: v for n, v in attributes.items() if n in required or not choices.chance(LEFT_OUT)},
        inputs=typed,
        outputs=outputs,
        note="a random case",
    )


def search(names: Sequence[str], place: str, seed: str, count: int, is_meant: Callable[[Case], bool]) -> None:
    """Draw at most `count` cases until `is_meant` is true for one, and shrink it. The same seed draws the same cases."""
    chosen = settings(
        max_examples=count,
        phases=[Phase.generate, Phase.shrink],
        deadline=None,
        database=None,
        derandomize=False,
        verbosity=Verbosity.quiet,
    )
    # A case that does not repeat, or not in time, is flaky to hypothesis.
    with contextlib.suppress(NoSuchExample, Flaky):
        find(cases(names, place), is_meant, settings=chosen, random=random.Random(seed))  # noqa: S311  # not for secrets


def some_cases(seed: int, count: int, names: Sequence[str] = ()) -> list[Case]:
    """Random cases of the named operators, or of all, at most `count`. The same seed draws the same cases."""
    drawn: list[Case] = []

    def is_meant(case: Case) -> bool:
        drawn.append(case)
        return False

    for first in range(0, count, ROUND):
        search(names, f"{seed}/{first // ROUND}", f"{seed}/{first // ROUND}/0", min(ROUND, count - first), is_meant)
    return drawn


def corrupt(case: Case, draw: RandomDraw) -> Case:
    """Return the case with one random change; its twin is the unchanged case."""
    changes = _attribute, _attribute, _data, _data, _shape, _shape, _missing
    change = draw.choice(changes if case.definition.attributes else changes[2:])
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
