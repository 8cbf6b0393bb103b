# SPDX-License-Identifier: MIT
"""Reports: their files, and what is shown of them on the terminal, in Markdown and on a page."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import Result as Done
from rich.console import Console

import ortops
from conformance import backends
from conformance.case import Array, Basis
from conformance.cases import collect
from conformance.diagnosis import Diagnosis
from conformance.families import all_mutants
from conformance.outcome import Outcome, Reason, Result
from conformance.report import failure_list, page, record, terminal
from conformance.report.causes import causes_of
from conformance.report.counts import brief, rows
from conformance.report.record import NotAReportError, Report, read, read_merged, report_of
from conformance.run import Answer, ask, judge
from ortops import atomic_file
from rude_backends import CLEARS, SHOWN
from suite_runs import INSIDE, run, stored

pytestmark = pytest.mark.usefixtures("no_processes")


def test_the_table_has_passed_of_total_and_the_other_outcomes(tmp_path: Path) -> None:
    a = {f"f/one/{i}": outcome for i, outcome in enumerate(["passed", "failed", "unsupported", "crashed"])}
    b = {"f/one/0": "unsupported", "f/two/0": "expected_failure", "g/one/0": "passed"}
    files = [stored(tmp_path / f"{name}.json", name, outcomes) for name, outcomes in (("a", a), ("b", b))]
    result = run("matrix", *files, "--markdown", tmp_path / "m.md")
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert lines[lines.index("f/one 1/4 unsupported") :][:4] == [
        "f/one 1/4 unsupported",
        "1 crashed",
        "1 failed",
        "1 unsupported",
    ]
    assert (tmp_path / "m.md").read_text("utf-8").splitlines()[:6] == [
        "| group of cases | a | b |",
        "| --- | ---: | ---: |",
        "| f/one | 1/4, 1 crashed, 1 failed, 1 unsupported | unsupported |",
        "| f/two |  | 0/1, 1 expected failure |",
        "| g/one |  | 1/1 |",
        "| all | 1/4, 1 crashed, 1 failed, 1 unsupported | 1/3, 1 expected failure, 1 unsupported |",
    ]


def test_what_a_report_holds_is_text_in_markdown_and_on_the_page(tmp_path: Path) -> None:
    bad = "</title><b onclick='x'>[red]|*c*\ud800\x00\r"
    file, table = (tmp_path / name for name in ("a.json", "m.md"))
    stored(file, bad, {f"f/{bad}/a": "failed", INSIDE: "failed", "f/no/a": "unsupported"})
    result = run("matrix", file, "--markdown", table)
    assert result.exit_code == 0, result.output
    assert r"<b onclick='x'>[red]|*c*\ud800\x00\r" in result.output
    assert r"\<b onclick='x'\>\[red\]\|\*c\*\\ud800\\x00\\r |" in table.read_text("utf-8").splitlines()[0]
    text = page.render(read(file), [])
    assert text.count("&lt;b onclick=&#39;x&#39;&gt;[red]|*c*\\ud800\\x00\\r") > 2
    assert not re.search("<(b onclick|script|link)\\b", text)


def test_a_backend_that_fails_is_asked_and_is_status_0(tmp_path: Path) -> None:
    file = stored(tmp_path / "a.json", "mine", {INSIDE: "passed"})
    result = run("matrix", "wrong_backends:NoHalfPixel", "reference", file, "--select", INSIDE)
    assert result.exit_code == 0
    assert re.search(r"group of cases +mine +wrong_backends:NoHalfPixel +reference \d", result.output)
    assert re.search(r"roi_align/edge +1/1 +0/1 +1/1 *\n +1 failed", result.output)


# Report files: what is read is what was written, a file is never half written, and a wrong file is refused.


CASES = [case for case in collect() if case.group in ("roi_align/official", "roi_align/refusal")][::5]


def results() -> list[Result]:
    """Right answers, answers that are off by one, an accepted invalid case and a crash."""
    reference = backends.load("reference")
    answers = [ask(reference, case) for case in CASES]
    for answer in answers[::2]:
        for name, output in (answer.outputs or {}).items():
            answer.outputs[name] = output + 1  # type: ignore[index]
    some = {name: np.ones((1, 1, 1, 1), np.float32) for name in CASES[-1].outputs}
    answers[-2:] = [Answer("crash", text="gone", seconds=1.5), Answer("outputs", some)]
    return [judge(case, answer) for case, answer in zip(CASES, answers, strict=True)]


def write(file: Path, report: record.Report) -> None:
    atomic_file.write(file, record.render(report))


REPORT = report_of("reference", results())


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    write(tmp_path / "r.json", REPORT)
    report = read(tmp_path / "r.json")
    assert report == REPORT
    assert {entry.outcome for entry in report.entries.values()} == {Outcome.PASSED, Outcome.FAILED, Outcome.CRASHED}
    assert report.origin.version == report.origin.suite == ortops.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", report.origin.date)
    assert [case_id for case_id, entry in report.entries.items() if entry.reason is Reason.ACCEPTED] == [CASES[-1].id]
    for back, result in zip(report.entries.values(), results(), strict=True):
        assert (back.worst is None) == (result.worst is None)
        if back.worst and result.worst:
            assert (back.worst.error, back.worst.allowed) == (result.worst.error, result.worst.allowed)
        assert {name: a.tobytes() for name, a in back.outputs.items()} == {
            name: a.tobytes() for name, a in result.outputs.items()
        }


def test_shards_are_one_report_and_two_versions_are_two(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.json", "b.json", "c.json")]
    other = replace(REPORT, origin=replace(REPORT.origin, version="9.9"))
    parts = report_of("reference", results()[:9]), report_of("reference", results()[9:], complete=False), other
    for file, part in zip(files, parts, strict=True):
        write(file, part)
    first, second = read_merged(files)
    assert (first.title, second.title) == (f"reference {ortops.__version__}", "reference 9.9")
    assert set(first.entries) == set(second.entries)
    assert (first.complete, second.complete) == (False, True)
    write(files[1], parts[0])
    rule = "has, too: releases must differ in their versions, such as `__version__` of the backend's module"
    with pytest.raises(
        NotAReportError, match=rf"b\.json has case {CASES[0].id} of reference.*, which .*a\.json {rule}"
    ):
        read_merged(files)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int64, np.uint32])
def test_a_tensor_comes_back_bit_for_bit(dtype: Any) -> None:
    values = [0.0, 1.0, 3.0] if np.dtype(dtype).kind in "iu" else [np.nan, np.inf, -np.inf, -0.0, 1.5, 1e-3]
    given: dict[str, Array] = {
        "Y": np.array([values], dtype),
        "empty": np.zeros((0, 2), dtype),
        "one": np.array(1, dtype),
    }
    back = record.decode(json.loads(json.dumps(record.encode(given), allow_nan=False)))
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in back.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in given.items()
    }


def test_outputs_of_other_types_are_not_stored_and_names_are_printable() -> None:
    assert record.encode({"Y": np.array(["text"]), "Z": np.array([True]), "W": np.array([None])}) == {}
    assert list(record.decode(record.encode({"\x1b[2J": np.zeros(1, np.float32)}))) == [r"\x1b[2J"]


# What `compare` shows of two reports.


def compare(tmp_path: Path, before: dict[str, str], after: dict[str, str]) -> Done:
    files = [stored(tmp_path / "a.json", "old", before), stored(tmp_path / "b.json", "new", after)]
    return run("compare", *files)


def test_compare_prints_counts_of_groups_that_differ_and_then_the_cases_the_worst_first(tmp_path: Path) -> None:
    before = {
        "f/one/a": "passed",
        "f/one/b": "failed",
        "f/one/c": "unsupported",
        "f/two/d": "failed",
        "f/two/f": "passed",
    }
    after = {"f/one/a": "failed", "f/one/b": "passed", "f/one/c": "expected_failure", "f/two/d": "crashed"}
    same = {"g/one/g": "passed", "g/one/h": "crashed"}
    result = compare(tmp_path, before | same, after | same | {"f/two/n": "passed"})
    assert result.exit_code == 1
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "f/two 1 -> 0 0 -> 1" in lines
    assert not any(line.startswith("g/one") for line in lines)
    assert lines[lines.index("1 newly failing") :] == [
        *("1 newly failing", "f/one/a: passed -> failed", "failed: [red]why[/]"),
        *("1 failing otherwise", "f/two/d: failed -> crashed", "crashed: [red]why[/]"),
        *("1 no longer failing", "f/one/b: failed -> passed"),
        *("1 with another outcome", "f/one/c: unsupported -> expected_failure"),
        *("1 new", "f/two/n: passed", "1 gone", "f/two/f: passed"),
        (
            "1 newly failing, 1 failing otherwise, 0 passing unexpectedly, 1 no longer failing, 1 with another outcome, "
            "1 new, 1 gone"
        ),
    ]


def test_compare_tells_unexpected_passes_from_failures(tmp_path: Path) -> None:
    before = {"f/one/a": "expected_failure", "f/one/b": "listed", "f/one/c": "listed", "f/one/d": "failed"}
    result = compare(tmp_path, before, dict(zip(before, ("listed", "passed", "failed", "listed"), strict=True)))
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert lines[lines.index("1 newly failing") :] == [
        *("1 newly failing", "f/one/c: unexpected_pass -> failed", "failed: [red]why[/]", "2 passing unexpectedly"),
        *("f/one/a: expected_failure -> unexpected_pass", "passed, but is listed"),
        *("f/one/d: failed -> unexpected_pass", "passed, but is listed"),
        *("1 with another outcome", "f/one/b: unexpected_pass -> passed"),
        (
            "1 newly failing, 0 failing otherwise, 2 passing unexpectedly, 0 no longer failing, 1 with another outcome, "
            "0 new, 0 gone"
        ),
    ]


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("passed", "failed", 1),
        ("unsupported", "crashed", 1),
        ("expected_failure", "failed", 1),
        (None, "failed", 1),
        ("failed", "crashed", 0),
        ("crashed", "passed", 0),
        ("passed", "unsupported", 0),
        ("failed", None, 0),
        (None, "passed", 0),
        ("failed", "failed", 0),
        ("expected_failure", "listed", 0),
        (None, "listed", 0),
        ("listed", "failed", 1),
    ],
)
def test_the_status_is_1_if_a_case_begins_to_fail(
    tmp_path: Path, before: str | None, after: str | None, status: int
) -> None:
    old, new = ({"f/one/a": "passed"} | ({"f/one/b": outcome} if outcome else {}) for outcome in (before, after))
    assert compare(tmp_path, old, new).exit_code == status


PASSED = {"id": "a", "outcome": "passed"}
WRONG_OUTPUTS: list[tuple[object, str]] = [
    ([], "its outputs have no names"),
    ({"Y": 1}, "output Y: type None is not one of float16"),
    ({"Y": {"type": "float", "shape": [-1], "data": ""}}, "output Y: shape [-1] is not a list of lengths"),
    ({"Y": {"type": "float", "shape": [True], "data": "AAAAAA=="}}, "output Y: shape [True] is not a list of lengths"),
    ({"Y": {"type": "float", "shape": [1], "data": "*"}}, "output Y: data is not base64"),
    ({"Y": {"type": "float", "shape": [2**40], "data": "AAAA"}}, "output Y: 3 bytes of data for shape"),
    ({"Y": {"type": "float", "shape": [1] * 99, "data": "AAAAAA=="}}, "maximum supported dimension"),
]


def of_cases(*cases: object) -> bytes:
    """A report file with these cases."""
    return json.dumps({"backend": "b", "cases": cases}).encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe", "codec can't decode"),
        (b"[" * 200_000, "recursion" if sys.version_info < (3, 14) else "Stack overflow"),
        (b"[]", "names no backend"),
        (b'{"cases": []}', "names no backend"),
        (b'{"backend": "b"}', "no list of cases"),
        (
            b'{"backend": "b", "cases": [], "level": "all"}',
            "level = 'all': must be one of core, standard, strict, or null",
        ),
        (of_cases(1), "a case has no id"),
        (of_cases({"id": "a"}), "case a: outcome = None: must be one of passed, failed"),
        (of_cases({"id": "a", "outcome": []}), "case a: outcome = []: must be"),
        (of_cases({**PASSED, "outcome": "good"}), "case a: outcome = 'good': must be"),
        (of_cases({**PASSED, "basis": "mine"}), "basis = 'mine': must be"),
        (of_cases({**PASSED, "seconds": -1}), "seconds = -1: must be"),
        (of_cases({**PASSED, "allowed": float("nan")}), "allowed = nan: must be"),
        (of_cases({**PASSED, "max_error": True}), "max_error = True: must"),
        (of_cases(PASSED, PASSED), "case a twice"),
        *((of_cases({**PASSED, "outputs": outputs}), f"case a: {message}") for outputs, message in WRONG_OUTPUTS),
    ],
)
def test_a_file_that_is_no_report_says_why(tmp_path: Path, text: bytes, message: str) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_bytes(text)
    with pytest.raises(NotAReportError, match=r"wrong\.json") as raised:
        read(wrong)
    assert message in str(raised.value)


def test_what_reports_of_others_say_is_printable(tmp_path: Path) -> None:
    case = {"id": f"f/{CLEARS}/a", "outcome": "failed", "max_error": None, "allowed": None, "message": CLEARS}
    before, after = stored(tmp_path / "a.json", CLEARS, {}), tmp_path / "b.json"
    after.write_text(json.dumps({"backend": CLEARS, "summary": {}, "cases": [case]}), "utf-8")
    done = run("compare", before, after)
    assert (done.exit_code, f"f/{SHOWN}/a: failed\n      {SHOWN}\n" in done.output) == (1, True)
    after.write_text(json.dumps({"backend": "b", "cases": [{**case, "outputs": {CLEARS: {}}}]}), "utf-8")
    done = run("compare", before, after)
    assert (done.exit_code, r"\x1b[2J" in done.output) == (2, True)


# What a run prints: totals and causes before tables, never many lines, no broken words on a narrow terminal.


BY_ID = {case.id: case for case in collect()}
VALID = [case for case in collect() if not case.expects_error and case.basis is not Basis.OURS]


FIRST_OF_GROUPS = list({case.group: case for case in VALID if case.id.startswith("roi_align/")}.values())


def test_a_runtime_with_many_failures_has_a_short_report() -> None:
    output = run("--backend", "wrong_backends:fails_in_many_ways", "--select", "roi_align/[em]*/v16/*").output
    failed = re.search(r"(\d+) failed", output.splitlines()[-1])
    assert failed is not None
    assert int(failed[1]) >= 120
    assert len(output.splitlines()) <= 60


def test_totals_and_causes_come_first_and_a_cause_is_one_line_for_all_groups() -> None:
    output = run("--backend", "wrong_backends:answers_one", "--select", "roi_align/[em]*/v16/float").stdout
    lines = output.splitlines()
    assert re.fullmatch(r"does not conform at level standard: \d+ rules broken: .+; .+; .+; and \d+ more", lines[1])
    assert re.fullmatch(r"\d+ of \d+ passed, \d+ failed, \d+ departed; \d+ s", lines[2])
    assert re.fullmatch(r"\d+ failed: wrong number \[roi_align/\w+\]", lines[3])
    assert re.fullmatch(r"\d+ failed: wrong shape \[roi_align/\w+, roi_align/\w+, \d+ other groups\]", lines[4])
    assert sum(": wrong shape" in line for line in lines) == 1
    assert next(i for i, line in enumerate(lines) if "group of cases" in line) > 3


@pytest.mark.parametrize(
    ("wrong", "reasons"),
    [
        ([Reason.TYPE, Reason.TYPE], ["wrong element type, such as float16 instead of bfloat16"]),
        ([Reason.SHAPE, Reason.SHAPE], ["wrong shape"]),
        ([Reason.NO_OUTPUT], ["missing output"]),
        ([Reason.NAN, Reason.NAN], ["NaN instead of a number"]),
        ([Reason.INFINITY], ["infinity instead of a number"]),
        ([Reason.SPECIAL, Reason.SPECIAL], ["wrong output where NaN or infinity is expected"]),
        ([Reason.NUMBER, Reason.NAN], ["wrong number", "NaN instead of a number"]),
        ([None, None], ["Y: expected type bfloat16, got type float16"]),
    ],
)
def test_a_wrong_output_without_a_diagnosis_is_a_cause_for_each_kind_of_mistake(
    wrong: list[Reason | None], reasons: list[str]
) -> None:
    text = "Y: expected type bfloat16, got type float16"
    results = [Result(c.id, Outcome.FAILED, text, reason=why) for c, why in zip(FIRST_OF_GROUPS, wrong, strict=False)]
    assert [cause.reason for cause in causes_of(results, [])] == reasons


@pytest.mark.parametrize(
    ("expected", "got", "reason"),
    [
        (10.0, 9.0, Reason.NUMBER),
        (10.0, np.nan, Reason.NAN),
        (-10.0, -np.inf, Reason.INFINITY),
        (np.nan, 3.0, Reason.SPECIAL),
        (-np.inf, np.inf, Reason.SPECIAL),
    ],
)
def test_the_reason_of_a_wrong_element_is_stored(expected: float, got: float, reason: Reason) -> None:
    case = replace(BY_ID[INSIDE], expected={"Y": np.full((1, 1, 1, 1), expected)})
    result = judge(case, Answer("outputs", {"Y": np.full((1, 1, 1, 1), got, np.float32)}))
    assert (result.outcome, result.reason) == (Outcome.FAILED, reason)


def test_a_wrong_element_type_is_one_cause_even_if_another_mistake_of_the_group_is_diagnosed() -> None:
    case, other = FIRST_OF_GROUPS[:2]
    mutant = next(mutant for mutant in all_mutants() if mutant.short_name == "NoHalfPixel")
    text = "Y: expected type bfloat16, got type float16"
    results = [Result(failed.id, Outcome.FAILED, text, reason=Reason.TYPE) for failed in (case, other)]
    causes = causes_of(results, [Diagnosis(case.group, (mutant,), 1, 1)])
    assert [str(cause) for cause in causes] == [
        f"2 failed: wrong element type, such as float16 instead of bfloat16 [{case.group}, {other.group}]"
    ]
    listed = failure_list.listed(results, [], [], [case.id, other.id])
    assert {entry.reason for entry in listed} == {"wrong element type, such as float16 instead of bfloat16"}


def test_departures_are_counted_and_listed_on_request_only() -> None:
    asked = ("--backend", "wrong_backends:answers_one", "--select", "roi_align/edge/*/v16/float", "--level", "core")
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
    terminal.write(report, out, causes_of(list(report.entries.values()), []), verbose=True)
    return text.getvalue()


def test_no_word_breaks_on_a_terminal_of_80_columns_and_broken_lines_are_indented() -> None:
    kinds = [Result(VALID[0].id, outcome, "Some words. " * 30) for outcome in Outcome]
    kinds[:2] = Result(VALID[0].id, Outcome.PASSED), Result(VALID[0].id, Outcome.FAILED, "no", reason=Reason.ACCEPTED)
    results = [replace(kinds[k % len(kinds)], id=case.id) for k, case in enumerate(VALID[::5])]
    report = report_of("b", results)
    assert len({case_id.rsplit("/", 3)[0] for case_id in report.entries}) > 50
    narrow, wide = (re.sub("[─]+", "", printed(report, width)).split() for width in (80, 1000))
    assert sorted(narrow) == sorted(wide)
    lines = [line.rstrip() for line in printed(report, 80).splitlines() if line.split(" ")[-1] not in report.entries]
    assert max(map(len, lines)) <= 80
    assert {line[:4] for line in lines if line.lstrip().startswith(("Some", "words"))} == {"    "}
    rows = [line for line in lines if re.search(r"\d/\d+   .*\d", line)]
    assert any(row.endswith(",") for row in rows)  # a cell breaks after a comma alone
    assert [row for row in rows if row[-1].isdigit()] == []


def test_the_page_has_totals_the_time_and_a_picture_for_each_cause(tmp_path: Path) -> None:
    asked = ("--select", "roi_align/edge/[h-s]*/v16/float", "--html", tmp_path / "p.html")
    assert run("--backend", "conformance.families.roi_align.mutants:ShiftBeforeScale", *asked).exit_code == 1
    text = (tmp_path / "p.html").read_text("utf-8")
    assert text.count("<figure>") == text.count('<img src="data:image/svg+xml;base64,') == 1
    assert len(text) < 500_000
    plain = text.replace("<wbr>", "")
    assert "answers like ShiftBeforeScale: " in plain
    assert re.search(r'<td class="failed">failed</td><td>roi_align/edge/\w+/v16/float</td>', plain)
    assert text.index('<p class="totals">') < text.index("<figure>") < text.index("<table>")
    assert text.index('<th scope="row">all') < text.index('<th scope="row">roi_align/<wbr>edge')
    assert "roi_<wbr>align" not in text


def test_the_groups_with_most_failures_have_rows_of_their_own() -> None:
    bad = [Result(f"f/g{k:02}/{n}", Outcome.FAILED, "no") for k in range(20) for n in range(k + 1)]
    good = [Result(f"g/g{k}/0", Outcome.PASSED) for k in range(5)]
    none = [Result(f"h/g{k}/0", Outcome.UNSUPPORTED, "no") for k in range(4)]
    shown = brief(rows([report_of("b", [*bad, *good, *none])]), 10)
    folded = ["10 other groups", "5 groups that pass", "4 unsupported groups"]
    assert [row.name for row in shown] == [*(f"f/g{k}" for k in range(10, 20)), *folded]
    assert sum(row.tallies[0].total() for row in shown) == len(bad) + len(good) + len(none)
    assert shown[-1].groups == ("h/g0", "h/g1", "h/g2", "h/g3")
