"""What `compare` shows of two reports, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from conformance.report.record import NotAReportError, read
from conformance.report.terminal import Group, changes
from rude_backends import CLEARS, SHOWN
from suite_runs import run, stored

A = {
    "f/one/a": "passed",
    "f/one/b": "failed",
    "f/one/c": "unsupported",
    "f/two/d": "failed",
    "f/two/e": "passed",
    "f/two/f": "passed",
    "g/one/g": "passed",
    "g/one/h": "crashed",
}
B = {
    "f/one/a": "failed",
    "f/one/b": "passed",
    "f/one/c": "expected_failure",
    "f/two/d": "crashed",
    "f/two/e": "passed",
    "f/two/n": "passed",
    "f/two/m": "failed",
    "g/one/g": "passed",
    "g/one/h": "crashed",
}


def compare(tmp_path: Path, before: dict[str, str], after: dict[str, str]) -> Result:
    files = [stored(tmp_path / "a.json", "old", before), stored(tmp_path / "b.json", "new", after)]
    return run("compare", *files)


def test_every_change_has_its_group(tmp_path: Path) -> None:
    assert changes(read(stored(tmp_path / "a", "a", A)), read(stored(tmp_path / "b", "b", B))) == {
        Group.NEWLY_FAILING: ["f/one/a", "f/two/m"],
        Group.FAILING_OTHERWISE: ["f/two/d"],
        Group.NO_LONGER_FAILING: ["f/one/b"],
        Group.OTHER: ["f/one/c"],
        Group.NEW: ["f/two/n"],
        Group.GONE: ["f/two/f"],
    }


def test_it_prints_counts_of_families_that_differ_and_then_the_cases_the_worst_first(tmp_path: Path) -> None:
    result = compare(tmp_path, A, B)
    assert result.exit_code == 1
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert lines[0] == "old -> new"
    assert "f/one 1 -> 0 0 -> 1" in lines
    assert "f/two 0 -> 1" in lines
    assert not any(line.startswith("g/one") for line in lines)
    begun = lines.index("2 newly failing")
    assert lines[begun:] == [
        "2 newly failing",
        "f/one/a: passed -> failed",
        "failed: [red]why[/]",
        "f/two/m: failed",
        "failed: [red]why[/]",
        "1 failing otherwise",
        "f/two/d: failed -> crashed",
        "crashed: [red]why[/]",
        "1 no longer failing",
        "f/one/b: failed -> passed",
        "1 with another outcome",
        "f/one/c: unsupported -> expected_failure",
        "1 new",
        "f/two/n: passed",
        "1 gone",
        "f/two/f: passed",
        "2 newly failing, 1 failing otherwise, 1 no longer failing, 1 with another outcome, 1 new, 1 gone",
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
    ],
)
def test_the_status_is_1_if_a_case_begins_to_fail(
    tmp_path: Path, before: str | None, after: str | None, status: int
) -> None:
    old, new = ({"f/one/a": "passed"} | ({"f/one/b": outcome} if outcome else {}) for outcome in (before, after))
    assert compare(tmp_path, old, new).exit_code == status


def test_nothing_changed(tmp_path: Path) -> None:
    result = compare(tmp_path, A, dict(reversed(A.items())))
    assert (result.exit_code, result.output.splitlines()) == (
        0,
        [
            "old -> new",
            "0 newly failing, 0 failing otherwise, 0 no longer failing, 0 with another outcome, 0 new, 0 gone",
        ],
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe", "codec can't decode"),
        (b"[" * 100_000, "recursion"),
        (b"[]", "names no backend"),
        (b'{"cases": []}', "names no backend"),
        (b'{"backend": "b"}', "no list of cases"),
        (b'{"backend": "b", "cases": [1]}', "a case has no id"),
        (b'{"backend": "b", "cases": [{"id": "a"}]}', "case a: outcome = None: must be one of passed, failed"),
        (b'{"backend": "b", "cases": [{"id": "a", "outcome": []}]}', "case a: outcome = []: must be"),
        (b'{"backend": "b", "cases": [{"id": "a", "outcome": "good"}]}', "case a: outcome = 'good': must be"),
        (
            b'{"backend": "b", "cases": [{"id": "a", "outcome": "passed", "basis": "mine"}]}',
            "basis = 'mine': must be",
        ),
        (b'{"backend": "b", "cases": [{"id": "a", "outcome": "passed", "seconds": -1}]}', "seconds = -1: must be"),
        (b'{"backend": "b", "cases": [{"id": "a", "outcome": "passed", "allowed": NaN}]}', "allowed = nan: must be"),
        (b'{"backend": "b", "cases": [{"id": "a", "outcome": "failed", "max_error": true}]}', "max_error = True: must"),
        (
            b'{"backend": "b", "cases": [{"id": "a", "outcome": "passed"}, {"id": "a", "outcome": "failed"}]}',
            "case a twice",
        ),
    ],
)
def test_a_file_that_is_no_report_says_why(tmp_path: Path, text: bytes, message: str) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_bytes(text)
    with pytest.raises(NotAReportError, match=r"wrong\.json") as raised:
        read(wrong)
    assert message in str(raised.value)


def test_a_file_that_is_no_report_or_missing_is_status_2(tmp_path: Path) -> None:
    file, wrong = stored(tmp_path / "a.json", "a", A), tmp_path / "wrong.json"
    wrong.touch()
    for files in ([wrong, file], [file, wrong], [file, tmp_path / "none.json"], [file], [file, tmp_path]):
        assert run("compare", *files).exit_code == 2


def test_what_reports_of_others_say_is_printable(tmp_path: Path) -> None:
    case = {"id": f"f/{CLEARS}/a", "outcome": "failed", "max_error": None, "allowed": None, "message": CLEARS}
    before, after = stored(tmp_path / "a.json", CLEARS, {}), tmp_path / "b.json"
    after.write_text(json.dumps({"backend": CLEARS, "summary": {}, "cases": [case]}), "utf-8")
    done = run("compare", before, after)
    assert (done.exit_code, f"f/{SHOWN}/a: failed\n      {SHOWN}\n" in done.output) == (1, True)
    after.write_text(json.dumps({"backend": "b", "cases": [{**case, "outputs": {CLEARS: {}}}]}), "utf-8")
    done = run("compare", before, after)
    assert (done.exit_code, r"\x1b[2J" in done.output) == (2, True)
