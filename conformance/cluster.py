"""A dask.distributed cluster, which runs cases. Its workers need the same packages as this process.

The scheduler repeats the tasks of a lost worker elsewhere. A task that kills more workers than the cluster's setting
`distributed.scheduler.allowed-failures`, 3 by default, comes back as an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from distributed import Client, KilledWorker, Security
from distributed.comm.core import CommClosedError, connect

from conformance import backends
from conformance.schedule import WorkerPool, WorkerPoolError

CONNECT_SECONDS = 15.0  # limit for the scheduler to answer, and for the first worker to connect
ANSWER_SECONDS = 60.0  # limit for workers to report their versions, after some imports, and for any other answer
NO_WORKER_SECONDS = 60.0  # the cluster may be without workers for so long
ASK_EVERY = 1.0  # seconds between two queries of the number of workers

PACKAGES = ("ortops", "numpy", "onnx", "onnxruntime", "onnxruntime-extensions")
"""Workers must have the same versions of these as this process: others may generate other cases or give other results."""

T = TypeVar("T")


class Cluster(WorkerPool, contextlib.AbstractContextManager["Cluster"]):
    """The workers of a scheduler. As a context manager it cancels their unfinished tasks on exit.

    Raises:
        WorkerPoolError: no scheduler or no worker answers, or a worker lacks the backend or has other versions.
    """

    lost_errors = (KilledWorker,)

    def __init__(self, address: str, backend: str) -> None:
        self._address = address
        try:
            # A client that fails to connect for another reason than a timeout takes half a minute to close.
            asyncio.run(asyncio.wait_for(_reach(address), CONNECT_SECONDS))
            self._client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (TimeoutError, OSError, TypeError, ValueError, ImportError) as error:
            text = f"is not a scheduler that answers within {CONNECT_SECONDS:g} s: {type(error).__name__}: {error}"
            raise WorkerPoolError(f"{address} {text}") from error
        self._executor = self._client.get_executor(pure=False, retries=3)
        self.worker_count = 1
        self._asked = self._seen = -math.inf
        try:
            self._check_workers(backend)
            self.check()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """See `WorkerPool`."""
        return self._executor.submit(function, *args)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Cancel unfinished tasks and disconnect, without waiting for workers or a scheduler that hang."""
        for leave in (lambda: self._executor.shutdown(wait=False), self._client.close):
            wait([_in_thread(leave)], CONNECT_SECONDS)

    def check(self) -> None:
        """Raise WorkerPoolError if the scheduler is gone or has been without workers for `NO_WORKER_SECONDS`."""
        now = time.monotonic()
        if now - self._asked < ASK_EVERY:
            return
        self._asked = now
        threads = sum(self._within(ANSWER_SECONDS, self._client.nthreads).values())
        # Two tasks for each thread, so that none waits for this process.
        self.worker_count = 2 * max(threads, 1)
        if threads:
            self._seen = now
        elif now - self._seen > NO_WORKER_SECONDS:
            raise WorkerPoolError(f"the scheduler at {self._address} has had no worker for {NO_WORKER_SECONDS:g} s")

    def _check_workers(self, backend: str) -> None:
        try:
            self._client.wait_for_workers(1, CONNECT_SECONDS)
        except TimeoutError as error:
            raise WorkerPoolError(
                f"the scheduler at {self._address} has no worker after {CONNECT_SECONDS:g} s"
            ) from error
        here = _versions(backend)
        answers = self._within(ANSWER_SECONDS, lambda: self._client.run(_versions, backend, on_error="return"))
        for worker, there in answers.items():
            if isinstance(there, CommClosedError):  # it has just died, and the cluster may start it again
                continue
            if isinstance(there, Exception):
                raise WorkerPoolError(f"worker {worker} cannot load the backend: {type(there).__name__}: {there}")
            for package, expected in here.items():
                if there[package] != expected:
                    raise WorkerPoolError(
                        f"worker {worker} has {package} {there[package]}: must be {expected}, as here"
                    )

    def _within(self, seconds: float, ask: Callable[[], T]) -> T:
        """Return the result of `ask`; raise WorkerPoolError if the cluster is gone or too slow."""
        answer = _in_thread(ask)
        if not wait([answer], seconds).done:
            raise WorkerPoolError(f"the cluster at {self._address} has not answered within {seconds:g} s")
        try:
            return answer.result()
        except (TimeoutError, OSError, RuntimeError) as error:
            raise WorkerPoolError(f"the scheduler at {self._address} is gone: {error}") from error


def _in_thread(function: Callable[[], T]) -> Future[T]:
    """Run a function in a daemon thread, which the process does not wait for when it ends."""
    result = Future[T]()

    def run() -> None:
        try:
            result.set_result(function())
        except Exception as error:  # noqa: BLE001  # the future raises it again
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


async def _reach(address: str) -> None:
    comm = await connect(address, timeout=CONNECT_SECONDS, **Security().get_connection_args("client"))
    await comm.close()


def _versions(backend: str) -> dict[str, str]:
    """The installed versions of `PACKAGES`, on a worker that can load the backend.

    Raises:
        MissingBackendError: the worker cannot load the backend.
    """
    backends.load(backend)
    return {package: _version(package) for package in PACKAGES}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
