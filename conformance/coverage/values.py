"""Counts of the attribute values, types and sizes of the cases, by class of values."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.case import Case
from ortops.operators import OPERATORS
from ortops.spec import Attribute, Operator

ABSENT, NO_VALUES = "absent", "no values"

INTEGERS: Mapping[str, int] = {"negative": -1, "0": 0, "1": 1, "2": 2, "3 to 2^16": 3, "above 2^16": 2**20}
NUMBERS: Mapping[str, float] = {
    "negative": -0.75,
    "0": 0.0,
    "power of two below 1": 0.25,
    "below 1": 0.3,
    "1": 1.0,
    "power of two above 1": 2.0,
    "above 1": 1.3,
    "beyond 2^24": 2.0**30,
    "not finite": math.inf,
}
"""Classes of values, each with a member that shows whether the class is legal."""


@dataclass(frozen=True, slots=True)
class Line:
    """The number of an operator's cases with one class of values.

    thing: the name of an attribute, or `type`.
    value: the class.
    answered: the number of cases that expect values. refused: the number of cases that expect an error.
    is_legal: whether a case that expects values could have it.
    """

    thing: str
    value: str
    answered: int
    refused: int
    is_legal: bool

    @property
    def is_gap(self) -> bool:
        """Whether the class is legal and no case that expects values has it."""
        return self.is_legal and not self.answered


def lines(operator: Operator, cases: Iterable[Case]) -> list[Line]:
    """All counts for an operator."""
    own = [case for case in cases if case.operator == operator.name]
    answered = [case for case in own if case.expects_error is None]
    refused = [case for case in own if case.expects_error is not None]
    made = [line for attribute in operator.attributes for line in _of_attribute(attribute, answered, refused)]
    types = operator.element_types(operator.inputs[0])
    return [*made, *_of("type", (case.element_type for case in answered), types)]


def by_operator(cases: Sequence[Case]) -> dict[str, list[Line]]:
    """The counts for every operator, by its name, which includes the version."""
    return {operator.name: lines(operator, cases) for operator in OPERATORS}


def _of_attribute(attribute: Attribute, answered: Sequence[Case], refused: Sequence[Case]) -> Iterator[Line]:
    counts = [Counter(label for case in cases for label in _labels(attribute, case)) for cases in (answered, refused)]
    for label in dict.fromkeys((*_classes(attribute), *counts[0], *counts[1])):
        yield Line(attribute.name, label, counts[0][label], counts[1][label], _is_legal(attribute, label))


def _of(thing: str, labels: Iterable[str], legal: Iterable[str]) -> Iterator[Line]:
    counts = Counter(labels)
    for label in dict.fromkeys((*legal, *counts)):
        yield Line(thing, label, counts[label], 0, is_legal=True)


def _kind(attribute: Attribute) -> str:
    """The type of a single value."""
    return attribute.type.removesuffix("S")


def _classes(attribute: Attribute) -> list[str]:
    """All classes of the attribute's values."""
    of_kind: Mapping[str, Iterable[str]] = {"STRING": attribute.choices, "INT": INTEGERS, "FLOAT": NUMBERS}
    return [ABSENT, *([NO_VALUES] if attribute.is_list else []), *of_kind[_kind(attribute)]]


def _labels(attribute: Attribute, case: Case) -> set[str]:
    """The classes of the attribute's value in a case; for a list the classes of all its elements."""
    value = case.attributes.get(attribute.name)
    if value is None:
        return {ABSENT}
    if not isinstance(value, tuple):
        return {label_of(attribute, value)}
    return {label_of(attribute, one) for one in value} or {NO_VALUES}


def label_of(attribute: Attribute, value: Any) -> str:
    """The class of a single value."""
    if _kind(attribute) == "STRING":
        return value if value in attribute.choices else "no such name"
    return _label_of_integer(value) if _kind(attribute) == "INT" else _label_of_number(float(value))


def _label_of_integer(value: int) -> str:
    if value in (0, 1, 2):
        return str(value)
    return "negative" if value < 0 else "3 to 2^16" if value <= 2**16 else "above 2^16"


def _label_of_number(value: float) -> str:
    if not math.isfinite(value):
        return "not finite"
    if value < 0:
        return "negative"
    if value in (0, 1):
        return f"{value:.0f}"
    if value >= 2**24:
        return "beyond 2^24"
    side = "below 1" if value < 1 else "above 1"
    return f"power of two {side}" if math.frexp(value)[0] == 0.5 else side


def _is_legal(attribute: Attribute, label: str) -> bool:
    """Whether the attribute accepts the class, tested with one member."""
    if label in (ABSENT, NO_VALUES):
        return not attribute.required
    value = {"STRING": label, "INT": INTEGERS.get(label), "FLOAT": NUMBERS.get(label)}[_kind(attribute)]
    try:
        attribute.check((value,) if attribute.is_list else value)
    except (TypeError, ValueError):
        return False
    return True


def ranges(function: str, cases: Iterable[Case]) -> dict[str, tuple[float, float]]:
    """The least and the largest value of each axis and attribute over the cases of a function that expect values.

    Other than axes by their names and attributes: `calls` of a session, significant `digits` of attributes as float32,
    `pairs` of a RoI and a channel, and the `side` of a RoI as it is stored, also the `thinnest`, which is above 0.
    """
    found: dict[str, tuple[float, float]] = {}
    for case in cases:
        if case.definition.function == function and case.expects_error is None:
            for name, value in _measured(case):
                least, most = found.get(name, (value, value))
                found[name] = min(least, value), max(most, value)
    return found


@functools.cache
def _digits(value: float) -> int:
    """The number of significant digits that tell a float32 from its neighbours."""
    with np.errstate(over="ignore"):
        return next((n for n in range(1, 9) if np.float32(f"{value:.{n}g}") == np.float32(value)), 9)


def _measured(case: Case) -> Iterator[tuple[str, float]]:
    for attribute in case.definition.attributes:
        value = case.attributes.get(attribute.name, attribute.default)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int | float):
                yield attribute.name, one
                if _kind(attribute) == "FLOAT":
                    yield "digits", _digits(one)
    lengths: dict[int | str, int] = {}
    for name, array in case.inputs.items():
        tensor = next(t for t in case.definition.inputs if t.name == name)
        lengths |= zip(tensor.axes(array.ndim), array.shape, strict=True)
        if tensor.element_axes:
            lengths |= zip(tensor.axes_of_elements(array.size), array.tolist(), strict=True)
        elif tensor.axes(2) in (("num_rois", 4), ("num_rois", 5)) and array.size:
            numbers = array.astype(np.float64)
            is_rotated = case.definition.family == "roi_align_rotated"
            with np.errstate(over="ignore"):
                sides = numbers[..., 2:4] if is_rotated else numbers[..., -2:] - numbers[..., -4:-2]
            yield from (("side", float(sides.min())), ("side", float(sides.max())))
            if np.any(sides > 0):
                yield "thinnest", float(sides[sides > 0].min())
    yield from ((str(name), length) for name, length in lengths.items() if isinstance(name, str) and name != "rank")
    if "num_rois" in lengths:
        yield "pairs", lengths["num_rois"] * lengths["C"]
    yield "calls", len(case.before) + 1
