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
from typing import Any

import jinja2

from conformance.outcome import Outcome
from conformance.printable import PrintableError
from conformance.report.record import Report, read_merged
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

PARTS = ("summary", "findings", "counts")
"""The parts of the document that are written from data."""

KEPT = Path(__file__).parent / "findings.json"
"""The counts of earlier runs."""

MAX_NAMED = 5
"""The largest number of cases without a finding that are named."""

_BAD = (Outcome.FAILED, Outcome.CRASHED, Outcome.DEPARTED)


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
    until: str = ""
    upstream: Sequence[str] = ()

    @property
    def releases(self) -> Sequence[str]:
        """The tested releases that have it."""
        return self.tested[: self.tested.index(self.until) + 1] if self.until else self.tested

    @property
    def ended(self) -> str:
        """The first tested release that no longer has it; empty if the newest release has it."""
        return self.tested[len(self.releases)] if self.until else ""

    def lists(self, case_id: str) -> bool:
        """Whether the case is one of those that the runtime fails for this reason."""
        return any(fnmatchcase(case_id, glob) for glob in self.cases)


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime and what was found in it, the most harmful first.

    name: of the list's file.
    title: its name in headings.
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
    """How many cases of each operator had which outcome, in one run.

    runtime: name of its list.
    version: its release.
    suite, onnx, python, platform, date: as in `conformance.report.record.Origin`.
    digest: of the outcome of every case; equal digests mean that all cases had the same outcome.
    operators: the counts by outcome, by operator.
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
    folder = resources.files("conformance.expected_failures")
    files = {file.name.removesuffix(".json"): file for file in folder.iterdir() if file.name.endswith(".json")}
    lists = {name: json.loads(file.read_text("utf-8")) for name, file in sorted(files.items())}
    described = [name for name, data in lists.items() if "title" in data]
    return [_runtime(name, lists[name]) for name in sorted(described, key=lambda name: lists[name]["order"])]


def _runtime(name: str, data: Mapping[str, Any]) -> Runtime:
    found = [Finding(**entry, tested=data["releases"]) for entry in data["failures"]]
    findings = tuple(sorted(found, key=lambda finding: list(HARMS).index(finding.harm)))
    return Runtime(name, data["title"], data["about"], data.get("backend", name), data["releases"], findings)


def of_report(report: Report, known: Sequence[Runtime]) -> tuple[Runtime, str]:
    """The runtime and the release of a report. A report without a release counts as the newest known release.

    Raises:
        FindingsError: no list is of this backend.
    """
    for runtime in known:
        if report.backend in (runtime.backend, runtime.name):
            return runtime, report.origin.version or runtime.releases[-1]
    raise FindingsError(f"backend {report.backend}: must be one of {', '.join(r.backend for r in known)}")


def changes(report: Report, known: Sequence[Runtime]) -> tuple[list[str], list[Finding]]:
    """The failing cases that no finding lists, and the findings without a failing case.

    Findings that ended before the report's release list nothing. Findings without a case in the report are left out.

    Raises:
        FindingsError: no list is of this backend.
    """
    runtime, version = of_report(report, known)
    present = [finding for finding in runtime.findings if not finding.ended or version in finding.releases]
    bad = [case_id for case_id, entry in report.entries.items() if entry.outcome in _BAD]
    unlisted = [case_id for case_id in bad if not any(finding.lists(case_id) for finding in present)]
    tested = [finding for finding in present if any(finding.lists(case_id) for case_id in report.entries)]
    return unlisted, [finding for finding in tested if not any(map(finding.lists, bad))]


def count(report: Report, known: Sequence[Runtime]) -> Counts:
    """The counts of a report.

    Raises:
        FindingsError: no list is of this backend; the report is not complete; or failures were expected in the run,
            which hides whether they were wrong numbers or crashes.
    """
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
    supported = {name: kinds for name, kinds in operators.items() if set(kinds) != {Outcome.UNSUPPORTED.value}}
    outcomes = sorted((case_id, entry.outcome.value) for case_id, entry in report.entries.items())
    digest = hashlib.sha256(json.dumps(outcomes).encode()).hexdigest()[:16]
    origin = report.origin
    made = (origin.suite, origin.onnx, origin.python, origin.platform, origin.date[:10])
    ordered = {
        name: {outcome.value: kinds[outcome.value] for outcome in OUTCOMES if kinds[outcome.value]}
        for name, kinds in supported.items()
    }
    return Counts(runtime.name, version, *made, digest, ordered)


def read_counts() -> list[Counts]:
    """The counts that are kept in findings.json."""
    return [Counts(**run) for run in json.loads(KEPT.read_text("utf-8"))["runs"]]


def add(files: Sequence[Path]) -> Iterator[str]:
    """Add the counts of reports to findings.json, and yield a line for each change of what is known.

    Args:
        files: reports that `python -m conformance --json` wrote of complete runs with an empty list of expected failures.

    Raises:
        NotAReportError: a file is not a report.
        FindingsError: see `count`.
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
    order = [runtime.name for runtime in known]
    named = [run for run in runs.values() if run.runtime in order]
    return sorted(named, key=lambda run: (order.index(run.runtime), _numbers(run.version)))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def rewritten(text: str, known: Sequence[Runtime], runs: Sequence[Counts]) -> str:
    """The document with its parts written from data.

    Raises:
        FindingsError: a part has no markers.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("docs"),
        autoescape=False,  # noqa: S701  # Markdown, of our own texts
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"anchor": _anchor, "thread": _thread}
    environment.globals |= {
        "runtimes": known,
        "harms": HARMS,
        "outcomes": [outcome.value for outcome in OUTCOMES],
        "groups": [(runtime, list(group)) for runtime in known for group in _same_outcomes(runtime, runs)],
    }
    macros = environment.get_template("findings.md.jinja").module
    for name in PARTS:
        begin, end = _markers(name)
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise FindingsError(f"the document has no part {name}: must have the lines {begin} and {end}")
        text = f"{before}{begin}\n\n{str(getattr(macros, name)()).strip()}\n\n{end}{after}"
    return text


def _same_outcomes(runtime: Runtime, runs: Sequence[Counts]) -> Iterator[Iterator[Counts]]:
    """The runs of a runtime, neighbouring releases with the same outcomes together."""
    own = (run for run in runs if run.runtime == runtime.name)
    return (group for _, group in itertools.groupby(own, lambda run: run.digest))


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- {name}: written by python -m docs -->", f"<!-- end of {name} -->"


def _thread(url: str) -> str:
    """How GitHub names an issue or pull request: owner/name#number."""
    owner, name, _, number = url.removeprefix("https://github.com/").split("/")
    return f"{owner}/{name}#{number}"


def _anchor(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
