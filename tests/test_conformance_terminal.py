"""What a run prints: totals and causes before tables, never many lines, and no broken words on a narrow terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from conformance.case import Basis
from conformance.outcome import ACCEPTED, Outcome, Result
from conformance.report import terminal
from conformance.report.causes import causes_of
from conformance.report.record import Entry, Report, report_of
from conformance.vectors import collect
from suite_runs import run

CASES = [case for case in collect() if not case.expects_error and case.basis is not Basis.OURS]
MANY = "*[em][da][gt]*"
"""The groups edge and matrix of all operators."""

pytestmark = pytest.mark.usefixtures("no_processes")


@pytest.mark.parametrize("backend", ["answers_one", "fails_in_many_ways"])
def test_a_runtime_with_many_failures_has_a_short_report(backend: str) -> None:
    output = run("--backend", f"wrong_backends:{backend}", "--select", MANY).output
    failed = re.search(r"(\d+) failed", output.splitlines()[-1])
    assert failed is not None
    assert int(failed[1]) >= 500
    assert len(output.splitlines()) <= 60


def test_totals_and_causes_come_first_and_a_cause_is_one_line_for_all_groups() -> None:
    output = run("--backend", "wrong_backends:answers_one", "--select", "roi_align/*/v16/float").output
    lines = output.splitlines()
    assert re.fullmatch(r"\d+ of \d+ passed, \d+ failed, \d+ departed; \d+ s", lines[1])
    (cause,) = [line for line in lines if ": wrong output [" in line]
    assert re.fullmatch(r"\d+ failed: wrong output \[roi_align/\w+, roi_align/\w+, \d+ other groups\]", cause)
    assert lines.index(cause) == 2 < next(i for i, line in enumerate(lines) if "group of cases" in line)


def test_groups_without_support_are_one_row() -> None:
    output = run("--backend", "wrong_backends:answers_one", "--select", "*/edge/*").output
    rows = [" ".join(line.split()) for line in output.splitlines() if line.startswith("  ")]
    assert [row for row in rows if row.endswith(" unsupported") and "/" not in row] == [
        "8 unsupported groups unsupported"
    ]


def test_departures_are_counted_and_listed_on_request_only() -> None:
    asked = ("--backend", "wrong_backends:answers_one", "--select", "roi_align/edge/*/v16/float", "--strict", "text")
    brief, whole = run(*asked).output, run(*asked, "--verbose").output
    for output in (brief, whole):
        assert re.search(r"passed, \d+ failed, \d+ departed", output.splitlines()[-1])
    assert not re.search(r"^\d+ departed: ", brief, re.MULTILINE)
    assert re.search(r"^\d+ departed: roi_align/edge/", whole, re.MULTILINE)
    failed = int(whole.splitlines()[-1].split()[2])
    assert len(re.findall("^failed ", whole, re.MULTILINE)) == failed > len(re.findall("^failed ", brief, re.MULTILINE))


def printed(report: Report, width: int) -> str:
    """What a terminal of this width shows of a report."""
    text = io.StringIO()
    out = Console(file=text, width=width, force_terminal=True, color_system=None)
    terminal.write(report, out, causes_of(report.results(collect()), []), verbose=True)
    return text.getvalue()


def test_no_word_breaks_on_a_terminal_of_80_columns() -> None:
    outcomes, messages = list(Outcome), {Outcome.PASSED: "", Outcome.FAILED: f"{ACCEPTED}its data is wrong: no"}
    results = [
        Result(case, outcomes[k % len(outcomes)], messages.get(outcomes[k % len(outcomes)], "Some words. " * 30))
        for k, case in enumerate(CASES[::5])
    ]
    report = report_of("b", results)
    assert len({case_id.rsplit("/", 3)[0] for case_id in report.entries}) > 50
    narrow, wide = (re.sub("[─]+", "", printed(report, width)).split() for width in (80, 1000))
    assert sorted(narrow) == sorted(wide)
    lines = [line for line in printed(report, 80).splitlines() if line.split(" ")[-1] not in report.entries]
    assert max(map(len, lines)) <= 80


def test_a_cause_has_the_worst_outcome_and_most_cases_first() -> None:
    crash, refusal = Outcome.CRASHED, Outcome.FAILED
    said = [(refusal, "refused: E: 7 rows")] * 3 + [(refusal, "refused: F")] + [(crash, "no answer within 5 s")]
    results = [Result(case, outcome, message) for case, (outcome, message) in zip(CASES, said, strict=False)]
    found = causes_of([*results, Result(CASES[9], refusal, "refused: E: 8 rows")], [])
    assert [(one.outcome, one.reason, len(one.results)) for one in found] == [
        (crash, "no answer within 5 s", 1),
        (refusal, "refused: E: 7 rows", 4),
        (refusal, "refused: F", 1),
    ]


def test_the_groups_with_most_failures_have_rows_of_their_own() -> None:
    from conformance.report.matrix import Matrix

    bad = {f"f/g{k:02}/{n}": Entry(Outcome.FAILED, "no") for k in range(20) for n in range(k + 1)}
    good = {f"g/g{k}/0": Entry(Outcome.PASSED) for k in range(5)}
    none = {f"h/g{k}/0": Entry(Outcome.UNSUPPORTED, "no") for k in range(4)}
    rows = Matrix([Report("b", {**bad, **good, **none})]).brief(10)
    folded = ["10 other groups", "5 groups that pass", "4 unsupported groups"]
    assert [row.name for row in rows] == [*(f"f/g{k}" for k in range(10, 20)), *folded]
    assert sum(row.cells[0].total for row in rows) == len(bad) + len(good) + len(none)
    assert rows[-1].groups == ("h/g0", "h/g1", "h/g2", "h/g3")
