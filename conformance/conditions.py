# SPDX-License-Identifier: MIT OR Apache-2.0
"""What failing cases have in common: the shortest condition that tells them from the cases that pass."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.case import Case, scenario_of
from conformance.cases import case_of
from conformance.outcome import Outcome, Reason, Result

MIN_FAILED = 3
"""With fewer failing cases some condition holds by chance."""

MIN_SCENARIOS = 3
"""How many scenarios must show that a part of a condition matters, and how many must fail for a condition on a number."""

MAX_PARTS = 4
"""The most parts of a condition; it has more than two only if they hold for the same cases."""

MIN_PRECISION, MAX_LEFT = 0.5, 0.3
"""For a condition that some passing cases fulfil, too: the least share of the cases that fulfil it which must fail, and the
largest share of the scenarios with passing cases in which it may hold."""

PAIRS = (("H", "W"), ("output_height", "output_width"))
"""Lengths that are compared with each other."""

MAX_VALUES = 2
"""The most values of a property that a condition names."""

SPECIAL = ("values", "ranges", "empty")
"""Groups of cases whose results hardly depend on the rest: NaN, constant maps, RoIs far from the map, nothing at all."""

Value = Any
"""A word or a number."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A range of numbers, or some words, that a property of a case has.

    values: the smallest and the largest number, or the words.
    """

    name: str
    values: tuple[Value, ...]
    text: str

    def holds(self, case: Case) -> bool:
        """Whether a case fulfils it."""
        value = _properties(case).get(self.name)
        if value is None or isinstance(value, str):
            return value in self.values
        low, high = self.values
        return bool(low <= value <= high)


@functools.cache
def _variant(case: Case) -> Mapping[str, Value]:
    """What distinguishes the cases of one scenario, in words."""
    strings = {a.name: case.attributes.get(a.name, a.default) for a in case.definition.attributes if a.choices}
    return {
        **({"opset": f"opset {case.version}"} if case.definition.standard else {}),
        "type": case.element_type,
        **{name: f"{name} {value}" for name, value in ({**case.definition.constants, **strings}).items()},
        **{t.name: f"{t.name} {'wanted' if t.name in case.outputs else 'not wanted'}" for t in case.definition.outputs},
    }


@functools.cache
def _properties(case: Case) -> Mapping[str, Value]:
    """What a valid case may have in common with others: words, and numbers."""
    properties = dict(_variant(case))
    for attribute in case.definition.attributes:
        name = attribute.name
        properties[f"given {name}"] = f"{name} given" if name in case.attributes else f"no {name}"
        value = case.attributes.get(name, attribute.default)
        if isinstance(value, int | float):
            properties[name] = value
        if isinstance(attribute.default, float):
            properties[f"default {name}"] = (
                f"{name} {'=' if value == attribute.default else '!='} {attribute.default:g}"
            )
    lengths: dict[str, int] = {}
    for tensor in case.definition.inputs:
        name = tensor.name
        if name in case.inputs:
            properties[f"constant {name}"] = f"{'constant' if name in case.initializers else 'variable'} {name}"
            lengths.update(zip(map(str, tensor.shape), case.types[name].shape, strict=False))
            if tensor.element_axes:
                lengths.update(zip(tensor.element_axes, map(int, case.inputs[name]), strict=False))
        if tensor.optional:
            properties[f"given {name}"] = f"{name} given" if name in case.inputs else f"no {name}"
    properties["session"] = "later calls of a session" if case.before else "the first call of a session"
    properties["lengths"] = "symbolic lengths" if case.named_axes else "fixed lengths"
    lengths = {name: n for name, n in lengths.items() if name.isidentifier()}
    properties |= lengths
    properties |= {f"parity of {name}": f"{'odd' if n % 2 else 'even'} {name}" for name, n in lengths.items()}
    for first, second in (pair for pair in PAIRS if {*pair} <= properties.keys()):
        a, b = properties[first], properties[second]
        for sign, opposite, holds in (("=", "!=", a == b), ("<", ">=", a < b), (">", "<=", a > b)):
            properties[f"{first} {sign} {second}"] = f"{first} {sign if holds else opposite} {second}"
    rois = next((t.name for t in case.definition.inputs if t.name in case.inputs and t.shape[-1:] == (4,)), "")
    if rois and case.types[rois].dtype.kind not in "iu":
        starts, ends = np.split(case.inputs[rois].astype(np.float64), 2, axis=-1)
        properties["ends"] = f"{'a' if (starts > ends).any() else 'no'} RoI with swapped ends"
    return properties


def in_common(failed: Sequence[Result], results: Iterable[Result]) -> tuple[str, tuple[Condition, ...]]:
    """The shortest condition that failing cases fulfil and comparable passing ones do not.

    Args:
        failed: the results of cases that fail for the same reason.
        results: all results of the run.

    Returns:
        The condition in words, empty if there is none, and its parts. "Always and only" means that no comparable case that
        passes fulfils it. "Only" means that each part is what some failing cases and passing ones of the same scenario
        differ in, and nothing else; or, with a share, that most of the cases that fulfil it fail, and no other does.
    """
    # The first answers of a session may be those that are wrong.
    failed = [r for r in failed if r.worst or not case_of(r).before] or failed
    if len(failed) < MIN_FAILED or any(case_of(result).expects_error for result in failed):
        return "", ()
    scenarios = {scenario_of(result.id) for result in failed}
    functions = {scenario.partition("/")[0] for scenario in scenarios}
    comparable = [r for r in results if r.id.partition("/")[0] in functions and not case_of(r).expects_error]
    groups = (
        {r.group for r in comparable}
        if all(map(_is_special, failed))
        else {r.group for r in comparable if not _is_special(r)}
    )
    # What is answered wrongly is not refused.
    has_answers = failed[0].reason is Reason.REFUSED
    answered = (r for r in comparable if r.outcome is Outcome.PASSED or (has_answers and r.wrong_output))
    passed = [case_of(r) for r in answered if r.group in groups]
    # A departure from a weaker rule is the same mistake if other variants of its scenario fail.
    departed = [case_of(r) for r in comparable if r.outcome is Outcome.DEPARTED and scenario_of(r.id) in scenarios]
    cases = [*(case_of(result) for result in failed), *departed]
    excluded = {
        part: [not part.holds(case) for case in passed]
        for name in _properties(cases[0])
        for part in _parts(name, cases, passed)
        if isinstance(part.values[0], str) or len(scenarios) >= MIN_SCENARIOS
    }

    def matters(those: Iterable[bool]) -> bool:
        """Whether these passing cases are of enough scenarios."""
        return len({scenario_of(case.id) for case in itertools.compress(passed, those)}) >= MIN_SCENARIOS

    exact = [part for part, out in excluded.items() if all(out) and matters(out)]
    masks = {part: int("".join(map(str, map(int, out))), 2) for part, out in excluded.items() if any(out)}
    for first, second in () if exact else itertools.combinations(masks, 2):
        a, b = excluded[first], excluded[second]
        if masks[first] | masks[second] == 2 ** len(passed) - 1 and all(
            matters(x and not y for x, y in zip(*both, strict=True)) for both in ((a, b), (b, a))
        ):
            exact = [first, second]
            break
    parts = exact or [part for part in excluded if _is_matched(part, cases, passed)]
    if not 0 < len(parts) <= MAX_PARTS:
        return _usual(excluded, cases, passed) if len(scenarios) >= MIN_SCENARIOS else ("", ())
    how = "always and only with" if exact else "only with"
    return f"{how} {' and '.join(part.text for part in parts)}", tuple(parts)


def _usual(
    excluded: Mapping[Condition, Sequence[bool]], failed: Sequence[Case], passed: Sequence[Case]
) -> tuple[str, tuple[Condition, ...]]:
    """The condition that all failing cases and the fewest passing ones fulfil, if these are few: see `in_common`."""
    part = max(excluded, key=lambda part: sum(excluded[part]), default=None)
    if part is None:
        return "", ()
    left = [case for case, out in zip(passed, excluded[part], strict=True) if not out]
    share = len(failed) / (len(failed) + len(left))
    scenarios, of_left = ({scenario_of(case.id) for case in cases} for cases in (passed, left))
    if share < MIN_PRECISION or len(of_left) > MAX_LEFT * len(scenarios):
        return "", ()
    return f"only with {part.text}, where {share:.0%} of the cases fail", (part,)


def _is_special(result: Result) -> bool:
    return result.group.partition("/")[2] in SPECIAL


def _parts(name: str, failed: Sequence[Case], passed: Sequence[Case]) -> Iterator[Condition]:
    """The conditions on a property that all failing cases fulfil and some passing one does not."""
    values: list[Value] = [_properties(case).get(name) for case in failed]
    others = {value for case in passed if (value := _properties(case).get(name)) is not None} - set(values)
    if not others or None in values:
        return
    if isinstance(values[0], str):
        words = tuple(dict.fromkeys(values))
        if len(words) <= MAX_VALUES:
            yield Condition(name, words, " or ".join(words))
        return
    low, high = min(values), max(values)
    below, above = [v for v in others if v < low], [v for v in others if v > high]
    if below and above and low == high:
        yield Condition(name, (low, high), f"{name} = {low:g}")
    if below:
        yield Condition(name, (low, math.inf), f"{name} >= {low:g} (not with {name} <= {max(below):g})")
    if above:
        yield Condition(name, (-math.inf, high), f"{name} <= {high:g} (not with {name} >= {min(above):g})")


def _is_matched(part: Condition, failed: Sequence[Case], passed: Sequence[Case]) -> bool:
    """Whether failing and passing cases of enough scenarios differ in this property alone."""

    def key(case: Case) -> tuple[str, tuple[tuple[str, Value], ...]]:
        return scenario_of(case.id), tuple(pair for pair in _variant(case).items() if pair[0] != part.name)

    if part.name not in _variant(failed[0]):
        return False
    right = {key(case) for case in passed if not part.holds(case)}
    return len({scenario_of(case.id) for case in failed if key(case) in right}) >= MIN_SCENARIOS
