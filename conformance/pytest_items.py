# SPDX-License-Identifier: MIT OR Apache-2.0
"""The suite as a pytest collector with items; see `pytest_plugin.py`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from conformance import schedule
from conformance.backends import MissingBackendError, ProviderError
from conformance.case import Case, chosen_level
from conformance.cases import by_id
from conformance.commands.options import selected_cases
from conformance.expected_failures import Floor, Listed, read, shortfalls
from conformance.outcome import Outcome, Result

SUITE = Path(__file__).parent.name
"""Node id of the suite."""


class NotPassedError(Exception):
    """A case that failed or crashed."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected cases, and the function that runs one."""

    cases: Sequence[Case]
    result_of: Callable[[Case], Result]


_SELECTION = pytest.StashKey[Selection]()


def prepare(config: pytest.Config) -> None:
    """Load the backend and select the cases that the options name.

    Raises:
        pytest.UsageError: an option is wrong.
    """
    with _wrong_option("select", click.BadParameter):
        cases = selected_cases(config.getoption("conformance_select"))
    folder = str(config.invocation_params.dir)
    if folder not in sys.path:  # as `python -m conformance` has it
        sys.path.insert(0, folder)
    listed = Listed()
    if file := config.getoption("conformance_expected_failures"):
        with _wrong_option("expected-failures", OSError, ValueError):
            listed = read(Path(file), by_id())
    if old := config.getoption("conformance_strict"):
        text = "--conformance-strict is deprecated: use --conformance-level core, standard or strict"
        config.issue_config_time_warning(pytest.PytestDeprecationWarning(text), stacklevel=2)
    setting = schedule.Setting(
        config.getoption("conformance_backend"),
        config.getoption("conformance_provider"),
        known=listed.failures if file else None,
        level=chosen_level(config.getoption("conformance_level"), old, listed.level),
    )
    stack = contextlib.ExitStack()
    config.add_cleanup(stack.close)
    with _wrong_option("backend", MissingBackendError), _wrong_option("provider", ProviderError):
        result_of = stack.enter_context(schedule.judge_of(setting, config.getoption("conformance_isolate")))
    config.stash[_SELECTION] = Selection(cases, result_of)
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist has only some of the cases
        config.pluginmanager.register(AnswerCheck(listed.floor))


@contextlib.contextmanager
def _wrong_option(name: str, *errors: type[Exception]) -> Iterator[None]:
    """Report these errors, if the block raises them, as a wrong value of an option."""
    try:
        yield
    except errors as error:
        text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise pytest.UsageError(f"--conformance-{name}: {text}") from error


class Suite(pytest.Directory):
    """This package as a folder whose tests are the cases."""

    def collect(self) -> Iterator[CaseItem]:
        """An item for each case, with the case's id as its name."""
        selection = self.config.stash[_SELECTION]
        for case in selection.cases:
            yield CaseItem.from_parent(self, name=case.id, case=case, result_of=selection.result_of)


class AnswerCheck:
    """Fails a test run if the backend supports no case, or if too few are judged: to pytest, skipped tests are a success.

    floor: that of the list of expected failures, or None.
    """

    def __init__(self, floor: Floor | None) -> None:
        self._floor = floor
        self._outcomes: dict[str, Outcome] = {}

    @property
    def _reason(self) -> str:
        """Why the run fails; empty if it does not."""
        if not self._outcomes:
            return ""
        return next(iter(shortfalls(self._outcomes, self._floor, by_id())), "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the outcome of a case."""
        suite, _, case_id = report.nodeid.partition("::")
        outcome = dict(report.user_properties).get("outcome")
        if report.when == "call" and suite == SUITE and outcome is not None:
            self._outcomes[case_id] = Outcome(str(outcome))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Set the exit status."""
        if self._reason and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why."""
        if self._reason:
            terminalreporter.section("conformance", red=True)
            terminalreporter.write_line(self._reason)


class CaseItem(pytest.Item):
    """One case. An unsupported case is skipped; an expected failure or a departure is an xfail."""

    def __init__(self, *, case: Case, result_of: Callable[[Case], Result], **rest: Any) -> None:
        super().__init__(**rest)
        self._case, self._result_of = case, result_of

    def runtest(self) -> None:
        """Run the case."""
        result = self._result_of(self._case)
        self.user_properties.append(("outcome", result.outcome.value))
        if result.outcome is Outcome.UNSUPPORTED:
            pytest.skip(result.message)
        if result.outcome in (Outcome.EXPECTED_FAILURE, Outcome.DEPARTED):
            pytest.xfail(result.message)
        if result.outcome.is_bad:
            raise NotPassedError(f"{result.message}\n{self._case.note} [{self._case.source}]")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The worst element or the reason, without a traceback, which would only show the suite's own code."""
        if isinstance(excinfo.value, NotPassedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The path of the suite, and the case's id."""
        return self.path, None, self.name
