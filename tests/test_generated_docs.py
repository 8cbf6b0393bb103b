# SPDX-License-Identifier: MIT
"""The generated documents: what is known of runtimes; that all are those that `python -m docs` writes; and pictures."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from conformance import expected_failures
from conformance.case import Basis
from conformance.cases import collect
from conformance.outcome import Outcome, Result
from conformance.report import record
from conformance.report.record import Origin, Report
from docs import findings
from docs.__main__ import main
from docs.generate import generated, stale
from ortops import atomic_file

DOCS = Path(__file__).parent.parent / "docs"
KNOWN = findings.runtimes()

LISTED = "roi_align/refusal/no_rows/v16/float"
"""A case that every release of ONNX Runtime fails, as its list says."""

NOT_LISTED = "roi_align/mmcv/two_by_two/v16/float"


def report_of(outcomes: dict[str, Outcome], version: str = "1.32.0", backend: str = "onnxruntime") -> Report:
    entries = {name: Result(name, outcome, "off", basis=Basis.OURS) for name, outcome in outcomes.items()}
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


# What a report says of them.


def test_a_failing_case_without_a_finding_and_a_finding_without_a_failing_case_are_told() -> None:
    report = report_of({LISTED: Outcome.PASSED, NOT_LISTED: Outcome.FAILED})
    unlisted, gone = findings.changes(report, KNOWN)
    assert unlisted == [NOT_LISTED]
    assert [LISTED in finding.case for finding in gone] == [True]


# The command and the document.


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file for the counts, without any."""
    file = tmp_path / "findings.json"
    file.write_text('{"runs": []}', "utf-8")
    monkeypatch.setattr(findings, "KEPT", file)
    return file


@pytest.mark.usefixtures("kept")
def test_reports_of_equal_outcomes_share_a_row(tmp_path: Path) -> None:
    reports = [report_of({LISTED: Outcome.DEPARTED}, version) for version in ("1.31.1", "1.32.0")]
    files = [written(report, tmp_path / f"{report.origin.version}.json") for report in reports]
    assert list(findings.add(files)) == ["ONNX Runtime 1.31.1: as listed", "ONNX Runtime 1.32.0: as listed"]
    before = (DOCS / "findings.md").read_text("utf-8")
    text = findings.rewritten(before, KNOWN, findings.read_counts())
    assert "| ONNX Runtime 1.31.1 to 1.32.0 | `roi_align` | 1 | | | | 1 | |" in text
    assert text.partition("<!--")[0] == before.partition("<!--")[0]


def test_a_report_that_does_not_count_is_a_wrong_call(kept: Path, tmp_path: Path) -> None:
    file = written(report_of({LISTED: Outcome.EXPECTED_FAILURE}), tmp_path / "report.json")
    result = CliRunner().invoke(main, [str(file)])
    assert (result.exit_code, "has expected failures" in " ".join(result.output.split())) == (2, True)
    assert findings.read_counts() == []
    assert kept.read_text("utf-8") == '{"runs": []}'


FILES = generated()
SVG = {name.removeprefix("images/"): text for name, text in FILES.items() if name.endswith(".svg")}


def test_no_document_and_no_picture_is_stale() -> None:
    assert stale(FILES) == [], "`python -m docs` writes these files again"


def test_a_changed_file_and_a_picture_of_nothing_are_stale() -> None:
    assert stale({**FILES, "operators.md": "changed"}) == ["operators.md"]
    left = {name: text for name, text in FILES.items() if "max-roi-pool" not in name}
    assert stale(left) == ["images/max-roi-pool-dark.svg", "images/max-roi-pool-light.svg"]


@pytest.mark.parametrize("name", sorted(SVG))
def test_a_picture_stands_alone_and_fits(name: str) -> None:
    root = ET.fromstring(SVG[name])  # noqa: S314  # our own
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert root.attrib["viewBox"] == f"0 0 {width:g} {height:g}"
    assert width == 800
    assert not re.search(r"<script|url\(|@import|href|var\(|{{", SVG[name])
    assert "sans-serif" in SVG[name]
    space = "{http://www.w3.org/2000/svg}"
    inner = [child for child in root if child.tag == f"{space}svg"]
    assert inner
    for child in inner:
        assert 0 <= float(child.attrib["x"]) <= width - float(child.attrib["width"])
        assert 0 <= float(child.attrib["y"]) <= height - float(child.attrib["height"])
    for text in root.iter(f"{space}text"):
        if text.attrib["class"] in ("title", "heading", "detail", "result", "hint"):
            # A letter is at most 0.6 of its size wide, on average and in wide fonts.
            size = {"title": 17, "heading": 15, "result": 13}.get(text.attrib["class"], 12)
            assert float(text.attrib["x"]) + 0.6 * size * len(text.text or "") < width
            assert 0 < float(text.attrib["y"]) < height
