"""Fuzzing on a dask.distributed cluster finds the same as one machine, even if workers die."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import pytest
from click.testing import CliRunner, Result
from distributed import Client, LocalCluster

import ending_backends
from conformance import cluster
from conformance.__main__ import main
from conformance.cluster import Cluster
from conformance.fuzz import campaign
from conformance.fuzz.check import Failure
from conformance.fuzz.worker import Plan
from conformance.workers import WorkerPool, WorkerPoolError

pytestmark = pytest.mark.slow

SWAPPED = "conformance.mutants.roi_align:XAndYSwapped"


@pytest.fixture(scope="module")
def workers() -> Iterator[LocalCluster]:
    """Two worker processes, daemons of nannies that start them again. A task that has ended one is not tried again."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made,
    ):
        yield made


def fuzz(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["fuzz", *arguments])


def outcome(plan: Plan, pool: WorkerPool, cases: int) -> tuple[Counter[str], list[Failure]]:
    reports = list(campaign.run(plan, pool, cases))
    return sum((r.counts for r in reports), Counter()), [failure for r in reports for failure in r.failures]


def test_a_cluster_finds_what_processes_here_find(workers: LocalCluster, tmp_path: Path) -> None:
    arguments = ("--backend", SWAPPED, "--operator", "RoiAlign_16", "--cases", "2")
    lines, files = [], []
    for name, place in (("here", ("--jobs", "1")), ("there", ("--dask", workers.scheduler_address))):
        result = fuzz(*arguments, *place, "--out", str(tmp_path / name))
        assert result.exit_code == 1
        lines.append(result.output.splitlines()[-1].split(";")[0])
        files.append({path.name: path.read_text("utf-8") for path in (tmp_path / name).iterdir()})
    assert lines[0] == lines[1]
    assert files[0] == files[1]


@pytest.mark.parametrize("allowed", [0, 3])
def test_a_lost_worker_loses_nothing(workers: LocalCluster, allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign submits again what the scheduler does not repeat."""
    monkeypatch.setattr(workers.scheduler, "allowed_failures", allowed)
    cases, plan, counts = 60, Plan("reference", 4), Counter[str]()
    with Client(workers.scheduler_address, set_as_default=False) as client:
        process = next(iter(client.run(os.getpid).values()))
    with Cluster(workers.scheduler_address, plan.backend) as pool:
        for report in campaign.run(plan, pool, cases):
            if report.counts and not counts:
                os.kill(process, signal.SIGKILL)
            counts += report.counts
    assert counts == {"passed": cases}


@pytest.mark.parametrize(
    ("backend", "kind", "message"),
    [
        ("ends_itself", "crash", "exit code -9"),
        ("ends_its_worker", "reference", "every worker that ran it died"),
    ],
)
def test_a_case_that_ends_a_process_is_named_and_the_others_are_counted(
    workers: LocalCluster, backend: str, kind: str, message: str
) -> None:
    plan = replace(ending_backends.PLAN, backend=f"ending_backends:{backend}")
    with Cluster(workers.scheduler_address, plan.backend) as pool:
        counts, (failure,) = outcome(plan, pool, 20)
    assert counts == {"unsupported": 19, "failed": 1}
    assert (failure.case.id, failure.kind) == (plan.case(ending_backends.NUMBER).id, kind)
    assert message in failure.message


def test_a_campaign_ends_with_its_time(workers: LocalCluster, tmp_path: Path) -> None:
    address = ("--dask", workers.scheduler_address)
    result = fuzz("--backend", "reference", "--seconds", "1", *address, "--out", str(tmp_path))
    assert result.exit_code == 0
    assert " passed, 0 failed" in result.output


def test_what_is_handed_out_is_cancelled_when_the_campaign_is_left(workers: LocalCluster) -> None:
    with Cluster(workers.scheduler_address, "reference") as pool:
        next(report for report in campaign.run(Plan("reference", 0), pool) if report.counts)
        assert handed_out(workers)
    for _ in range(300):
        if not handed_out(workers):
            return
        time.sleep(0.1)
    raise AssertionError(f"{handed_out(workers)} are there after 30 s")


def handed_out(workers: LocalCluster) -> list[str]:
    scheduler: Any = workers.scheduler
    return list(scheduler.tasks)


def test_a_cluster_without_workers_ends_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "NO_WORKER_SECONDS", 0.0)
    monkeypatch.setattr(cluster, "ASK_EVERY", 0.0)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as made,
        Cluster(made.scheduler_address, "reference") as pool,
    ):
        reports = campaign.run(Plan("reference", 0), pool)
        next(reports)
        # Not by scale(0), which waits for the worker's thread and may wait forever.
        for address in list(made.scheduler.workers):
            made.sync(made.scheduler.remove_worker, address, stimulus_id="test")
        with pytest.raises(WorkerPoolError, match="no worker for"):
            list(reports)


def test_workers_have_the_versions_that_are_here(workers: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "version", lambda _: "0")
    with pytest.raises(WorkerPoolError, match=r"worker tcp://.* has ortops .*: must be 0, as here"):
        Cluster(workers.scheduler_address, "reference")


def test_workers_have_the_backend(workers: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("def answer(*_): raise NotImplementedError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = fuzz("--backend", "only_here:answer", "--dask", workers.scheduler_address)
    assert result.exit_code == 2
    assert "No module named 'only_here'" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dask", "nowhere"), "nowhere is not a scheduler"),
        (("--dask", "tls://127.0.0.1:1"), "tls://127.0.0.1:1 is not a scheduler"),
        (("--dask", "tcp://127.0.0.1:8786", "--jobs", "2"), "--jobs"),
    ],
)
def test_a_wrong_call_is_status_2(arguments: tuple[str, ...], message: str) -> None:
    result = fuzz("--backend", "reference", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_an_address_that_does_not_answer_is_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = fuzz("--backend", "reference", "--dask", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
    assert result.exit_code == 2
    assert "is not a scheduler that answers within 0.5 s" in " ".join(result.output.split())


def test_distributed_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "conformance.cluster")
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = fuzz("--backend", "reference", "--dask", "tcp://127.0.0.1:8786")
    assert result.exit_code == 2
    assert "pip install 'ortops[dask]'" in " ".join(result.output.split())
