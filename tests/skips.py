# SPDX-License-Identifier: MIT
"""The tests that a run may leave out: in continuous integration, any other one that is skipped fails the run."""

from __future__ import annotations

import os
import sys
from fnmatch import fnmatchcase
from importlib.util import find_spec

import pytest

NOT_IN_EVERY_RUN = (
    *("apache-tvm", "emx-onnx-cgen", "mindspore", "onnx2tf", "onnx2torch", "onnxruntime-openvino"),
    *("opencv-python-headless", "paddlepaddle"),
)
"""Runtimes of examples/backends."""

ALLOWED = [
    # Another release or build than the one that is installed.
    ("*", "the list is of *"),  # of expected failures, which are of one release of a runtime
    ("*", "this onnx*"),
    ("*", "ONNX Runtime 1.20 *"),
    ("*test_conformance_adoption*", "this ONNX Runtime has no such provider"),
    # Programs of Debian, which the job `hosts` of the workflow installs.
    *(("*test_library*", f"{name} is not installed") for name in ("qemu-x86_64", "valgrind")),
    # .ci/run installs npm, which needs its registry.
    ("*test_an_example_has_the_outcomes_of_its_runtime*", "npm *"),
    # Wheels of up to 2 GB, and some that need other builds of packages that are installed: the weekly workflow has most.
    *(("*test_an_example_answers*", f"{name} is not installed") for name in NOT_IN_EVERY_RUN),
    ("*", "*needs torchvision*"),
    ("*test_conformance_backends*", "torch* is not installed"),
    ("*test_benchmarks*", "*torchvision*"),
]
"""Patterns for the name of a test and for the reason of its skip."""

WITHOUT_TORCH = [
    ("*", "could not import 'torch'*"),
    ("*", "*needs torch, which*"),
    ("*test_benchmarks*", "*torch*"),
    ("*test_gradient_layers*", "*torch*"),
]
"""Likewise where PyTorch is not installed: `make test-torch` has it."""

ELSEWHERE = [("*", "*")]
"""Likewise where there is no Linux on x86-64, for which alone everything that the tests need is installed."""

IS_HERE = sys.platform == "linux" and os.uname().machine == "x86_64" and sys.version_info < (3, 14)


def allowed() -> list[tuple[str, str]]:
    """The patterns that hold here."""
    return [*ALLOWED, *([] if find_spec("torch") else WITHOUT_TORCH), *([] if IS_HERE else ELSEWHERE)]


class SkipCheck:
    """Notes the skips of a run. With CI=true in the environment, one that is not allowed fails the run."""

    def __init__(self) -> None:
        self._patterns = allowed() if os.environ.get("CI") == "true" else [("*", "*")]
        self._wrong: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the report of a test."""
        self._take(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take the report of a file."""
        self._take(report)

    def _take(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.outcome == "skipped" and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            if not any(fnmatchcase(report.nodeid, test) and fnmatchcase(reason, why) for test, why in self._patterns):
                self._wrong.append(f"{report.nodeid}: {reason}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Set the exit status."""
        if self._wrong and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why."""
        if self._wrong:
            terminalreporter.section("skipped, and not among those that tests/skips.py allows", red=True)
            for line in self._wrong:
                terminalreporter.write_line(line)
