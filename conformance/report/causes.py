"""The causes of failures. Each failing case has one cause, and cases of several groups may share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.diagnosis import Diagnosis
from conformance.outcome import ACCEPTED, WRONG_TYPE, Outcome, Result
from conformance.report.tally import cut, pattern_of

MAX_GROUPS = 2
"""How many groups of cases are named for a cause."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Cases that fail for the same reason.

    outcome: failed or crashed.
    reason: a phrase.
    results: the results of the cases, in the order of the suite.
    """

    outcome: Outcome
    reason: str
    results: Sequence[Result]

    def __str__(self) -> str:
        groups = [group for group, _ in Counter(result.case.group for result in self.results).most_common()]
        rest = len(groups) - MAX_GROUPS
        places = [*groups[:MAX_GROUPS], *([f"{rest} other group{'s' * (rest > 1)}"] if rest > 0 else [])]
        return f"{len(self.results)} {self.outcome.value}: {self.reason} [{', '.join(places)}]"


def causes_of(results: Sequence[Result], diagnoses: Sequence[Diagnosis]) -> list[Cause]:
    """The causes of the failures: crashes first, then the causes with most cases.

    The cause of a wrong output, or of an invalid case that was accepted, is the best diagnosis of its group. Without a
    diagnosis it is what is wrong: the element type, the shape, NaN or a number. A wrong element type is one cause in all
    groups. Otherwise the cause is the backend's message; messages that differ only in numbers are one cause.

    Args:
        results: the results of a run.
        diagnoses: the diagnoses of its failures.
    """
    best = {one.family: one for one in reversed(diagnoses)}
    agreed, compared = Counter[str](), Counter[str]()
    for one in best.values():
        agreed[one.sentence] += one.agreed
        compared[one.sentence] += one.compared
    found: dict[tuple[Outcome, str], tuple[str, list[Result]]] = {}
    for result in results:
        if not result.outcome.is_bad:
            continue
        reason = _kind_of_answer(result)
        if reason and result.case.group in best and not reason.startswith(WRONG_TYPE):
            sentence = best[result.case.group].sentence
            reason = f"{sentence} ({agreed[sentence]} of {compared[sentence]} compared)"
        reason = reason or cut(result.message)
        found.setdefault((result.outcome, pattern_of(reason)), (reason, []))[1].append(result)
    made = [Cause(outcome, reason, own) for (outcome, _), (reason, own) in found.items()]
    return sorted(made, key=lambda cause: (cause.outcome is not Outcome.CRASHED, -len(cause.results)))


def _kind_of_answer(result: Result) -> str:
    """How an answer is wrong, without the element or the case's note; empty if the backend gave no answer."""
    if result.outcome is Outcome.FAILED and result.message.startswith(ACCEPTED):
        return result.message.partition(":")[0]
    return result.wrong_output if result.outcome is Outcome.FAILED else ""
