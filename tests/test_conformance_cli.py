"""The command line: selecting, reporting, outcomes and exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from conformance.__main__ import main
from conformance.outcome import Outcome
from conformance.vectors import collect

FEW = "roi_align/edge/half_pixel_*/v16/*"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def report(tmp_path: Path, *arguments: str) -> tuple[Result, dict[str, Any]]:
    file = tmp_path / "report.json"
    result = run(*arguments, "--json", str(file))
    return result, json.loads(file.read_text("utf-8"))


def outcomes(data: dict[str, Any]) -> dict[str, str]:
    return {case["id"]: case["outcome"] for case in data["cases"]}


def test_list_prints_every_id_and_runs_nothing() -> None:
    result = run("--list", "--backend", "no_such_module")
    assert result.exit_code == 0
    assert result.output.splitlines() == [case.id for case in collect()]


def test_select_takes_a_glob() -> None:
    result = run("--list", "--select", "roi_align/edge/sample_just_past_H/v16/*")
    assert result.output.splitlines() == [
        "roi_align/edge/sample_just_past_H/v16/float",
        "roi_align/edge/sample_just_past_H/v16/double",
    ]


def test_nothing_failed_is_status_0_and_the_last_line_counts() -> None:
    result = run("--backend", "reference", "--select", FEW)
    assert result.exit_code == 0
    count = len([c for c in collect() if "/edge/half_pixel_" in c.id and "/v16/" in c.id])
    assert result.output.splitlines()[-1] == f"{count} passed, 0 failed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "no_such_module"], "No module named 'no_such_module'"),
        (["--backend", "wrong_backends:NoSuchClass"], "NoSuchClass"),
        (["--backend", "json"], "must be a function or have prepare"),
        (["--backend", ""], "--backend"),
        (["--select", "no/such/case"], "selects no case"),
        (["--no-such-option"], "No such option"),
        (["--json", "no/such/folder/report.json"], "must be a folder"),
    ],
)
def test_a_wrong_call_is_status_2(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_a_backend_whose_needs_are_not_installed_is_status_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('not here')", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    result = run("--backend", "onnxruntime")
    assert result.exit_code == 2
    assert "backend onnxruntime" in result.output


def test_failures_are_in_every_report_with_their_worst_element(tmp_path: Path) -> None:
    xml, inside = tmp_path / "report.xml", "roi_align/edge/half_pixel_inside/v16/float"
    arguments = ("--backend", "wrong_backends:NoHalfPixel", "--select", FEW, "--junit", str(xml))
    result, data = report(tmp_path, *arguments)
    assert result.exit_code == 1
    assert f"failed {inside}" in result.output
    message = r"Y\[0, 0, 0, 0\]: expected 10, got 13, off by 3 where \S+ is allowed"
    assert re.search(message, result.output)
    head = {"backend", "version", "suite", "onnx", "python", "platform", "date", "complete"}
    assert set(data) == {*head, "summary", "cases"}
    assert (data["backend"], data["complete"]) == ("wrong_backends:NoHalfPixel", True)
    assert set(data["summary"]) == {outcome.value for outcome in Outcome}
    for outcome, count in data["summary"].items():
        assert list(outcomes(data).values()).count(outcome) == count
    for case in data["cases"]:
        fields = ["id", "outcome", "basis", "max_error", "allowed", "seconds", "message"]
        assert list(case) == fields + (["outputs"] if case["outcome"] != "passed" else [])
        assert (case["outcome"] == "passed") == (case["message"] == "")
        assert (case["outcome"] == "passed") == (case["max_error"] <= case["allowed"])
    (suite,) = ET.parse(xml).getroot()  # noqa: S314  # our own file
    cases = suite.findall("testcase")
    failures = {case.get("name"): case.find("failure") for case in cases if case.find("failure") is not None}
    assert (int(suite.get("tests", "")), int(suite.get("failures", ""))) == (
        len(data["cases"]),
        data["summary"]["failed"],
    )
    assert {case.get("classname") for case in cases} == {"roi_align/edge"}
    failure = failures[inside]
    assert failure is not None
    assert re.search(message, failure.get("message", ""))


def test_messages_are_escaped_wherever_they_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "wrong_backends.Control):\n    def run(self, *_):\n        raise ValueError('<b>[red]\\x00&')"
    backend = own_backend(tmp_path, monkeypatch, text)
    files = [str(tmp_path / name) for name in ("r.json", "r.xml", "r.html")]
    options = [part for pair in zip(("--json", "--junit", "--html"), files, strict=True) for part in pair]
    result = run("--backend", backend, "--select", "roi_align/edge/max_on_pixels/v16/float", *options)
    assert "ValueError: <b>[red]" in result.output
    assert json.loads(Path(files[0]).read_text("utf-8"))["cases"][0]["message"].endswith("<b>[red]\\x00&")
    ET.parse(files[1])  # noqa: S314  # our own file
    assert "&lt;b&gt;[red]" in Path(files[2]).read_text("utf-8")


def test_a_case_that_ends_the_process_has_crashed_and_the_others_are_run(tmp_path: Path) -> None:
    arguments = ("--backend", "wrong_backends:Aborts", "--select", "roi_align/[er]*/m[ao]*/v16/float")
    result, data = report(tmp_path, *arguments)
    assert result.exit_code == 1
    crashed = {"mode_unknown", "mode_upper_case", "mode_empty"}
    for case_id, outcome in outcomes(data).items():
        is_last_words = case_id.split("/")[2] in crashed
        assert outcome == ("crashed" if is_last_words else "passed"), case_id
    assert data["summary"]["crashed"] == 3
    assert data["summary"]["passed"] > 10
    assert result.output.splitlines()[-1] == f"{data['summary']['passed']} passed, 3 failed"


def test_any_number_of_processes_gives_the_same_reports(tmp_path: Path) -> None:
    arguments = ["--backend", "wrong_backends:Aborts", "--select", "roi_align/[er]*/m[ao]*/v22/float"]
    arguments += ["--exclude", "*/mode_u[pn]*"]  # one case that ends its process is enough
    found = []
    for jobs in ("1", "3"):
        file = tmp_path / "report.xml"
        result, data = report(tmp_path, *arguments, "-j", jobs, "--junit", str(file))
        cases = [{**case, "seconds": 0} for case in data["cases"]]
        untimed = re.sub(r'time="[^"]*"', "", file.read_text("utf-8"))
        found.append((result.exit_code, result.stdout, data["summary"], cases, untimed))
    assert found[0] == found[1]
    crashed = [case["message"] for case in found[0][3] if case["outcome"] == "crashed"]
    assert crashed == ["the process ended with exit code -6"]
    assert found[0][2]["passed"] > 10


def own_backend(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """The name of a backend that is a class of this text."""
    name = f"own_{folder.name}"
    (folder / f"{name}.py").write_text(f"import wrong_backends\n\nclass Own({text}\n", "utf-8")
    monkeypatch.syspath_prepend(folder)
    return f"{name}:Own"


@pytest.mark.parametrize(
    ("base", "outcome", "status", "last"),
    [("NoHalfPixel", "expected_failure", 0, "0 passed, 0 failed"), ("Control", "failed", 1, "0 passed, 3 failed")],
)
def test_an_expected_failure_is_no_failure_unless_it_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str, outcome: str, status: int, last: str
) -> None:
    text = f"wrong_backends.{base}):\n    EXPECTED_FAILURES = {{'*_inside/*': 'half a pixel off'}}"
    backend, glob = own_backend(tmp_path, monkeypatch, text), "roi_align/edge/half_pixel_inside/v16/*"
    result, data = report(tmp_path, "--backend", backend, "--select", glob)
    assert result.exit_code == status
    assert set(outcomes(data).values()) == {outcome}
    assert result.output.splitlines()[-1] == last
    told = "passed, but is listed as an expected failure: half a pixel off"
    assert (told in result.output) is bool(status)


def test_unsupported_is_neither_passed_nor_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "wrong_backends.Control):\n    def run(self, *_):\n        raise NotImplementedError('no such operator')"
    backend = own_backend(tmp_path, monkeypatch, text)
    result, data = report(tmp_path, "--backend", backend, "--select", "roi_align/edge/*/v16/float")
    assert set(outcomes(data).values()) == {"unsupported"}
    assert f"{len(data['cases'])} unsupported: no such operator" in result.output
    assert result.output.endswith(
        "0 passed, 0 failed\nthe backend supports none of the selected cases; nothing was tested\n"
    )
    assert result.exit_code == 1


def test_a_backend_may_be_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_runtime.py").write_text("from wrong_backends import Control\nprepare = Control.prepare\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert run("--backend", "a_runtime", "--select", FEW).exit_code == 0


def test_it_is_a_module_to_run() -> None:
    command = [sys.executable, "-m", "conformance", "--backend", "reference", "--select", FEW]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert re.fullmatch(r"\d+ passed, 0 failed", done.stdout.splitlines()[-1])
