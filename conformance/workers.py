"""The workers of a command: child processes of this process, or a dask.distributed cluster."""

from __future__ import annotations

from concurrent.futures import Executor

from conformance.printable import PrintableError
from conformance.worker_process import LocalExecutor


class WorkerPoolError(PrintableError):
    """The cluster, or its last worker, was lost before all cases ran."""


class WorkerPool:
    """The workers of a command.

    executor: runs tasks, each of which borrows a child process.
    worker_count: the number of tasks that it runs at once.
    lost_errors: the exceptions that a future raises if every worker that ran its task has died.
    """

    executor: Executor
    worker_count: int
    lost_errors: tuple[type[BaseException], ...] = ()

    def check(self) -> None:
        """Raise WorkerPoolError if no worker is left."""


class LocalPool(LocalExecutor, WorkerPool):
    """Child processes of this process. A lost one is replaced."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self.executor, self.worker_count = self, jobs
