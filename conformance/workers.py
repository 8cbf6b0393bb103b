"""The workers of a command: child processes of this one, or those of a dask.distributed cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Protocol

from conformance.printable import PrintableError
from ortops.worker_process import LocalExecutor


class WorkerPoolError(PrintableError):
    """No cluster, or none of its workers, is left for the remaining cases."""


class WorkerPool(Protocol):
    """The workers of a command.

    executor: runs tasks, each of which borrows a child process.
    worker_count: the number of tasks that it runs at once.
    lost_errors: the exceptions that a future raises if every worker that ran its task has died.
    """

    executor: Executor
    worker_count: int
    lost_errors: tuple[type[BaseException], ...]

    def check(self) -> None:
        """Raise WorkerPoolError if no worker is left."""


class LocalPool(LocalExecutor):
    """Child processes of this one."""

    lost_errors: tuple[type[BaseException], ...] = ()

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self.executor: Executor = self
        self.worker_count = jobs

    def check(self) -> None:
        """Do nothing: a process that is lost is replaced."""


@contextlib.contextmanager
def workers(jobs: int, address: str | None, backend: str) -> Iterator[WorkerPool]:
    """The workers within a block.

    Args:
        jobs: the number of child processes.
        address: the address of a dask scheduler whose workers are taken instead, or None.
        backend: the name of the backend that these must be able to load.

    Raises:
        WorkerPoolError: there is no such cluster, its workers have other versions than this process, or dask is missing.
    """
    if address is None:
        with LocalPool(jobs) as here:
            yield here
        return
    try:
        from conformance.cluster import Cluster
    except ModuleNotFoundError as error:
        raise WorkerPoolError(f"{error}: pip install 'ortops[dask]'") from error
    with Cluster(address, backend) as there:
        yield there
