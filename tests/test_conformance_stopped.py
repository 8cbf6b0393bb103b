"""A run that is stopped leaves what it has, and another one goes on from there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from conformance.vectors import collect
from suite_runs import run, words

pytestmark = pytest.mark.slow

GLOB = "roi_align/edge/*/v16/float"
IDS = [case.id for case in collect() if case.id.startswith("roi_align/edge/") and case.id.endswith("/v16/float")]
FIRST = 30
"""Cases that the slow backend answers before it waits."""

SLOW = f"""
import pathlib, time
count = 0

def answer(op_type, inputs, attributes, outputs):
    global count
    count += 1
    if count > {FIRST}:
        pathlib.Path("waits").touch()
        time.sleep(600)
    raise ValueError("not now")
"""


COMMAND = [sys.executable, "-m", "conformance", "--backend", "slow:answer", "--select", GLOB, "--jobs", "1"]
WAIT = "        time.sleep(600)\n"
SWALLOWS = SLOW.replace(WAIT, f"        try:\n    {WAIT}        except BaseException:\n            pass\n")


@pytest.mark.parametrize(("number", "backend"), [(signal.SIGTERM, SLOW), (signal.SIGINT, SWALLOWS)])
def test_a_signal_leaves_the_reports_and_resume_goes_on(
    number: signal.Signals, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.py").write_text(backend, "utf-8")
    command = [*COMMAND, "--json", "results.json", "--junit", "results.xml", "--html", "results.html"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)  # noqa: S603  # our own command
    while not (tmp_path / "waits").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, output
    assert output.endswith(f"stopped by signal {number.value} after {FIRST} of {len(IDS)} cases\n")
    data: dict[str, Any] = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert data["complete"] is False
    assert [case["id"] for case in data["cases"]] == IDS[:FIRST]
    assert len(ET.parse(tmp_path / "results.xml").findall(".//testcase")) == FIRST  # noqa: S314  # our own file
    assert (tmp_path / "results.html").stat().st_size > 1000

    # What had failed stays failed; what had not been asked is asked of the backend, which answers now.
    (tmp_path / "slow.py").write_text("def answer(*_): raise NotImplementedError('now it does')", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slow", raising=False)
    file = str(tmp_path / "results.json")
    result = run("--backend", "slow:answer", "--select", GLOB, "--resume", file, "--json", file, "--strict", "all")
    assert result.exit_code == 1
    cases = json.loads(Path(file).read_text("utf-8"))["cases"]
    assert [case["id"] for case in cases] == IDS
    assert {case["message"] for case in cases[:FIRST]} == {"refused: ValueError: not now"}
    assert {case["outcome"] for case in cases[FIRST:]} == {"unsupported"}


def test_a_report_is_written_while_cases_end(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW.replace("time.sleep(600)", "time.sleep(3 if count == 31 else 600)"), "utf-8")
    process = subprocess.Popen([*COMMAND, "--json", "r.json"], cwd=tmp_path)  # noqa: S603  # our own command
    try:
        while not (tmp_path / "r.json").exists() and process.poll() is None:
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    data = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert 0 < len(data["cases"]) < len(IDS)
    assert data["complete"] is False


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
