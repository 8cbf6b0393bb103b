# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lists of expected failures that are written from a run: a table for each cause, with globs that match no other case."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from conformance.case import scenario_of
from conformance.cases import case_of
from conformance.diagnosis import ANSWERS_LIKE, Diagnosis
from conformance.expected_failures import FOUND_WITH, LEVEL, TABLE, ExpectedFailure, Floor
from conformance.outcome import WRONG_OUTPUT, Outcome, Reason, Result
from conformance.report.counts import cut, pattern_of
from conformance.report.record import Report


def listed(
    results: Sequence[Result], diagnoses: Sequence[Diagnosis], old: Sequence[ExpectedFailure], ids: Collection[str]
) -> list[ExpectedFailure]:
    """The entries of an older list that still hold, and new entries for the other cases that fail.

    An entry keeps its reason, and its glob unless the glob matches a passing case. Cases that did not run stay listed. A
    diagnosis of an older run stays only where the new one gives the same.

    Args:
        results: the results of a run without a list.
        diagnoses: the diagnoses of its failures.
        old: the older list, which may be empty.
        ids: the ids of all cases of the suite.
    """
    ran = {result.id: result for result in results}
    outcomes = {case_id: result.outcome for case_id, result in ran.items()}
    # A glob may also match unsupported cases, whose outcome no list changes.
    supported = Counter(
        glob for case_id in ids if outcomes.get(case_id) is not Outcome.UNSUPPORTED for glob in _globs_of(case_id)
    )
    left = {case_id for case_id, outcome in outcomes.items() if outcome.is_bad}
    waiting = set(ids) - set(ran)
    causes = reasons_of_failures(ran.values(), diagnoses)
    reasons = {case_id: reason for failures in causes.values() for case_id, (_, reason) in failures.items()}
    entries: list[ExpectedFailure] = []
    for entry in old:
        matched = {case_id for case_id in ids if fnmatchcase(case_id, entry.glob)}
        passed = {case_id for case_id in matched if outcomes.get(case_id) is Outcome.PASSED}
        ended = set() if entry.crashes else {i for i in matched & left if outcomes[i] is Outcome.CRASHED}
        is_diagnosis = entry.reason.startswith(ANSWERS_LIKE)
        others = {i for i in matched & left if reasons[i] != entry.reason} if is_diagnosis else set()
        kept = matched & (left | waiting) - ended - others
        globs = [] if not kept else covering(kept, supported) if passed or ended or others else [entry.glob]
        entries += [ExpectedFailure(glob, entry.reason, entry.crashes) for glob in globs]
        left, waiting = left - kept, waiting - kept
    said: dict[str, str] = {}
    for (_, crashes), failures in causes.items():
        for glob in covering(left & set(failures), supported, failures):
            keys = {key: reason for case_id, (key, reason) in failures.items() if fnmatchcase(case_id, glob)}
            key, reason = next(iter(keys.items()))
            reason = said.setdefault(key, reason)
            reason = reason if len(keys) == 1 else f"in {len(keys)} scenarios, such as {key}: {reason}"
            entries.append(ExpectedFailure(glob, reason, crashes))
    return entries


def reasons_of_failures(
    results: Iterable[Result], diagnoses: Sequence[Diagnosis]
) -> Mapping[tuple[str, bool], Mapping[str, tuple[str, str]]]:
    """Failures and departures by cause: for each case id a key, which cases with the same reason share, and the reason.

    The cause is the diagnosis that explains the case. A wrong element type is one cause in all groups. The other wrong
    outputs of a group are one cause, and a glob gets the reason of its first case. A missing kernel is one cause for each
    version of the operator. Other messages that differ only in numbers are one cause. Cases that end the process have
    causes of their own.
    """
    causes: dict[tuple[str, bool], dict[str, tuple[str, str]]] = {}
    for result in results:
        case, message, crashes = case_of(result), result.message, result.outcome is Outcome.CRASHED
        if not crashes and result.outcome not in (Outcome.FAILED, Outcome.DEPARTED):
            continue
        wrong = result.wrong_output
        of_group = (diagnosis for diagnosis in diagnoses if diagnosis.group == case.group)
        cause = key = reason = next((d.sentence for d in of_group if d.explains(result)), "")
        if not reason and result.reason is Reason.TYPE:
            cause = key = WRONG_OUTPUT[result.reason]
            reason = wrong
        elif not reason and wrong:
            cause, key, reason = case.group, scenario_of(case.id), f"wrong output: {case.note} ({message})"
        elif not reason:
            cause = key = case.operator if result.reason is Reason.NO_KERNEL else pattern_of(message)
            reason = message
        causes.setdefault((cause, crashes), {})[case.id] = key, cut(reason)
    return causes


def _globs_of(case_id: str) -> set[str]:
    """All globs that match the case and replace some parts of its id by `*`, but never the operator."""
    first, *parts = case_id.split("/")
    globs = set()
    for chosen in itertools.product(*((part, "*") for part in parts)):
        kept = [part for part, _ in itertools.groupby(chosen)] if "*" in chosen else chosen
        globs.add("/".join([first, *kept]))
    return globs


def covering(ids: Collection[str], known: Mapping[str, int], others: Collection[str] = ()) -> list[str]:
    """A few globs that match these cases and no other known ones, though not always the fewest.

    Args:
        ids: the ids of the cases.
        known: how many of the known cases, including these, match each glob of `_globs_of`.
        others: the ids of known cases that the globs may match as well.
    """
    matched: dict[str, set[str]] = {}
    for case_id in {*ids, *others}:
        for glob in _globs_of(case_id):
            matched.setdefault(glob, set()).add(case_id)
    allowed = {glob: ids_of_glob for glob, ids_of_glob in matched.items() if len(ids_of_glob) == known[glob]}
    left, globs = set(ids), []
    while left:
        best = max(allowed, key=lambda glob: (len(allowed[glob] & left), -glob.count("*"), len(glob), glob))
        globs.append(best)
        left -= allowed.pop(best)
    return sorted(globs)


def render(known: Iterable[ExpectedFailure], floor: Floor | None, report: Report) -> str:
    """A list and a floor as TOML, with the versions that the run used, and its level."""
    tables: dict[tuple[str, bool], list[str]] = {}
    for entry in known:
        tables.setdefault((entry.reason, entry.crashes), []).append(entry.glob)
    texts = [f"{FOUND_WITH} = {quoted(versions_of(report))}\n", f"{LEVEL} = {quoted(report.level)}\n"]
    if floor is not None:
        fields = dataclasses.asdict(floor).items()
        texts += [f"{name} = {quoted(value)}\n" for name, value in fields if value not in ("*", ())]
    for (reason, crashes), globs in tables.items():
        cases = "".join(f"    {quoted(glob)},\n" for glob in globs)
        lines = f"\n[[{TABLE}]]\nreason = {quoted(reason)}\ncases = [\n{cases}]\n"
        texts.append(lines + "crashes = true\n" * crashes)
    return "".join(texts)


def versions_of(report: Report) -> str:
    """The versions that a run used, in a line."""
    return f"{report.title}, onnx {report.origin.onnx}, ortops {report.origin.suite}"


def quoted(value: object) -> str:
    """A value of TOML, JSON or Python. Strings have JSON's escapes, and `printable` has removed control characters."""
    return json.dumps(value, ensure_ascii=False)


def changes(old: Sequence[ExpectedFailure], new: Sequence[ExpectedFailure]) -> Iterator[str]:
    """A line for each reason of entries that only one of two lists has, and a line below it for each of their globs."""
    for mark, entries, other in (("-", old, new), ("+", new, old)):
        globs: dict[str, list[str]] = {}
        for entry in entries:
            if entry not in other:
                globs.setdefault(entry.reason, []).append(f"    {entry.glob}")
        for reason, lines in globs.items():
            yield from (f"{mark} {reason}", *lines)
