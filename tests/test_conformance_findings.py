"""The findings: the lists that they are made of, the command that writes them, and the document as it is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from conformance import expected_failures, findings
from conformance.case import Basis
from conformance.outcome import Outcome
from conformance.report import record
from conformance.report.record import Entry, Origin, Report
from conformance.vectors import collect
from ortops import atomic_file
from suite_runs import run

DOCS = Path(__file__).parent.parent / "docs"
KNOWN = findings.runtimes()

LISTED = "roi_align/refusal/no_rows/v16/float"
"""A case that every release of ONNX Runtime fails, as its list says."""

NOT_LISTED = "roi_align/mmcv/two_by_two/v16/float"


def report_of(outcomes: dict[str, Outcome], version: str = "1.32.0", backend: str = "onnxruntime") -> Report:
    entries = {case_id: Entry(outcome, "off", Basis.OURS) for case_id, outcome in outcomes.items()}
    return Report(backend, entries, Origin(version=version, date="2026-11-22T00:00:00+00:00"))


def written(report: Report, file: Path) -> Path:
    atomic_file.write(file, record.render(report))
    return file


# The lists.


@pytest.mark.parametrize("runtime", KNOWN, ids=lambda runtime: runtime.name)
def test_a_finding_names_a_case_a_rule_an_answer_and_threads(runtime: findings.Runtime) -> None:
    ids = {case.id for case in collect()}
    for finding in runtime.findings:
        assert finding.case in ids
        assert finding.lists(finding.case)
        assert finding.harm in findings.HARMS
        assert finding.releases
        assert finding.rule.endswith(".")
        assert finding.answer.endswith(".")
        for url in finding.upstream:
            assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", url)


@pytest.mark.parametrize("runtime", KNOWN, ids=lambda runtime: runtime.name)
def test_a_finding_that_ended_is_not_expected_to_fail(runtime: findings.Runtime) -> None:
    _, known = expected_failures.load(runtime.name)
    reasons = {failure.reason for failure in known}
    assert reasons == {finding.reason for finding in runtime.findings if not finding.ended}


def test_releases_end_before_the_first_that_is_mended() -> None:
    (onnxruntime,) = (runtime for runtime in KNOWN if runtime.name == "onnxruntime")
    ended = {finding.releases[-1]: finding.ended for finding in onnxruntime.findings if finding.ended}
    assert ended == {"1.23.2": "1.24.4", "1.29.0": "1.30.0"}


# What a report says of them.


def test_a_failing_case_without_a_finding_and_a_finding_without_a_failing_case_are_told() -> None:
    report = report_of({LISTED: Outcome.PASSED, NOT_LISTED: Outcome.FAILED})
    unlisted, gone = findings.changes(report, KNOWN)
    assert unlisted == [NOT_LISTED]
    assert [LISTED in finding.case for finding in gone] == [True]


def test_a_finding_that_has_ended_lists_cases_of_the_releases_that_had_it_alone() -> None:
    outcomes = {"roi_align/refusal/batch_index_N/v16/float": Outcome.DEPARTED}
    assert findings.changes(report_of(outcomes, "1.23.2"), KNOWN) == ([], [])
    assert findings.changes(report_of(outcomes, "1.24.4"), KNOWN) == (list(outcomes), [])


def test_a_backend_without_a_list_is_refused() -> None:
    with pytest.raises(findings.FindingsError, match="backend mine: must be one of onnxruntime"):
        findings.count(report_of({LISTED: Outcome.FAILED}, backend="mine"), KNOWN)


def test_counts_are_of_complete_runs_that_expect_nothing() -> None:
    report = report_of({LISTED: Outcome.DEPARTED, NOT_LISTED: Outcome.PASSED})
    assert findings.count(report, KNOWN).operators == {"roi_align": {"passed": 1, "departed": 1}}
    with pytest.raises(findings.FindingsError, match="is not complete"):
        findings.count(dataclasses.replace(report, complete=False), KNOWN)
    with pytest.raises(findings.FindingsError, match="must be of a run with --expected-failures"):
        findings.count(report_of({LISTED: Outcome.EXPECTED_FAILURE}), KNOWN)


def test_operators_that_are_unsupported_are_not_counted() -> None:
    report = report_of({LISTED: Outcome.PASSED, "dml_resample/edge/x/float": Outcome.UNSUPPORTED})
    assert list(findings.count(report, KNOWN).operators) == ["roi_align"]


def test_a_run_takes_the_place_of_one_with_other_outcomes_alone() -> None:
    old = findings.count(report_of({LISTED: Outcome.DEPARTED}), KNOWN)
    same = dataclasses.replace(old, date="2027-01-01")
    other = dataclasses.replace(old, date="2027-01-01", digest="")
    assert findings.merged([old], [same], KNOWN) == [old]
    assert findings.merged([old], [other], KNOWN) == [other]
    later = dataclasses.replace(old, version="1.100.0")
    assert findings.merged([later], [old], KNOWN) == [old, later]


# The command and the document.


def test_the_command_keeps_counts_and_writes_a_document(tmp_path: Path) -> None:
    counts, document = tmp_path / "counts.json", tmp_path / "findings.md"
    first = written(report_of({LISTED: Outcome.DEPARTED}, "1.31.1"), tmp_path / "first.json")
    second = written(report_of({LISTED: Outcome.DEPARTED}), tmp_path / "second.json")
    assert run("findings", first, "--counts", counts).exit_code == 0
    result = run("findings", second, "--counts", counts, "--markdown", document)
    assert (result.exit_code, result.output) == (0, "ONNX Runtime 1.32.0: as listed\n")
    text = document.read_text("utf-8")
    assert "| ONNX Runtime 1.31.1 to 1.32.0 | `roi_align` | 1 | | | | 1 | |" in text
    assert "## OpenVINO" in text


def test_the_command_names_what_is_new_and_what_is_gone(tmp_path: Path) -> None:
    report = report_of({LISTED: Outcome.PASSED, NOT_LISTED: Outcome.FAILED})
    output = run("findings", written(report, tmp_path / "report.json")).output
    assert f"ONNX Runtime 1.32.0: no finding lists {NOT_LISTED}: off\n" in output
    assert "ONNX Runtime 1.32.0: no case fails any more of: memory before the map" in output


def test_text_outside_of_the_parts_is_left_alone(tmp_path: Path) -> None:
    document = tmp_path / "findings.md"
    document.write_text(f"before\n{findings.blank()}after\n", "utf-8")
    assert run("findings", "--markdown", document).exit_code == 0
    text = document.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert run("findings", "--markdown", document).exit_code == 0
    assert document.read_text("utf-8") == text


def test_a_document_without_markers_is_a_wrong_call(tmp_path: Path) -> None:
    document = tmp_path / "findings.md"
    document.write_text("nothing", "utf-8")
    result = run("findings", "--markdown", document)
    assert result.exit_code == 2
    assert "the document has no part summary" in result.output
    assert document.read_text("utf-8") == "nothing"


@pytest.mark.parametrize("text", ["[", "{}", '{"runs": [{"runtime": "x"}]}'])
def test_a_file_that_holds_no_counts_is_a_wrong_call(text: str, tmp_path: Path) -> None:
    (tmp_path / "counts.json").write_text(text, "utf-8")
    result = run("findings", "--counts", tmp_path / "counts.json")
    assert (result.exit_code, "holds no counts" in result.output) == (2, True)


def test_the_document_is_as_the_data_say() -> None:
    text = (DOCS / "findings.md").read_text("utf-8")
    assert findings.rewritten(text, KNOWN, findings.read_counts(DOCS / "findings.json")) == text
