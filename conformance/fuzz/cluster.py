"""A cluster of dask.distributed as a campaign's crew. The workers need what is installed here, and no configuration.

What a worker had is done again elsewhere when it is lost, by the scheduler; what ends worker after worker comes back as
an error when it has ended more than `distributed.scheduler.allowed-failures`, 3 unless the cluster says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from importlib.metadata import version
from typing import TypeVar

from distributed import Client, KilledWorker, Security
from distributed.comm.core import connect

from conformance import backends
from conformance.fuzz.campaign import WorkerPoolError

CONNECT_SECONDS = 15.0  # for the scheduler to answer, and for a first worker to be there
ANSWER_SECONDS = (
    60.0  # for workers to say what they have, after some imports, and for the scheduler to say who is there
)
NO_WORKER_SECONDS = 60.0  # for which the cluster may have no worker
ASK_EVERY = 1.0  # second, the scheduler is asked how many workers it has

PACKAGES = ("ortops", "numba", "numpy", "onnx", "onnxruntime", "onnxruntime-extensions")
"""The workers have the versions of these that are here: other versions may make other cases, and other answers."""

T = TypeVar("T")


class Cluster(contextlib.AbstractContextManager["Cluster"]):
    """The workers of a scheduler; a context manager that cancels what they have not done.

    Raises:
        CrewError: nobody is there, or a worker that cannot do what is asked.
    """

    lost_errors: tuple[type[BaseException], ...] = (KilledWorker,)

    def __init__(self, address: str, backend: str) -> None:
        self._address = address
        try:
            # A client that cannot connect for another reason than time takes half a minute to go.
            asyncio.run(asyncio.wait_for(_reach(address), CONNECT_SECONDS))
            self._client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, asyncio.TimeoutError, TypeError, ValueError, ImportError) as error:
            text = f"is not a scheduler that answers within {CONNECT_SECONDS:g} s: {type(error).__name__}: {error}"
            raise WorkerPoolError(f"{address} {text}") from error
        self.executor: Executor = self._client.get_executor(pure=False, retries=3)
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

    def close(self) -> None:
        """Cancel what has not been done, and leave: a worker or a scheduler that hangs does not keep anybody here."""
        for leave in (lambda: self.executor.shutdown(wait=False), self._client.close):
            wait([_in_thread(leave)], CONNECT_SECONDS)

    def check(self) -> None:
        """Raise CrewError if there is no scheduler, or if it has had no worker for long."""
        now = time.monotonic()
        if now - self._asked < ASK_EVERY:
            return
        self._asked = now
        threads = sum(self._within(ANSWER_SECONDS, self._client.nthreads).values())
        # Two for each, so that none waits for this process.
        self.worker_count = 2 * max(threads, 1)
        if threads:
            self._seen = now
        elif now - self._seen > NO_WORKER_SECONDS:
            raise WorkerPoolError(f"the scheduler at {self._address} has had no worker for {NO_WORKER_SECONDS:g} s")

    def _check_workers(self, backend: str) -> None:
        try:
            self._client.wait_for_workers(1, CONNECT_SECONDS)
        except asyncio.TimeoutError as error:
            raise WorkerPoolError(
                f"the scheduler at {self._address} has no worker after {CONNECT_SECONDS:g} s"
            ) from error
        here = _versions(backend)
        answers = self._within(ANSWER_SECONDS, lambda: self._client.run(_versions, backend, on_error="return"))
        for worker, there in answers.items():
            if isinstance(there, Exception):
                raise WorkerPoolError(f"worker {worker} cannot do it: {type(there).__name__}: {there}")
            for package, expected in here.items():
                if there[package] != expected:
                    raise WorkerPoolError(
                        f"worker {worker} has {package} {there[package]}: must be {expected}, as here"
                    )

    def _within(self, seconds: float, ask: Callable[[], T]) -> T:
        """What the cluster answers; CrewError where it does not, or not in time."""
        answer = _in_thread(ask)
        if not wait([answer], seconds).done:
            raise WorkerPoolError(f"the cluster at {self._address} has not answered within {seconds:g} s")
        try:
            return answer.result()
        except (OSError, RuntimeError, asyncio.TimeoutError) as error:
            raise WorkerPoolError(f"the scheduler at {self._address} is gone: {error}") from error


def _in_thread(function: Callable[[], T]) -> Future[T]:
    """The result of a function that another thread runs; the process does not wait for its end."""
    result = Future[T]()

    def run() -> None:
        try:
            result.set_result(function())
        except Exception as error:  # noqa: BLE001  # it is raised again where it is waited for
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


async def _reach(address: str) -> None:
    comm = await connect(address, timeout=CONNECT_SECONDS, **Security().get_connection_args("client"))
    await comm.close()


def _versions(backend: str) -> dict[str, str]:
    """What is installed, where the backend is.

    Raises:
        MissingBackendError: it is not.
    """
    backends.load(backend)
    return {package: version(package) for package in PACKAGES}
