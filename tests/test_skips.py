"""In continuous integration a test that is skipped fails the run, unless the table allows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import skips

CONFTEST = """
import skips
skips.IS_HERE = True

def pytest_configure(config):
    config.pluginmanager.register(skips.SkipCheck())
"""
OF_TEST = "import pytest\ndef test_one():\n    pytest.skip({!r})\n"
OF_FILE = "import pytest\npytest.skip({!r}, allow_module_level=True)\n"
XFAIL = "import pytest\ndef test_one():\n    pytest.xfail({!r})\n"


@pytest.mark.parametrize(
    ("text", "reason", "ci", "jobs", "status"),
    [
        (OF_TEST, "no browser", "true", ("-n", "1"), 1),
        (OF_FILE, "no browser", "true", ("-n", "1"), 1),
        (OF_FILE, "no browser", "true", (), 1),
        (OF_TEST, "no browser", "", (), 0),
        (OF_TEST, "the list is of openvino 1.0", "true", (), 0),
        (XFAIL, "no browser", "true", (), 0),
    ],
)
def test_a_skip_that_is_not_allowed_fails_a_run_of_ci(
    tmp_path: Path, text: str, reason: str, ci: str, jobs: tuple[str, ...], status: int
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, "utf-8")
    (tmp_path / "test_one.py").write_text(text.format(reason), "utf-8")
    (tmp_path / "test_two.py").write_text("def test_two(): pass\n", "utf-8")
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:conformance", *jobs, "."]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == status, done.stdout + done.stderr
    assert ("skipped, and not among those" in done.stdout) == (status == 1)
    assert done.stdout.count(f"test_one.py: {reason}") + done.stdout.count(f"::test_one: {reason}") == status


def test_a_machine_without_everything_may_skip_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skips, "IS_HERE", False)
    assert ("*", "*") in skips.allowed()
    monkeypatch.setattr(skips, "IS_HERE", True)
    assert ("*", "*") not in skips.allowed()
