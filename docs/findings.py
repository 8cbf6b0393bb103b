# SPDX-License-Identifier: MIT
"""Findings: where runtimes depart from the specification. Writes the parts of findings.md that are made from data.

A runtime's findings are in its list of expected failures, `conformance/expected_failures/NAME.json`. The counts of cases
come from reports of runs and are kept in findings.json. Only the parts of the document between two markers are written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path

from conformance.outcome import Outcome
from conformance.printable import PrintableError
from conformance.report.record import Report, read_merged
from docs import template
from ortops import atomic_file

HARMS = {
    "memory": "Memory out of bounds",
    "numbers": "Wrong numbers",
    "refuses": "Refuses valid input",
    "accepts": "Accepts invalid input",
}
"""The kinds of findings by their key in the lists, the most harmful first."""

OUTCOMES = (Outcome.PASSED, Outcome.FAILED, Outcome.CRASHED, Outcome.DEPARTED, Outcome.UNSUPPORTED)
"""The outcomes of a run without a list of expected failures, in the order of the columns."""

KEPT = Path(__file__).parent / "findings.json"
"""The counts of earlier runs."""

_BAD = (Outcome.FAILED, Outcome.CRASHED, Outcome.DEPARTED)

MAX_NAMED = 5
"""The largest number of cases without a finding that are named."""


class FindingsError(PrintableError):
    """A document without markers, or a report that does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One way in which a runtime departs from the specification: an entry of its list, see `conformance.expected_failures`.

    tested: the tested releases of the runtime, the oldest first.
    """

    reason: str
    harm: str
    case: str
    rule: str
    answer: str
    cases: Sequence[str]
    tested: Sequence[str]
    crashes: bool = False
    since: str = ""
    until: str = ""
    upstream: Sequence[str] = ()

    @property
    def releases(self) -> Sequence[str]:
        """The tested releases that have it."""
        first = self.tested.index(self.since) if self.since else 0
        return self.tested[first : self.tested.index(self.until) + 1] if self.until else self.tested[first:]

    @property
    def ended(self) -> str:
        """The first tested release that no longer has it; empty if the newest release has it."""
        return self.tested[self.tested.index(self.until) + 1] if self.until else ""

    def lists(self, case_id: str) -> bool:
        """Whether the case is one of those that the runtime fails for this reason."""
        return any(fnmatchcase(case_id, glob) for glob in self.cases)


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime by the name of its list, and what was found in it, the most harmful first.

    about: what was tested, in whole sentences.
    backend: as reports name it.
    releases: the tested releases, the oldest first.
    """

    name: str
    title: str
    about: str
    backend: str
    releases: Sequence[str]
    findings: tuple[Finding, ...]

    def present(self, harm: str) -> list[Finding]:
        """The findings of a kind that the newest release has."""
        return [finding for finding in self.findings if finding.harm == harm and not finding.ended]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many cases of each operator had which outcome in a run: `operators`, by operator and outcome.

    The digest is that of the outcome of every case. The other fields are those of `conformance.report.record.Origin`.
    """

    runtime: str
    version: str
    suite: str
    onnx: str
    python: str
    platform: str
    date: str
    digest: str
    operators: Mapping[str, Mapping[str, int]]


def runtimes() -> list[Runtime]:
    """The runtimes whose lists name a title, in the order of the document: by the number in `order`."""
    known = []
    for file in resources.files("conformance.expected_failures").iterdir():
        data = json.loads(file.read_text("utf-8")) if file.name.endswith(".json") else {}
        if "title" in data:
            findings = [Finding(**entry, tested=data["releases"]) for entry in data["failures"]]
            findings.sort(key=lambda finding: list(HARMS).index(finding.harm))
            name = file.name.removesuffix(".json")
            words = data["title"], data["about"], data.get("backend", name)
            known.append((data["order"], Runtime(name, *words, data["releases"], tuple(findings))))
    return [runtime for _, runtime in sorted(known, key=lambda pair: (pair[0], pair[1].name))]


def of_report(report: Report, known: Sequence[Runtime]) -> tuple[Runtime, str]:
    """The runtime and the release of a report. A report without a release counts as the newest known release."""
    for runtime in known:
        if report.backend in (runtime.backend, runtime.name):
            return runtime, report.origin.version or runtime.releases[-1]
    raise FindingsError(f"backend {report.backend}: must be one of {', '.join(r.backend for r in known)}")


def changes(report: Report, known: Sequence[Runtime]) -> tuple[list[str], list[Finding]]:
    """The failing cases that no finding lists, and the findings without a failing case.

    Findings that ended before the report's release list nothing. Findings without a case in the report are left out.
    """
    runtime, version = of_report(report, known)
    present = [finding for finding in runtime.findings if not finding.ended or version in finding.releases]
    bad = [case_id for case_id, entry in report.entries.items() if entry.outcome in _BAD]
    unlisted = [case_id for case_id in bad if not any(finding.lists(case_id) for finding in present)]
    tested = [finding for finding in present if any(map(finding.lists, report.entries))]
    return unlisted, [finding for finding in tested if not any(map(finding.lists, bad))]


def count(report: Report, known: Sequence[Runtime]) -> Counts:
    """The counts of a report, which must be complete. Expected failures hide whether they are wrong numbers or crashes."""
    runtime, version = of_report(report, known)
    if not report.complete:
        raise FindingsError(f"the report of {report.title} is not complete: counts are of complete runs")
    operators: dict[str, Counter[str]] = {}
    for case_id, entry in report.entries.items():
        if entry.outcome is Outcome.EXPECTED_FAILURE:
            raise FindingsError(
                f"the report of {report.title} has expected failures: must be of a run with --expected-failures F, "
                "F being empty"
            )
        operators.setdefault(case_id.partition("/")[0], Counter())[entry.outcome.value] += 1
    ordered = {
        name: {outcome.value: counts[outcome.value] for outcome in OUTCOMES if counts[outcome.value]}
        for name, counts in operators.items()
        if set(counts) != {Outcome.UNSUPPORTED.value}
    }
    outcomes = sorted((case_id, entry.outcome.value) for case_id, entry in report.entries.items())
    digest = hashlib.sha256(json.dumps(outcomes).encode()).hexdigest()[:16]
    origin = dataclasses.asdict(report.origin) | {"version": version, "date": report.origin.date[:10]}
    return Counts(runtime.name, **origin, digest=digest, operators=ordered)


def read_counts() -> list[Counts]:
    """The counts that are kept in findings.json."""
    return [Counts(**run) for run in json.loads(KEPT.read_text("utf-8"))["runs"]]


def add(files: Sequence[Path]) -> Iterator[str]:
    """Add the counts of reports to findings.json, and yield a line for each change of what is known.

    Raises:
        PrintableError: a file is not a report, or not of a complete run with an empty list of expected failures.
    """
    known, reports = runtimes(), read_merged(files)
    counts = merged(read_counts(), [count(report, known) for report in reports], known)
    atomic_file.write(KEPT, json.dumps({"runs": [dataclasses.asdict(run) for run in counts]}, indent=1) + "\n")
    for report in reports:
        runtime, version = of_report(report, known)
        unlisted, gone = changes(report, known)
        lines = [f"no finding lists {case_id}: {report.entries[case_id].message}" for case_id in unlisted[:MAX_NAMED]]
        if len(unlisted) > MAX_NAMED:
            lines.append(f"no finding lists {len(unlisted) - MAX_NAMED} other cases that fail")
        lines += [f"no case fails any more of: {finding.reason}" for finding in gone]
        yield from (f"{runtime.title} {version}: {line}" for line in lines or ["as listed"])


def merged(old: Iterable[Counts], new: Iterable[Counts], known: Sequence[Runtime]) -> list[Counts]:
    """The counts of both by runtime and release, the newer ones where the outcomes of both differ."""
    runs = {(run.runtime, run.version): run for run in old}
    for run in new:
        key = (run.runtime, run.version)
        if key not in runs or runs[key].digest != run.digest:
            runs[key] = run

    def numbers(run: Counts) -> list[int]:
        return list(map(int, re.findall(r"\d+", run.version)))

    return [
        run
        for runtime in known
        for run in sorted((run for run in runs.values() if run.runtime == runtime.name), key=numbers)
    ]


def rewritten(text: str, known: Sequence[Runtime], runs: Sequence[Counts]) -> str:
    """The document with its parts written from data: the macros of the template `findings.md`."""
    groups = [  # of neighbouring releases of a runtime with the same outcomes
        (runtime, list(group))
        for runtime in known
        for _, group in itertools.groupby((run for run in runs if run.runtime == runtime.name), lambda run: run.digest)
    ]
    names = {"runtimes": known, "harms": HARMS, "outcomes": [outcome.value for outcome in OUTCOMES], "groups": groups}
    macros = template("findings.md", anchor=_anchor, thread=_thread).make_module(names)
    for part in ("summary", "findings", "counts"):
        begin, end = f"<!-- {part}: written by python -m docs -->", f"<!-- end of {part} -->"
        before, marker, rest = text.partition(begin)
        _, end_marker, after = rest.partition(end)
        if not marker or not end_marker:
            raise FindingsError(f"the document has no part {part}: must have the lines {begin} and {end}")
        text = f"{before}{begin}\n\n{str(getattr(macros, part)()).strip()}\n\n{end}{after}"
    return text


def _thread(url: str) -> str:
    """How GitHub names an issue or pull request: owner/name#number."""
    owner, name, _, number = url.removeprefix("https://github.com/").split("/")
    return f"{owner}/{name}#{number}"


def _anchor(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
