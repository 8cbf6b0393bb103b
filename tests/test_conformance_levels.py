# SPDX-License-Identifier: MIT
"""Levels: what a run asks for, and the verdict that its reports begin with."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from conformance.case import Basis, Level
from conformance.cases import by_id
from conformance.expected_failures import read
from conformance.outcome import Outcome, Reason, Result
from conformance.report.causes import causes_of
from conformance.report.record import report_of
from conformance.report.verdict import broken_rules, verdict
from suite_runs import INSIDE, outcomes, report, run

CASES = by_id()
OF_BASIS = [next(case.id for case in CASES.values() if case.basis is basis) for basis in Basis]
PASSED, SCENES, TYPES = (Outcome.PASSED, None), ("inside", "zero_size_ratio_2"), ("float", "float16")
WRONG = ("--backend", "wrong_backends:answers_one", "--select", "roi_align/edge/*_h*/v16/float")

pytestmark = pytest.mark.usefixtures("no_processes")


@pytest.fixture(autouse=True)
def no_diagnoses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks for mutants that answer like the backends, which takes seconds."""
    monkeypatch.setattr("conformance.report.files.diagnose", lambda _: [])


def result(case_id: str, outcome: Outcome, reason: Reason | None = Reason.NUMBER) -> Result:
    return Result(case_id, outcome, reason=reason, basis=CASES[case_id].basis)


@pytest.mark.parametrize(("level", "count"), [(Level.CORE, 1), (Level.STANDARD, 3), (Level.STRICT, 4)])
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.DEPARTED, Outcome.EXPECTED_FAILURE])
def test_a_level_asks_for_its_rules_whatever_the_run_asked_for_and_expected(
    outcome: Outcome, level: Level, count: int
) -> None:
    broken = broken_rules([result(case_id, outcome) for case_id in reversed(OF_BASIS)], level)
    assert list(broken) == [CASES[case_id].note for case_id in OF_BASIS[:count]]


def test_a_crash_and_a_written_input_break_rules_of_any_level() -> None:
    ours, written = CASES[OF_BASIS[-1]].note, "inputs and earlier outputs are not written to"
    for outcome, reason, rules in (
        (Outcome.FAILED, Reason.LISTED, []),
        (Outcome.FAILED, Reason.ACCEPTED, []),
        (Outcome.CRASHED, Reason.ENDED, [ours]),
        (Outcome.EXPECTED_FAILURE, Reason.ENDED, [ours]),
        (Outcome.EXPECTED_FAILURE, Reason.TIME, ["answers come within the time limit"]),
        (Outcome.CRASHED, Reason.MEMORY, ["answers take no more than the memory limit"]),
        (Outcome.FAILED, Reason.WROTE, [written]),
    ):
        assert list(broken_rules([result(OF_BASIS[-1], outcome, reason)], Level.CORE)) == rules


@pytest.mark.parametrize("reason", [Reason.REFUSED, Reason.NO_KERNEL])
def test_an_operator_that_never_answers_or_never_in_a_type_breaks_one_rule(reason: Reason) -> None:
    ids = [f"roi_align/edge/half_pixel_{scene}/v{v}/{t}" for scene in SCENES for v in (16, 22) for t in TYPES]
    results = [
        result(i, *(PASSED if "v16" in i and not i.endswith("float16") else (Outcome.FAILED, reason))) for i in ids
    ]
    assert set(broken_rules(results, Level.STANDARD)) == {"RoiAlign-22 runs", "RoiAlign-16 runs with float16"}
    # Nobody knows of an operator that refuses one case alone whether it runs, unless it has no kernel.
    alone = result(ids[0], Outcome.FAILED, reason)
    rule = CASES[ids[0]].note if reason is Reason.REFUSED else "RoiAlign-16 runs"
    assert list(broken_rules([alone], Level.STANDARD)) == [rule]


def test_the_verdict_counts_the_rules_and_names_three_the_first_of_each_cause_first() -> None:
    notes = {case.note: case for case in CASES.values() if case.basis is Basis.TEXT and not case.expects_error}
    first, *others = list(notes.values())[:5]
    failures = [result(case.id, Outcome.FAILED) for case in (first, *others)]
    passed = report_of("b", [result(first.id, Outcome.PASSED, None)], level=Level.CORE)
    assert verdict(passed) == "conforms at level core in all 1 judged cases"
    assert verdict(report_of("b", failures[:1])) == f"does not conform at level standard: 1 rule broken: {first.note}"
    causes = causes_of(failures[3:], [])
    words = verdict(report_of("b", failures), causes)
    named = [others[2].note, first.note, others[0].note]
    assert words == f"does not conform at level standard: 5 rules broken: {'; '.join(named)}; and 2 more"
    assert verdict(report_of("b", [result(first.id, Outcome.UNSUPPORTED)])).endswith("no case was judged")


def test_all_reports_say_the_verdict_first_and_the_level(tmp_path: Path) -> None:
    xml, html = tmp_path / "r.xml", tmp_path / "r.html"
    done, data = report(tmp_path, *WRONG, "--level", "core", "--junit", xml, "--html", html)
    _, words = done.stdout.splitlines()[:2]
    assert re.match(r"does not conform at level core: \d+ rules broken: ", words)
    assert data["level"] == "core"
    suite = ET.parse(xml).find("testsuite/properties")  # noqa: S314  # our own file
    assert suite is not None
    assert {p.get("name"): p.get("value") for p in suite} == {"level": "core", "verdict": words}
    text = html.read_text("utf-8")
    assert 0 < text.index("does not conform at level core") < text.index("passed</b>")


@pytest.mark.parametrize(
    ("options", "level"),
    [("", "standard"), ("--strict text", "core"), ("--strict vectors", "standard"), ("--strict all", "strict")],
)
def test_the_older_option_is_an_alias_and_says_so(tmp_path: Path, options: str, level: str) -> None:
    done, data = report(tmp_path, "--backend", "wrong_backends:ten", "--select", INSIDE, options)
    assert (data["level"], "Use --level core, standard or strict" in done.output) == (level, bool(options))


def test_a_list_has_the_level_of_its_run_and_runs_with_it_too(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    assert run(*WRONG, "--level", "core", "--write-expected-failures", file).exit_code == 0
    assert read(file, CASES).level is Level.CORE
    for options, level in (("", "core"), ("--level strict", "strict")):
        done, data = report(tmp_path, *WRONG, "--expected-failures", file, options)
        assert (data["level"], done.exit_code) == (level, int(level == "strict"))
    run(*WRONG, "--write-expected-failures", file, "--update")
    assert read(file, CASES).level is Level.CORE


def test_a_run_that_goes_on_at_another_level_judges_again(tmp_path: Path) -> None:
    _, before = report(tmp_path, *WRONG, "--level", "strict")
    _, after = report(tmp_path, *WRONG, "--level", "core", "--resume", tmp_path / "report.json")
    _, fresh = report(tmp_path, *WRONG, "--level", "core")
    assert outcomes(before) != outcomes(after) == outcomes(fresh)
