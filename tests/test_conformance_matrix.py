"""The matrix: reports side by side as a table on the terminal and in Markdown."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from conformance import backends
from conformance.case import Basis
from conformance.commands import matrix as command
from conformance.outcome import ACCEPTED, Outcome
from conformance.report.matrix import Matrix, markdown
from conformance.report.record import Entry, Report
from conformance.vectors import collect
from suite_runs import INSIDE, run, stored, words

WRONG = "wrong_backends:NoHalfPixel"

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


def test_unsupported_is_never_passed() -> None:
    entries = {f"f/one/{i}": Entry(Outcome.UNSUPPORTED, "no") for i in range(3)}
    (row,) = Matrix([Report("b", entries)]).rows
    assert (row.cells[0].passed, row.cells[0].total, row.cells[0].score) == (0, 3, "unsupported")


def test_groups_are_in_the_order_of_the_operators() -> None:
    entries = {case.id: Entry(Outcome.PASSED, "") for case in reversed(collect())}
    names = [row.name for row in Matrix([Report("b", {"x/new/y": Entry(Outcome.PASSED, "")} | entries)]).rows]
    assert (names[0], names[-1]) == (collect()[0].group, "x/new")
    functions = [name.split("/")[0] for name in names]
    assert len(list(dict.fromkeys(functions))) == sum(a != b for a, b in itertools.pairwise(functions)) + 1


def test_departures_and_accepted_refusals_differ_from_wrong_numbers() -> None:
    accepted = Entry(Outcome.FAILED, f"{ACCEPTED}its data is wrong: no", Basis.OURS)
    departed = Entry(Outcome.DEPARTED, accepted.message, Basis.OURS)
    wrong = Entry(Outcome.FAILED, "Y[0]: expected 1, got 2, off by 1 where 0 is allowed", Basis.TEXT, max_error=1.0)
    entries = {"f/a/1": accepted, "f/a/2": departed, "f/a/3": wrong, "f/b/1": accepted, "f/c/1": departed}
    made = Matrix([Report("b", entries)])
    assert [(row.name, row.cells[0].worst, str(row.cells[0])) for row in made.rows] == [
        ("f/a", "failed", "0/3, 2 failed (1 accepted), 1 departed"),
        ("f/b", "accepted", "0/1, 1 failed (1 accepted)"),
        ("f/c", "departed", "0/1, 1 departed"),
    ]
    assert "| ours: this project's own reading | 0/4, 2 failed (2 accepted), 2 departed |" in markdown(made)


def test_what_a_report_holds_is_text_in_markdown(tmp_path: Path) -> None:
    bad = "</title><b onclick='x'>[red]|*c*\ud800\x00\n"
    file, table = (tmp_path / name for name in ("a.json", "m.md"))
    stored(file, bad, {f"f/{bad}/a": "failed", INSIDE: "failed", "f/no/a": "unsupported"})
    result = run("matrix", file, "--markdown", table)
    assert result.exit_code == 0, result.output
    assert r"<b onclick='x'>[red]|*c*\ud800\x00\n" in result.output
    assert r"\<b onclick='x'\>\[red\]\|\*c\*\\ud800\\x00\\n |" in table.read_text("utf-8").splitlines()[0]


def test_a_backend_that_fails_is_asked_and_is_status_0(tmp_path: Path) -> None:
    file = stored(tmp_path / "a.json", "mine", {INSIDE: "passed"})
    result = run("matrix", WRONG, "reference", file, "--select", INSIDE)
    assert result.exit_code == 0
    assert re.search(rf"group of cases +mine +{WRONG} +reference \d", result.output)
    assert re.search(r"roi_align/edge +1/1 +0/1 +1/1 *\n +1 failed", result.output)


def test_the_backends_by_default_are_those_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    load = backends.load

    def without_onnx(name: str, provider: str | None = None) -> backends.Backend:
        if name == "onnx-reference":
            raise backends.MissingBackendError(f"backend {name}: no onnx here")
        return load(name, provider)

    monkeypatch.setattr(backends, "load", without_onnx)
    monkeypatch.setattr(command, "DEFAULTS", ("reference", "onnx-reference"))
    result = run("matrix", "--select", INSIDE)
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "left out: backend onnx-reference: no onnx here"
    assert "onnx-reference" not in "".join(result.output.splitlines()[:-1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no_such.json",), "No such file"),
        (("no_such_module",), "No module named 'no_such_module'"),
        (("a.json", "--select", "g/*"), "selects no case of mine"),
        (("reference", "reference"), "must be named once"),
        (("a.json", "--markdown", "a.json"), "must not be one of SOURCES"),
        (("a.json", "--markdown", "no/such/m.md"), "must be a folder"),
    ],
)
def test_a_wrong_call_is_status_2(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stored(tmp_path / "a.json", "mine", {"f/one/a": "passed"})
    result = run("matrix", *arguments)
    assert result.exit_code == 2
    assert message in words(result)
