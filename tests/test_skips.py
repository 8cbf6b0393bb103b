# SPDX-License-Identifier: MIT
"""In continuous integration a test that is skipped fails the run, unless the table allows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    ("texts", "ci", "jobs", "refused"),
    [
        ([OF_FILE.format("no browser")], "true", ("-n", "1"), "test_0.py: no browser"),
        ([OF_TEST.format("the list is of openvino 1.0"), XFAIL.format("no browser")], "true", (), ""),
    ],
)
def test_a_skip_that_is_not_allowed_fails_a_run_of_ci(
    tmp_path: Path, texts: list[str], ci: str, jobs: tuple[str, ...], refused: str
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, "utf-8")
    for number, text in enumerate([*texts, "def test_two(): pass\n"]):
        (tmp_path / f"test_{number}.py").write_text(text, "utf-8")
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(Path(__file__).parent)}
    plugins = ("-p", "no:conformance", "-p", "no:hypothesispytest")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *jobs, "."]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == bool(refused), done.stdout + done.stderr
    assert ("skipped, and not among those" in done.stdout) == bool(refused)
    assert not refused or done.stdout.count(refused) == 1
