# SPDX-License-Identifier: MIT OR Apache-2.0
"""Diagnoses of failures: the mutants that give the same answers as the backend, one or two at once."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from conformance.backends.external import OnnxBackend
from conformance.case import Array, Case, scenario_of
from conformance.cases import case_of
from conformance.compare import allowed_errors
from conformance.conditions import Condition, in_common
from conformance.error_terms import unit_roundoff
from conformance.families import all_mutants, family_of
from conformance.mutants.base import Mutant
from conformance.outcome import Outcome, Reason, Result
from conformance.run import Answer, ask, judge
from ortops.progress import with_progress

MAX_COMPARED = 9
"""How many failing cases of a group or an operator are compared, and how many passing ones of a group."""

MAX_CONFIRMING = 27
"""How many passing cases of an operator are compared."""

MIN_SHARE = 0.8
"""The share of the compared failing cases that a diagnosis must explain."""

MAX_SHOWN = 2
"""How many diagnoses of a group are kept."""

MAX_FIRST = 3
"""How many mutants are tried as the first one of two."""

ALONE = {False: "in the operator alone", True: "in the gradient alone"}
"""Where a mistake is that the operator's gradient, or the operator whose gradient it is, does not have."""

MAX_BYTES = 2**20
"""The largest size of a compared case's inputs, in bytes."""

MAX_SAMPLES = 2000
"""The most samples of a compared case. The loops of a mutant take some milliseconds for it."""

SUMS = 16
"""How many roundings of the largest wrong number two wrong answers may differ by."""

TIME_LIMIT = 5.0
"""Seconds of processor time for all diagnoses of a run. What has many failures comes first."""

ANSWERS_LIKE = "answers like "
"""How each sentence of a diagnosis begins."""

Mutants = tuple[Mutant, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A mutant, or two at once, that gives the same answers as a backend.

    group: the group of the cases.
    agreed: the number of compared failing cases in which both give the same answer.
    compared: the number of compared failing cases.
    where: when the backend has the mistake, in words; empty if always.
    """

    group: str
    mutants: Mutants
    agreed: int
    compared: int
    where: str = ""

    @property
    def name(self) -> str:
        """The names of the mutants in their module of `conformance.mutants`."""
        return " and ".join(mutant.short_name for mutant in self.mutants)

    @property
    def sentence(self) -> str:
        """What the mutants do, as a line of the report."""
        words = "; ".join(_begun_small(mutant.description.rstrip(".")) for mutant in self.mutants)
        return f"{ANSWERS_LIKE}{self.name}{f' {self.where}' if self.where else ''}: {words}"

    def explains(self, result: Result) -> bool:
        """Whether the mutants give the backend's answer, which is certain if they gave all those that were compared."""
        is_answer = result.outcome in (Outcome.FAILED, Outcome.DEPARTED) and _is_comparable(result)
        return is_answer and (self.agreed == self.compared or _is_same(result, _answer(self.mutants, case_of(result))))


def _begun_small(words: str) -> str:
    """A sentence's words in the middle of another one. Names such as X and drois stay as they are."""
    first, _, rest = words.partition(" ")
    return f"{first.lower() if first.istitle() and first != 'X' else first} {rest}"


def diagnose(results: Sequence[Result], seconds: float = TIME_LIMIT) -> list[Diagnosis]:
    """The mutants that explain most failures of each group of cases, the best first.

    Mutants that explain the failures of a whole operator come first, then those that explain a group's. They must give the
    backend's answers to at least `MIN_SHARE` of the compared failing cases, and must pass the compared cases that the
    backend passed. If the failures of an operator have something in common, its mutant may fail other cases, because the
    backend may have the mistake only there. If no mutant explains the failures, two at once may.

    Args:
        results: the results of any cases, with the outputs of those that failed.
        seconds: the limit of processor time. Groups that are left then have no diagnosis.

    Returns:
        At most `MAX_SHOWN` for each group, none for a group that no mutants explain.
    """
    functions: dict[str, list[Result]] = {}
    groups: dict[str, list[Result]] = {}
    for result in results:
        if result.outcome in (Outcome.FAILED, Outcome.DEPARTED) and _is_comparable(result):
            functions.setdefault(function_of(result), []).append(result)
            groups.setdefault(result.group, []).append(result)
    comparison = _Comparison(results, functions, seconds)
    calls: list[tuple[Callable[[Sequence[Result]], None], Sequence[Result]]] = []
    for failures in sorted(functions.values(), key=len, reverse=True):
        calls.append((comparison.search, failures))
        calls += [(comparison.add, groups[group]) for group in dict.fromkeys(result.group for result in failures)]
    # What all groups may share comes first, then what one of them has alone.
    calls += [(comparison.search_again, failures) for failures in sorted(groups.values(), key=len, reverse=True)]
    with contextlib.suppress(TimeoutError):
        for call, part in with_progress(calls, "diagnosis", len(calls), unit="steps"):
            call(part)
    # If several explain a group equally well, the one that explains other groups as well is more likely.
    weight = Counter[Mutants]()
    for diagnosis in comparison.diagnoses:
        weight[diagnosis.mutants] += diagnosis.agreed
    ranked = sorted(
        comparison.diagnoses,
        key=lambda each: (-each.agreed, each.where in ALONE.values(), len(each.mutants), -weight[each.mutants]),
    )
    best = {group: [diagnosis for diagnosis in ranked if diagnosis.group == group][:MAX_SHOWN] for group in groups}
    wrong = dict.fromkeys(r.group for r in results if r.outcome is Outcome.FAILED and r.wrong_output)
    for group in wrong:
        # Cases that are too large to be compared have the mistake that all others of the operator have.
        function = group.partition("/")[0]
        same = [name for name in wrong if name in groups and name.partition("/")[0] == function]
        firsts = [best[name][0] for name in same if best[name]]
        is_one = len({(diagnosis.mutants, diagnosis.where) for diagnosis in firsts}) == 1
        if group not in groups and is_one and len(firsts) == len(same):
            best[group] = [replace(firsts[0], group=group, agreed=0, compared=0)]
    return list(itertools.chain.from_iterable(best.values()))


class _Comparison:
    """Compares mutants with the results of a run.

    Args:
        results: all results of the run.
        failed: the failing results that can be compared, by operator.
        seconds: the processor time after which `TimeoutError` is raised.

    Attributes:
        diagnoses: those so far.
    """

    def __init__(self, results: Sequence[Result], failed: Mapping[str, Sequence[Result]], seconds: float) -> None:
        self.diagnoses: list[Diagnosis] = []
        self._results, self._failed = results, failed
        self._deadline = time.process_time() + seconds
        self._known: dict[Mutants, tuple[str, tuple[Condition, ...]]] = {}
        self._answers: dict[tuple[Mutants, str], Answer] = {}

    def add(self, failed: Sequence[Result]) -> None:
        """Add the diagnoses of a group of cases: the mutants known so far that explain its failures."""
        group, compared = failed[0].group, _chosen(failed)
        passed = [r for r in self._results if r.outcome is Outcome.PASSED and r.group == group]
        for mutants, (where, conditions) in self._known.items():
            agreed = self._agreed(mutants, compared)
            if agreed and self._pass(mutants, _confirming(_fulfilling(conditions, passed), compared)):
                self.diagnoses.append(Diagnosis(group, mutants, agreed, len(compared), where))

    def search_again(self, failed: Sequence[Result]) -> None:
        """Search for mutants that explain a group's failures if none that is known does."""
        is_new = len(failed) < len(self._failed[function_of(failed[0])])
        if is_new and not any(diagnosis.group == failed[0].group for diagnosis in self.diagnoses):
            self.search(failed)
            self.add(failed)

    def search(self, failed: Sequence[Result]) -> None:
        """Search for mutants that explain failures of one operator."""
        function = function_of(failed[0])
        compared = sorted(_chosen(failed), key=lambda result: _samples(case_of(result)))
        results = [r for r in self._results if function_of(r) == function]
        # The mutant of a wrong number may refuse what the backend refuses, or not.
        has_accepted = any(case_of(r).expects_error for r in compared)
        passed = [r for r in results if r.outcome is Outcome.PASSED and (has_accepted or not case_of(r).expects_error)]
        confirming = _confirming(passed, compared, MAX_CONFIRMING)
        is_whole = len(failed) == len(self._failed[function])
        if any(self._agreed(mutants, compared) and self._pass(mutants, confirming) for mutants in self._known):
            return  # the mistake of another operator
        where, conditions = in_common([r for r in failed if r.wrong_output], results) if is_whole else ("", ())
        matching = _confirming(_fulfilling(conditions, passed), compared, MAX_CONFIRMING)
        is_gradient = case_of(failed[0]).definition.is_gradient
        other = function.removesuffix("_grad") if is_gradient else f"{function}_grad"
        right = [r for r in self._results if function_of(r) == other and r.outcome is Outcome.PASSED]
        counterpart = _confirming([r for r in right if not case_of(r).expects_error], compared)

        def keep(choices: Iterable[Mutants]) -> bool:
            count = len(self._known)
            for mutants in choices:
                agreed = self._agreed(mutants, compared)
                if not agreed:
                    continue
                if self._pass(mutants, confirming):
                    # Mutants of one group alone must not be wrong in another way in other groups.
                    if is_whole or all(
                        self._agrees(mutants, result) or self._pass(mutants, [result])
                        for result in _chosen(self._failed[function])
                    ):
                        is_alone = not self._pass(mutants, counterpart)
                        self._known[mutants] = ALONE[is_gradient] if is_alone else "", ()
                elif where and agreed == len(compared) and self._pass(mutants, matching):
                    self._known[mutants] = where, conditions
            return len(self._known) > count

        mutants = [mutant for mutant in all_mutants() if mutant.concerns(case_of(failed[0]).definition)]
        if not keep((mutant,) for mutant in mutants):
            keep(self._pairs(mutants, compared, confirming))

    def _pairs(
        self, mutants: Sequence[Mutant], failed: Sequence[Result], confirming: Sequence[Result]
    ) -> Iterator[Mutants]:
        """Pairs of a mutant that explains some failures and one that, together with it, explains another one."""
        if len(failed) <= MAX_FIRST:  # two mutants explain so few by chance
            return
        share = {mutant: sum(self._agrees((mutant,), r) for r in failed[: MAX_FIRST + 1]) for mutant in mutants}
        likely = sorted((mutant for mutant in mutants if share[mutant]), key=lambda mutant: -share[mutant])
        firsts = (mutant for mutant in likely if self._pass((mutant,), confirming))
        for first in itertools.islice(firsts, MAX_FIRST):
            left = [result for result in failed if not self._agrees((first,), result)][:1]
            for second in mutants if left else ():
                if second is not first and self._agrees((first, second), left[0]):
                    yield first, second

    def _agreed(self, mutants: Mutants, failed: Sequence[Result]) -> int:
        """The number of cases in which the mutants give the backend's answer; 0 if the share is below `MIN_SHARE`."""
        misses = 0
        for result in failed:
            misses += not self._agrees(mutants, result)
            if len(failed) - misses < MIN_SHARE * len(failed):
                return 0
        return len(failed) - misses

    def _agrees(self, mutants: Mutants, result: Result) -> bool:
        is_concerned = all(mutant.concerns(case_of(result).definition) for mutant in mutants)
        return is_concerned and _is_same(result, self._answer(mutants, case_of(result)))

    def _pass(self, mutants: Mutants, results: Iterable[Result]) -> bool:
        return all(judge(case_of(r), self._answer(mutants, case_of(r))).outcome is Outcome.PASSED for r in results)

    def _answer(self, mutants: Mutants, case: Case) -> Answer:
        key = mutants, case.id
        if key not in self._answers:
            if time.process_time() > self._deadline:
                raise TimeoutError
            self._answers[key] = _answer(mutants, case)
        return self._answers[key]


def function_of(result: Result) -> str:
    """The first part of a case's id, which names its operator without a version."""
    return result.id.partition("/")[0]


def _fulfilling(conditions: Sequence[Condition], results: Iterable[Result]) -> list[Result]:
    """The results of valid cases that fulfil all conditions; all results if there is none."""
    if not conditions:
        return list(results)
    return [
        r
        for r in results
        if not case_of(r).expects_error and all(condition.holds(case_of(r)) for condition in conditions)
    ]


def _is_comparable(result: Result) -> bool:
    """Whether the backend gave an answer that a mutant could give, too. The message of a refusal is reason enough."""
    if case_of(result).nbytes > MAX_BYTES or result.reason in (Reason.WROTE, Reason.REFUSED, Reason.EXTRA_OUTPUT):
        return False
    if case_of(result).expects_error is not None:
        return result.reason is Reason.ACCEPTED
    return all(name in result.outputs for name in case_of(result).outputs)


def _samples(case: Case) -> float:
    """The number of samples of a case, or, if it is larger, of those that the reference computes."""
    family = family_of(case.definition)
    return 0 if case.expects_error is not None else max(family.samples(case), family.work(case))


def _chosen(results: Sequence[Result], most: int = MAX_COMPARED) -> list[Result]:
    """Some of the results, from as many scenarios and variants of them as possible, float before other types."""
    scenarios: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda result: case_of(result).element_type != "float"):
        alike = scenarios.setdefault(scenario_of(result.id), [])
        if not alike or case_of(alike[0]).element_type == case_of(result).element_type:
            alike.append(result)
    # Neighbouring scenarios are similar, so take scenarios from everywhere instead of the first ones.
    spread = list(scenarios.values())[:: max(len(scenarios) // most, 1)]
    varied = [alike[k % len(alike)] for k, alike in enumerate((*spread, *scenarios.values()))]
    unique = {result.id: result for result in (*varied, *itertools.chain.from_iterable(scenarios.values()))}
    small = (r for r in unique.values() if case_of(r).formula is None and _samples(case_of(r)) <= MAX_SAMPLES)
    return list(itertools.islice(small, most))


def _confirming(passed: Sequence[Result], failed: Sequence[Result], most: int = MAX_COMPARED) -> list[Result]:
    """Some of the passing results from everywhere, and some of the scenarios whose names are most like those that fail."""

    def likeness(result: Result) -> float:
        words = [set(scenario_of(each.id).partition("/")[2].split("_")) for each in (result, *failed)]
        return max((len(words[0] & others) / len(words[0] | others) for others in words[1:]), default=0.0)

    similar = sorted(passed, key=likeness, reverse=True)[: 2 * MAX_CONFIRMING]
    return list({r.id: r for r in (*_chosen(passed, most), *_chosen(similar))}.values())


def _answer(mutants: Mutants, case: Case) -> Answer:
    try:
        return ask(_backend(mutants), case)
    except ValueError as error:  # two mutants edit the same text
        return Answer("unsupported", text=str(error))


@functools.lru_cache(1024)
def _backend(mutants: Mutants) -> OnnxBackend:
    first, *others = mutants
    return OnnxBackend(first.with_another(*others) if others else first.backend)


def _is_same(result: Result, answer: Answer) -> bool:
    if case_of(result).expects_error is not None or answer.outputs is None:
        return case_of(result).expects_error is not None and answer.kind == "outputs"
    outputs = answer.outputs
    return all(_is_close(result, name, result.outputs[name], outputs[name]) for name in case_of(result).outputs)


def _is_close(result: Result, name: str, theirs: Array, ours: Array) -> bool:
    """Whether two outputs are equal within the case's tolerance and the rounding of the wrong values."""
    if theirs.dtype != ours.dtype or theirs.shape != ours.shape:
        return False
    allowed = allowed_errors(case_of(result))[name]
    if allowed.shape != ours.shape:
        allowed = np.asarray(allowed.max(initial=0.0))
    first, second = theirs.astype(np.float64), ours.astype(np.float64)
    is_finite = np.isfinite(first) & np.isfinite(second)
    if not np.array_equal(first[~is_finite], second[~is_finite], equal_nan=True):
        return False
    first, second = np.where(is_finite, first, 0), np.where(is_finite, second, 0)
    # Sums of numbers that the right answer does not read: its tolerance may be 0.
    rounding = unit_roundoff(case_of(result).dtype) * np.abs(second)
    sums = SUMS * unit_roundoff(case_of(result).compute_dtype) * np.abs(second).max(initial=0.0)
    return bool(np.all(np.abs(first - second) <= np.nan_to_num(allowed) + rounding + sums))
