"""`python -m conformance init` writes a backend that runs as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.__main__ import main

ROOT = Path(__file__).parent.parent


def conformance(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The real command line in a folder, from which backends are imported."""
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "conformance", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_it_writes_runs_and_passes(tmp_path: Path) -> None:
    written = conformance(tmp_path, "init", "my_backend.py")
    assert (written.returncode, written.stdout) == (0, "python -m conformance --backend my_backend:answer\n")
    assert "MODULE" not in (tmp_path / "my_backend.py").read_text("utf-8")
    # The command that it prints, asked a quarter of the cases.
    command = written.stdout.split()[3:]
    run = conformance(tmp_path, *command, "--shard", "1/4", "--json", "report.json")
    assert run.returncode == 0, run.stdout + run.stderr
    cases = json.loads((tmp_path / "report.json").read_text("utf-8"))["cases"]
    outcomes = Counter(case["outcome"] for case in cases)
    assert outcomes["passed"] > 100
    assert outcomes["unsupported"] > 100
    assert outcomes["failed"] == outcomes["crashed"] == 0


def test_the_expected_failure_that_it_writes_is_met(tmp_path: Path) -> None:
    assert conformance(tmp_path, "init", "mine.py").returncode == 0
    run = conformance(tmp_path, "--backend", "mine:answer", "--select", "*/batch_index_negative/v16/float")
    assert (run.returncode, "NumPy takes -1 for the last image" in run.stdout) == (0, True), run.stdout + run.stderr


def test_it_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("# mine", "utf-8")
    again = conformance(tmp_path, "init", "mine.py")
    assert (again.returncode, "File exists" in again.stderr) == (2, True), again.stderr
    assert (tmp_path / "mine.py").read_text("utf-8") == "# mine"


@pytest.mark.parametrize("name", ["my-backend.py", "backend.txt", "backend", "no/such/folder/backend.py"])
def test_a_file_that_cannot_be_a_module_is_status_2(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(main, ["init", str(tmp_path / name)])
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "FILE" in result.output
