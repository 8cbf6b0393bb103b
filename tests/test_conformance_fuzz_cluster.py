"""The suite and fuzzing on a dask.distributed cluster find the same as one machine, even if workers die."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

from conformance import cluster, schedule
from conformance.cases import collect
from conformance.cluster import Cluster
from conformance.fuzz import campaign
from conformance.fuzz.campaign import Plan
from conformance.outcome import Outcome
from conformance.report import record
from conformance.schedule import Setting, WorkerPoolError
from suite_runs import run, words

pytestmark = pytest.mark.slow

GLOB = "roi_align/official/*/v16/float"


@contextlib.contextmanager
def two_workers() -> Iterator[LocalCluster]:
    """Two worker processes, daemons of nannies that start them again. A task that has ended one is not tried again."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster_of_two,
    ):
        yield cluster_of_two


@pytest.fixture(scope="module")
def workers() -> Iterator[LocalCluster]:
    """The workers that tests share."""
    with two_workers() as cluster_of_two:
        yield cluster_of_two


fuzz = functools.partial(run, "fuzz")


def test_a_cluster_finds_what_processes_here_find(workers: LocalCluster, tmp_path: Path) -> None:
    backend = "rude_backends:refuses"
    files: list[dict[str, object]] = []
    for place in (("--jobs", "1"), ("--dask", workers.scheduler_address)):
        file = tmp_path / f"{len(files)}.json"
        done = run("--backend", backend, "--select", GLOB, *place, "--json", file)
        assert done.exit_code == 1
        files.append({name: (result.outcome, result.message) for name, result in record.read(file).entries.items()})
    assert files[0] == files[1]
    assert len(files[0]) > 1


def test_a_lost_worker_loses_nothing(workers: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.scheduler, "allowed_failures", 3)
    cases = collect()[:400]
    with Client(workers.scheduler_address, set_as_default=False) as client:
        process = next(iter(client.run(os.getpid).values()))
    with Cluster(workers.scheduler_address, "reference") as pool:
        results = schedule.run_cases(pool, Setting("rude_backends:supports_nothing"), cases)
        done = [next(results)]
        os.kill(process, signal.SIGKILL)
        done += results
    assert sorted(result.id for result in done) == sorted(case.id for case in cases)
    assert {result.outcome for result in done} == {Outcome.UNSUPPORTED}


def test_a_case_that_ends_every_worker_ends_the_run() -> None:
    with (
        two_workers() as mortal,  # not the shared ones, which tasks that still run would end during the next test
        Cluster(mortal.scheduler_address, "reference") as pool,
        pytest.raises(WorkerPoolError, match="has died"),
    ):
        list(schedule.run_cases(pool, Setting("rude_backends:ends_its_worker"), collect()[:1]))


class Emptied(SchedulerPlugin):
    """Knows when a scheduler has forgotten its last task."""

    name = "emptied"

    def __init__(self, scheduler: Any) -> None:
        self.tasks, self.event = scheduler.tasks, threading.Event()

    def transition(self, key: Any, start: Any, finish: Any, *args: Any, **kwargs: Any) -> None:
        del start, args, kwargs
        if finish == "forgotten" and self.tasks.keys() <= {key}:
            self.event.set()


def test_what_is_handed_out_is_cancelled_when_the_campaign_is_left(workers: LocalCluster) -> None:
    scheduler: Any = workers.scheduler
    emptied = Emptied(scheduler)
    with Cluster(workers.scheduler_address, "reference") as pool:
        next(report for report in campaign.run(Plan("reference", 0), pool) if report.counts)
        assert scheduler.tasks
        workers.sync(_call, scheduler.add_plugin, emptied)
    assert emptied.event.wait(60) or not scheduler.tasks, list(scheduler.tasks)
    workers.sync(_call, scheduler.remove_plugin, emptied.name)


async def _call(function: Any, *arguments: Any) -> None:
    function(*arguments)


def test_a_cluster_without_workers_ends_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "NO_WORKER_SECONDS", 0.0)
    monkeypatch.setattr(cluster, "ASK_EVERY", 0.0)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as local,
        Cluster(local.scheduler_address, "reference") as pool,
    ):
        reports = campaign.run(Plan("reference", 0), pool)
        next(reports)
        # Not by scale(0), which waits for the worker's thread and may wait forever.
        for address in list(local.scheduler.workers):
            local.sync(local.scheduler.remove_worker, address, stimulus_id="test")
        with pytest.raises(WorkerPoolError, match="no worker for"):
            list(reports)


def test_workers_have_the_versions_that_are_here(workers: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "version", lambda _: "0")
    with pytest.raises(WorkerPoolError, match=r"worker tcp://.* has ortops .*: must be 0, as here"):
        Cluster(workers.scheduler_address, "reference")


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
    assert message in words(result)


def test_an_address_that_does_not_answer_is_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = fuzz("--backend", "reference", "--dask", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
    assert result.exit_code == 2
    assert "is not a scheduler that answers within 0.5 s" in words(result)


def test_distributed_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "conformance.cluster")
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = fuzz("--backend", "reference", "--dask", "tcp://127.0.0.1:8786")
    assert result.exit_code == 2
    assert "in a clone of ortops, run pip install '.[dask]'" in words(result)
