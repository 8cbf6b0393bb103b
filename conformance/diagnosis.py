"""Diagnoses of failures: the mutants that give the same answers as the backend."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.backends.external import OnnxBackend
from conformance.case import Array, Case, scenario_of
from conformance.compare import allowed_errors
from conformance.error_bounds import unit_roundoff
from conformance.families import all_mutants
from conformance.mutants.base import Model, Mutant
from conformance.outcome import ACCEPTED, Outcome, Result
from conformance.run import Answer, ask, judge

MAX_COMPARED = 9
"""How many failing cases of a family are compared, and how many passing ones."""

MIN_SHARE = 0.8
"""The share of the compared failing cases that a mutant must explain."""

MAX_SHOWN = 2
"""How many mutants are named for a family."""

MAX_BYTES = 2**20
"""The largest size of a compared case's inputs, in bytes."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A mutant that gives the same answers as a backend.

    family: the family of the cases.
    agreed: the number of compared failing cases in which both give the same answer.
    compared: the number of compared failing cases.
    """

    family: str
    mutant: Mutant
    agreed: int
    compared: int

    @property
    def name(self) -> str:
        """The name of the mutant in its module of `conformance.mutants`."""
        return self.mutant.short_name

    @property
    def sentence(self) -> str:
        """What the mutant does, as a line of the report."""
        first, _, rest = self.mutant.description.rstrip(".").partition(" ")
        words = f"{first.lower() if first.istitle() and first != 'X' else first} {rest}"
        return f"answers like {self.name}: {words}"

    def explains(self, result: Result) -> bool:
        """Whether the mutant gives the backend's answer. False for refusals, whose messages are reason enough."""
        is_answer = result.outcome in (Outcome.FAILED, Outcome.DEPARTED) and not _is_refusal(result)
        return is_answer and _is_comparable(result) and _is_same(result, _answer(self.mutant, result.case))


def diagnose(results: Sequence[Result]) -> list[Diagnosis]:
    """The mutants that explain most failures of each family of cases, the best first.

    A mutant must give the backend's answers to at least `MIN_SHARE` of the compared failing cases, and must pass the
    compared cases that the backend passed.

    Args:
        results: the results of any cases, with the outputs of those that failed.

    Returns:
        At most `MAX_SHOWN` for each family, none for a family that no mutant explains.
    """
    failed: dict[str, list[Result]] = {}
    for result in results:
        if result.outcome in (Outcome.FAILED, Outcome.DEPARTED) and _is_comparable(result):
            failed.setdefault(result.case.group, []).append(result)
    found = [one for family, own in failed.items() for one in _explaining(family, own, results)]
    # If several explain a family equally well, the one that explains other families as well is more likely.
    weight = Counter[Mutant]()
    for one in found:
        weight[one.mutant] += one.agreed
    ranked = sorted(found, key=lambda one: (-one.agreed, -weight[one.mutant]))
    return [one for family in failed for one in [r for r in ranked if r.family == family][:MAX_SHOWN]]


def _is_comparable(result: Result) -> bool:
    if result.case.nbytes > MAX_BYTES or result.has_written:
        return False
    if result.case.expects_error is not None:
        return result.message.startswith(ACCEPTED)
    return _is_refusal(result) or all(name in result.outputs for name in result.case.outputs)


def _is_refusal(result: Result) -> bool:
    return result.message.startswith("refused")


def _explaining(family: str, failed: Sequence[Result], results: Sequence[Result]) -> Iterator[Diagnosis]:
    # The fastest cases first, because two of them rule out most mutants.
    control = OnnxBackend(type("Control", (Model,), {"FAMILY": failed[0].case.definition.family}))
    chosen = sorted(_chosen(failed), key=lambda result: ask(control, result.case).seconds)
    function = failed[0].case.id.split("/")[0]
    passed = [r for r in results if r.outcome is Outcome.PASSED and r.case.id.split("/")[0] == function]
    # The same family first, because the cases that pass there distinguish the mutants.
    confirming = _chosen([r for r in passed if r.case.group == family]) + _chosen(passed)
    for mutant in all_mutants():
        if not mutant.concerns(failed[0].case.definition):
            continue
        agreed = _agreed(mutant, chosen)
        if agreed and all(_passes(mutant, result.case) for result in confirming):
            yield Diagnosis(family, mutant, agreed, len(chosen))


def _chosen(results: Sequence[Result]) -> list[Result]:
    """At most `MAX_COMPARED` of the results, from as many scenarios as possible, float before other types."""
    ordered = sorted(results, key=lambda result: result.case.element_type != "float")
    firsts: dict[str, Result] = {}
    for result in ordered:
        firsts.setdefault(scenario_of(result.case.id), result)
    # Neighbouring scenarios are similar, so take scenarios from everywhere instead of the first ones.
    spread = list(firsts.values())[:: max(len(firsts) // MAX_COMPARED, 1)]
    unique = {result.case.id: result for result in (*spread, *firsts.values(), *ordered)}
    return list(unique.values())[:MAX_COMPARED]


def _agreed(mutant: Mutant, failed: Sequence[Result]) -> int:
    """The number of cases in which the mutant gives the backend's answer; 0 if the share is below `MIN_SHARE`."""
    misses = 0
    for result in failed:
        misses += not _is_same(result, _answer(mutant, result.case))
        if len(failed) - misses < MIN_SHARE * len(failed):
            return 0
    return len(failed) - misses


def _answer(mutant: Mutant, case: Case) -> Answer:
    return ask(_backend(mutant), case)


@functools.cache
def _backend(mutant: Mutant) -> OnnxBackend:
    return OnnxBackend(mutant.backend)


def _passes(mutant: Mutant, case: Case) -> bool:
    return judge(case, _answer(mutant, case)).outcome is Outcome.PASSED


def _is_same(result: Result, answer: Answer) -> bool:
    if result.case.expects_error is not None:
        return answer.kind == "outputs"
    if _is_refusal(result) or answer.outputs is None:
        return _is_refusal(result) and answer.kind == "refusal"
    outputs = answer.outputs
    return all(_is_close(result, name, result.outputs[name], outputs[name]) for name in result.case.outputs)


def _is_close(result: Result, name: str, theirs: Array, ours: Array) -> bool:
    """Whether two outputs are equal within the case's tolerance and the rounding of the wrong value."""
    if theirs.dtype != ours.dtype or theirs.shape != ours.shape:
        return False
    allowed = allowed_errors(result.case)[name]
    if allowed.shape != ours.shape:
        allowed = np.asarray(allowed.max(initial=0.0))
    first, second = theirs.astype(np.float64), ours.astype(np.float64)
    is_finite = np.isfinite(first) & np.isfinite(second)
    if not np.array_equal(first[~is_finite], second[~is_finite], equal_nan=True):
        return False
    first, second = np.where(is_finite, first, 0), np.where(is_finite, second, 0)
    return bool(
        np.all(np.abs(first - second) <= np.nan_to_num(allowed) + unit_roundoff(result.case.dtype) * np.abs(second))
    )
