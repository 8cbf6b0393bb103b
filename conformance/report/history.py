# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runtimes over their releases as an HTML page in one file: how many cases pass, and which rules each release breaks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from conformance.case import Level
from conformance.cases import by_id
from conformance.outcome import Outcome, Result
from conformance.report.counts import kind_of
from conformance.report.page import MAX_PICTURES, picture_of, rendered
from conformance.report.record import Report
from conformance.report.verdict import broken_rules

MAX_SHOWN = 12
"""How many rules of a runtime are shown before the others are opened."""

STATES = {"failed": "broken", "passed": "kept", "unsupported": "not judged"}
"""The words for the states of a rule in a release."""


class Release(NamedTuple):
    """What the page shows of a report: the ids of the judged cases, the rules that they check, and who breaks each."""

    version: str
    judged: AbstractSet[str]
    passed: int
    rules: AbstractSet[str]
    broken: Mapping[str, Sequence[Result]]


class Rule(NamedTuple):
    """A rule that a release breaks: its state in each release, those that break it in words, and a case of the newest."""

    words: str
    states: Sequence[str]
    where: str
    case_id: str
    picture: str


def render(reports: Iterable[Report], level: Level) -> str:
    """Reports in any order as HTML, with a section for each backend."""
    runtimes: dict[str, list[Release]] = {}
    for report in sorted(reports, key=_age):
        results = report.entries.values()
        judged = {result.id for result in results if result.outcome is not Outcome.UNSUPPORTED}
        rules = {by_id()[case_id].note for case_id in judged & by_id().keys()}
        passed = sum(kind_of(result) in ("passed", "unexpected_pass") for result in results)
        release = Release(report.origin.version or "-", judged, passed, rules, broken_rules(results, level))
        runtimes.setdefault(report.backend, []).append(release)
    pairs = {name: (releases, _rules(releases)) for name, releases in sorted(runtimes.items())}
    return rendered("history.html.jinja", runtimes=pairs, level=level.value, words=STATES, shown=MAX_SHOWN)


def _age(report: Report) -> list[tuple[int, str]]:
    """A key that orders versions by their numbers; letters, as of a release candidate, come before the end."""
    parts = re.findall(r"\d+|[a-z]+", report.origin.version.lower())
    return [(int(part), "") if part.isdigit() else (-2, part) for part in parts] + [(-1, "")]


def _rules(releases: Sequence[Release]) -> list[Rule]:
    """The rules that any release breaks, those of the newest first."""
    breaches: dict[str, list[Result]] = {}
    for release in reversed(releases):
        for words, results in release.broken.items():
            breaches.setdefault(words, []).extend(results)
    rules = []
    for k, (words, results) in enumerate(breaches.items()):
        ids = {result.id for result in results}
        states = [
            "failed" if words in release.broken else "passed" if ids & release.judged else "unsupported"
            for release in releases
        ]
        drawn = [result for result in results if result.id in by_id()] if k < MAX_PICTURES else []
        rules.append(Rule(words, states, _where(releases, states), results[0].id, picture_of(drawn)))
    return rules


def _where(releases: Sequence[Release], states: Sequence[str]) -> str:
    """The ranges of releases that break a rule, in words."""
    words = []
    for state, group in itertools.groupby(zip(states, releases, strict=True), lambda pair: pair[0]):
        versions = [release.version for _, release in group]
        if state == "failed":
            words.append(versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}")
    return ", ".join(words)
