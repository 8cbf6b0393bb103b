"""`python -m conformance init` writes a backend that runs as it is."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from suite_runs import run


@pytest.mark.usefixtures("no_processes")
def test_what_it_writes_runs_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_backend", raising=False)
    written = run("init", "my_backend.py")
    assert (written.exit_code, written.stdout) == (0, "python -m conformance --backend my_backend:answer\n")
    assert "MODULE" not in Path("my_backend.py").read_text("utf-8")
    # The command that it prints, for a part of the cases with the one that it lists as an expected failure.
    options = ["--select", "roi_align/*/v16/*float", "--shard", "1/6", "--json", "report.json"]
    done = run(*written.stdout.split()[3:], *options)
    assert done.exit_code == 0, done.output
    cases = json.loads(Path("report.json").read_text("utf-8"))["cases"]
    outcomes = Counter(case["outcome"] for case in cases)
    assert outcomes["passed"] > 25
    assert outcomes["unsupported"] > 5
    assert outcomes["failed"] == outcomes["crashed"] == 0
    known = run("--backend", "my_backend:answer", "--select", "*/batch_index_negative/v16/float")
    assert (known.exit_code, "NumPy takes -1 for the last image" in known.output) == (0, True), known.output


@pytest.mark.parametrize("name", ["mine.py", "my-backend.py", "backend.txt", "backend", "no/such/folder/backend.py"])
def test_a_file_that_exists_or_cannot_be_a_module_is_status_2(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.py").write_text("# mine", "utf-8")
    result = run("init", tmp_path / name)
    assert (result.exit_code, [file.name for file in tmp_path.iterdir()]) == (2, ["mine.py"])
    assert (tmp_path / "mine.py").read_text("utf-8") == "# mine"
    assert "FILE" in result.output
