# SPDX-License-Identifier: MIT OR Apache-2.0
"""The causes of failures. Each failing case has one cause, and cases of several groups may share it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from conformance.conditions import in_common
from conformance.diagnosis import Diagnosis, function_of
from conformance.outcome import WRONG_OUTPUT, Outcome, Reason, Result
from conformance.report.counts import counted, cut, pattern_of

MAX_GROUPS = 2
"""How many groups of cases are named for a cause."""

MAX_TOLD = 8
"""For how many causes, those with most cases, the report says what the cases have in common."""


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
        groups = [group for group, _ in Counter(result.group for result in self.results).most_common()]
        rest = len(groups) - MAX_GROUPS
        places = [*groups[:MAX_GROUPS], *([f"{rest} other group{'s' * (rest > 1)}"] if rest > 0 else [])]
        kind = self.outcome if self.results[0].reason is not Reason.LISTED else "unexpected_pass"
        return f"{counted(len(self.results), kind)}: {self.reason} [{', '.join(places)}]"


def causes_of(results: Sequence[Result], diagnoses: Sequence[Diagnosis]) -> list[Cause]:
    """The causes of the failures: crashes first, then the causes with most cases.

    The cause of a wrong output, or of an invalid case that was accepted, is the best diagnosis of its group. Without a
    diagnosis it is what is wrong: the element type, the shape, NaN or a number. A wrong element type is one cause in all
    groups. Otherwise the cause is the backend's message; messages that differ only in numbers are one cause.

    Args:
        results: the results of a run.
        diagnoses: the diagnoses of its failures.
    """
    best = {diagnosis.group: diagnosis for diagnosis in reversed(diagnoses)}
    agreed, compared = Counter[str](), Counter[str]()
    for diagnosis in best.values():
        agreed[diagnosis.sentence] += diagnosis.agreed
        compared[diagnosis.sentence] += diagnosis.compared
    grouped: dict[tuple[Outcome, str], tuple[str, list[Result]]] = {}
    for result in results:
        if not result.outcome.is_bad:
            continue
        reason = result.message.partition(":")[0] if result.reason is Reason.ACCEPTED else result.wrong_output
        if reason and result.group in best and result.reason is not Reason.TYPE:
            sentence = best[result.group].sentence
            reason = f"{sentence} ({agreed[sentence]} of {compared[sentence]} compared)"
        reason = reason or cut(result.message)
        grouped.setdefault((result.outcome, pattern_of(reason)), (reason, []))[1].append(result)
    causes = [Cause(outcome, reason, alike) for (outcome, _), (reason, alike) in grouped.items()]
    causes.sort(key=lambda cause: -len(cause.results))
    # The sentence of a diagnosis says where it holds.
    told = [cause for cause in causes if not cause.reason.startswith(tuple(agreed))][:MAX_TOLD]
    # Wrong numbers and NaN may be symptoms of one mistake.
    wrong = [result for cause in told if _is_wrong(cause) for result in cause.results]
    parts = [
        _told(cause, wrong if _is_wrong(cause) else cause.results, results) if cause in told else [cause]
        for cause in causes
    ]
    order = sorted(itertools.chain.from_iterable(parts), key=lambda cause: -len(cause.results))
    return sorted(order, key=lambda cause: cause.outcome is not Outcome.CRASHED)


def _is_wrong(cause: Cause) -> bool:
    reason = cause.results[0].reason
    return reason in WRONG_OUTPUT and reason is not Reason.TYPE


def _told(cause: Cause, alike: Sequence[Result], results: Sequence[Result]) -> list[Cause]:
    """The cause with what the cases have in common, or else a cause for each condition that those of an operator have.

    Args:
        cause: the cause.
        alike: the results of all causes that may have the same mistake.
        results: the results of the run.
    """
    functions = dict.fromkeys(map(function_of, cause.results))
    where, _ = in_common([r for r in alike if function_of(r) in functions], results)
    parts: dict[str, list[Result]] = {}
    for function in functions:
        text = where or in_common([r for r in alike if function_of(r) == function], results)[0]
        parts.setdefault(text, []).extend(r for r in cause.results if function_of(r) == function)
    return [
        replace(cause, reason=", ".join(filter(None, (cause.reason, w))), results=part) for w, part in parts.items()
    ]
