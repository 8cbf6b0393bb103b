# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whether a runtime conforms at a level, and which rules it breaks: what a report says first.

A rule is the statement that cases check, `Case.note`; cases of several opsets and element types check the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from conformance.case import Basis, Level
from conformance.cases import by_id
from conformance.outcome import Outcome, Reason, Result, at_level
from conformance.report.causes import Cause
from conformance.report.counts import cut
from conformance.report.record import Report

MAX_RULES = 3
"""How many broken rules the first line of a report names."""

_ENDED = (Reason.TIME, Reason.MEMORY, Reason.ENDED)
_REFUSED = (Reason.REFUSED, Reason.NO_KERNEL)
_RULES: Mapping[Reason | None, str] = {
    Reason.WROTE: "inputs and earlier outputs are not written to",
    Reason.TIME: "answers come within the time limit",
    Reason.MEMORY: "answers take no more than the memory limit",
}


def is_breach(result: Result, level: Level) -> bool:
    """Whether the backend breaks a rule of the level. That a list expects the failure does not change this."""
    if result.outcome is Outcome.EXPECTED_FAILURE:
        return result.reason in _ENDED or result.basis is None or level.asks(result.basis)
    return at_level(result, level).outcome.is_bad and result.reason is not Reason.LISTED


def broken_rules(results: Iterable[Result], level: Level) -> dict[str, list[Result]]:
    """The breaches of each rule: rules of the strongest authority first, and of these the ones with most breaches.

    An operator that has no kernel, or that refuses the valid cases of several rules and answers none, breaks only the rule
    that it runs; the same holds for an element type. A backend that writes to its inputs breaks only the rule against it. A
    case that exceeds a limit breaks only the rule of this limit.
    """
    results = [result for result in results if result.outcome is not Outcome.UNSUPPORTED]
    answered = {part for r in results if r.reason not in _REFUSED for part in _parts(r)}
    refused: dict[str, set[str]] = {}
    for result in results:
        for part in _parts(result):
            refused.setdefault(part, set()).add("" if result.reason is Reason.NO_KERNEL else _statement(result))
    unable = {part for part, rules in refused.items() if part not in answered and ("" in rules or len(rules) > 1)}
    broken: dict[str, list[Result]] = {}
    for result in results:
        if is_breach(result, level):
            silent = [part for part in _parts(result) if part in unable and result.reason in _REFUSED]
            broken.setdefault(silent[0] if silent else _statement(result), []).append(result)
    order = [*Basis, None]
    return dict(sorted(broken.items(), key=lambda rule: (order.index(rule[1][0].basis), -len(rule[1]))))


def _parts(result: Result) -> tuple[str, ...]:
    """For a valid case, that its operator runs, and that it runs with the element type; nothing for other cases."""
    case = by_id().get(result.id)
    if case is None or case.expects_error:
        return ()
    runs = f"{case.operator.replace('_', '-')} runs"
    return runs, f"{runs} with {case.element_type}"


def _statement(result: Result) -> str:
    case = by_id().get(result.id)
    note = case.note if case else f"{result.id}, a case of another release of the suite"
    return _RULES.get(result.reason, note)


def verdict(report: Report, causes: Sequence[Cause] = ()) -> str:
    """Whether the backend conforms at the level of the run, in a line: how many rules it breaks, and some of these.

    Args:
        report: the report of a run.
        causes: the causes of its failures. The first rule that each one breaks comes first.
    """
    judged = sum(result.outcome is not Outcome.UNSUPPORTED for result in report.entries.values())
    if not judged:
        return f"not tested at level {report.level.value}: no case was judged"
    broken = broken_rules(report.entries.values(), report.level)
    if not broken:
        return f"conforms at level {report.level.value} in all {judged} judged cases"
    rules = {result.id: rule for rule, results in broken.items() for result in results}
    firsts = (rules[cause.results[0].id] for cause in causes if cause.results[0].id in rules)
    named = [cut(rule) for rule in dict.fromkeys([*firsts, *broken])][:MAX_RULES]
    more = len(broken) - len(named)
    words = "; ".join([*named, *([f"and {more} more"] if more else [])])
    return (
        f"does not conform at level {report.level.value}: {len(broken)} rule{'s' * (len(broken) > 1)} broken: {words}"
    )
