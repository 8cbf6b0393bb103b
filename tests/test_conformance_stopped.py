"""A run that is stopped leaves what it has, and another one goes on from there."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import ending_backends
from conformance.outcome import Result
from conformance.report import record
from conformance.report.files import Reports
from conformance.vectors import collect
from suite_runs import run, words

GLOB = "roi_align/edge/*/v16/float"
IDS = [case.id for case in collect() if case.id.startswith("roi_align/edge/") and case.id.endswith("/v16/float")]
FIRST = 30
"""Cases that the backend answers before it hangs."""

ASKED = ("--backend", "ending_backends:answers_thirty", "--select", GLOB, "--jobs", "1")


def after_each_result(patch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Let a run do something whenever it has a result and has written it to its JSON report."""
    add = Reports.add

    def adds(reports: Reports, result: Result, *, is_late: bool = False) -> None:
        add(reports, result, is_late=is_late)
        then()

    patch.setattr(Reports, "SECONDS", 0.0)
    patch.setattr(Reports, "add", adds)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_reports_of_a_backend_that_hangs(number: signal.Signals, tmp_path: Path) -> None:
    json_file, junit_file, html_file = (tmp_path / f"results.{suffix}" for suffix in ("json", "xml", "html"))

    def stops() -> None:
        if len(record.read(json_file).entries) == FIRST:
            signal.raise_signal(number)

    with pytest.MonkeyPatch.context() as patch:
        after_each_result(patch, stops)
        result = run(*ASKED, "--json", json_file, "--junit", junit_file, "--html", html_file)
    assert result.exit_code == 128 + number, result.output
    assert result.output.endswith(f"stopped by signal {number.value} after {FIRST} of {len(IDS)} cases\n")
    data: dict[str, Any] = json.loads(json_file.read_text("utf-8"))
    assert data["complete"] is False
    assert [case["id"] for case in data["cases"]] == IDS[:FIRST]
    assert len(ET.parse(junit_file).findall(".//testcase")) == FIRST  # noqa: S314  # our own file
    assert html_file.stat().st_size > 1000


@pytest.mark.usefixtures("no_processes")
def test_a_run_that_goes_on_keeps_what_it_has_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What had failed stays failed; what had not been asked is asked of the backend, which answers now."""
    file, sizes, due = tmp_path / "r.json", list[int](), [ValueError("not now"), NotImplementedError("now it does")]

    def raises(*_: object) -> None:
        raise due[0]

    monkeypatch.setattr(ending_backends, "answers_thirty", raises)
    assert run(*ASKED[:2], "--select", IDS[-1], "--json", file, "--strict", "all").exit_code == 1
    due.pop(0)

    def is_kept() -> None:
        saved = record.read(file)
        assert IDS[-1] in saved.entries
        assert saved.complete is (len(saved.entries) == len(IDS))
        sizes.append(len(saved.entries))

    after_each_result(monkeypatch, is_kept)
    result = run(*ASKED, "--resume", file, "--json", file, "--strict", "all")
    assert result.exit_code == 1
    assert sizes == [1, *range(2, len(IDS) + 1)]
    *others, last = json.loads(file.read_text("utf-8"))["cases"]
    assert [case["id"] for case in (*others, last)] == IDS
    assert last["message"] == "refused: ValueError: not now"
    assert {case["outcome"] for case in others} == {"unsupported"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": "onnxruntime"}, "is of onnxruntime, by suite"),
        ({"suite": "0.0.1"}, "by suite 0.0.1: must be of reference"),
        ({"cases": 5}, "has no list of cases"),
    ],
)
def test_only_a_report_of_the_same_backend_and_suite_is_resumed(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    assert run("--backend", "reference", "--select", IDS[0], "--json", str(file)).exit_code == 0
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **change}), "utf-8")
    result = run("--backend", "reference", "--select", GLOB, "--resume", str(file))
    assert result.exit_code == 2
    assert message in words(result)
