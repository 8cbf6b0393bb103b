"""Results come as they are known: what is slow holds nothing up, and the reports are in order all the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from conformance import isolate
from conformance.case import MAX_SAMPLES, Case
from conformance.families import family_of
from conformance.isolate import Setting
from conformance.outcome import Outcome, Result
from conformance.report import record
from conformance.vectors import collect
from conformance.workers import WorkerPool
from ortops.progress import with_progress
from suite_runs import report, run

EDGE = [case for case in collect() if case.group == "roi_align/edge" and case.id.endswith("/v16/float")]
HUGE = [case for case in EDGE if not case.expects_error and family_of(case.definition).samples(case) > MAX_SAMPLES]


def test_huge_rois_come_last_in_their_group_and_parts_have_one_scenario() -> None:
    assert 1 < len(HUGE) < len(EDGE)
    other = [case for case in collect() if case.group == "max_roi_pool/edge"]
    tasks = isolate._tasks([*EDGE, *other])  # noqa: SLF001
    order = [case for task in tasks for case in task]
    small = [case for case in EDGE if case not in HUGE]
    assert [case.id for case in order] == [case.id for case in (*small, *HUGE, *other)]
    assert all(len({case.id.split("/")[2] for case in task}) == 1 for task in tasks)


class Threads(WorkerPool):
    """Two threads, of which one waits in its first task until the test lets it go on."""

    worker_count = 2

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.executor = self  # type: ignore[assignment]  # of an executor's methods, the suite calls submit alone
        self._threads = ThreadPoolExecutor(2)

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run a task without a backend: each case has passed."""
        if function is not isolate._run_task:  # noqa: SLF001
            return self._threads.submit(lambda: isolate.Declaration((), False, False, ()))
        return self._threads.submit(self._run, *args)

    def _run(self, _setting: Setting, cases: list[Case]) -> list[Result]:
        assert cases[0] is not EDGE[0] or self.goes_on.wait(30), "other results are held up"
        return [Result(case, Outcome.PASSED) for case in cases]


def test_a_case_that_takes_long_holds_up_no_other_result() -> None:
    pool, first = Threads(), {case.id for case in isolate._tasks(EDGE)[0]}  # noqa: SLF001
    results = isolate.run_cases(pool, Setting("any"), EDGE)
    others = [next(results).case.id for _ in range(len(EDGE) - len(first))]
    pool.goes_on.set()
    assert {result.case.id for result in results} == first
    assert len(others) == len(set(others) - first) == len(EDGE) - len(first)


def test_the_time_left_leaves_out_what_was_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter((0.0, 110.0, 120.0))
    monkeypatch.setattr("ortops.progress.time.monotonic", lambda: next(clock))
    assert list(with_progress(["a", "b"], "work", 12, left_out=lambda: 100.0)) == ["a", "b"]
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["work: 1 of 12 cases, 110 s, about 110 s left", "work: 2 of 12 cases, 120 s, about 100 s left"]


def test_a_case_that_exceeds_its_time_has_taken_it_and_the_run_all_of_it(tmp_path: Path) -> None:
    asked = ("--backend", "ending_backends:hangs", "--select", EDGE[0].id, "--time-limit", "0.5")
    begun = time.monotonic()
    result = run(*asked, "--json", tmp_path / "r.json", "--junit", tmp_path / "r.xml")
    whole = time.monotonic() - begun
    found = record.read(tmp_path / "r.json")
    (entry,) = found.entries.values()
    assert (entry.message, entry.seconds) == ("no answer within 0.5 s", 0.5)
    assert entry.seconds <= found.seconds <= whole
    suite = ET.parse(tmp_path / "r.xml").find("testsuite")  # noqa: S314  # our own file
    assert suite is not None
    assert float(suite.get("time", "")) == pytest.approx(found.seconds, abs=1e-3)
    assert f"; {found.seconds:.0f} s" in result.output.splitlines()[1]


@pytest.mark.usefixtures("no_processes")
def test_a_list_of_expected_failures_is_written_from_a_report_without_the_runtime(tmp_path: Path) -> None:
    few, backend = "roi_align/edge/half_pixel_*/v16/*", "wrong_backends:NoHalfPixel"
    asked = ("--backend", backend, "--select", few)
    _, data = report(tmp_path, *asked)
    assert data["summary"]["failed"] > 1
    resumed = (*asked, "--resume", tmp_path / "report.json", "--write-expected-failures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conformance.backends.load", lambda *_: pytest.fail("the runtime was asked"))
        assert run(*resumed, tmp_path / "from_report.toml").exit_code == 0
    assert run(*asked, "--write-expected-failures", tmp_path / "from_run.toml").exit_code == 0
    written = [(tmp_path / name).read_text("utf-8") for name in ("from_report.toml", "from_run.toml")]
    assert written[0] == written[1]
    # What a list has hidden is asked again.
    _, listed = report(tmp_path, *asked, "--expected-failures", tmp_path / "from_run.toml")
    assert listed["summary"]["failed"] == 0 < listed["summary"]["expected_failure"]
    assert run(*resumed, tmp_path / "again.toml").exit_code == 0
    assert (tmp_path / "again.toml").read_text("utf-8") == written[1]
