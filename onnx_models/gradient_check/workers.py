"""Worker processes that check cases, so that a crash or a hang affects one case only."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from threading import Lock

from onnx_models.gradient_check.cases import Case
from onnx_models.gradient_check.checker import Checker, Differentiate, Verdict, same_verdicts
from onnx_models.gradient_check.evaluate import newest_opset
from ortops.worker_process import WorkerProcess, can_limit_memory, limited_memory

TIME_LIMIT = 60.0
"""Seconds for one case."""

MEMORY_LIMIT = 8 * 2**30
"""Bytes of address space that a process may add to what it has at its start, if the system can limit that."""

Checked = list[list[Verdict]]
"""The verdicts of a case for each differentiate function."""


def check_in_processes(cases: Sequence[Case], differentiates: Sequence[Differentiate], jobs: int) -> Iterator[Checked]:
    """Check all cases with all differentiate functions; yields results in the order of the cases.

    Args:
        cases: the cases.
        differentiates: functions that another process can import.
        jobs: number of processes, at least 1.
    """
    idle: list[_Worker] = []
    lock = Lock()

    def one(case: Case) -> Checked:
        with lock:
            child = idle.pop() if idle else _Worker(differentiates)
        found = child.ask(case)
        with lock:
            idle.append(child)
        return found

    with ThreadPoolExecutor(jobs) as threads:
        try:
            yield from threads.map(one, cases)
        finally:
            threads.shutdown(cancel_futures=True)
            for child in idle:
                child.end()


class _Worker:
    """A process that checks case after case; if it dies or takes too long, it is replaced."""

    def __init__(self, differentiates: Sequence[Differentiate]) -> None:
        self._indices = range(len(differentiates))
        self._child = WorkerProcess(_serve, list(differentiates))
        self.end = self._child.end

    def ask(self, case: Case) -> Checked:
        """The verdicts of each function; a crash in one does not affect the others."""
        return [self._ask(case, index) for index in self._indices]

    def _ask(self, case: Case, index: int) -> list[Verdict]:
        stage = "the model"
        try:
            connection = self._child.connection()
            connection.send((case, index))
            last = time.monotonic() + TIME_LIMIT
            while connection.poll(max(0.0, last - time.monotonic())):
                answer = connection.recv()
                if isinstance(answer, list):
                    return answer
                stage = answer
        except (EOFError, OSError):
            happened = f"the process ended with exit code {self.end()} while it ran {stage}"
        else:
            self.end()
            happened = f"running {stage} took more than {TIME_LIMIT:g} s"
        if stage == "the model":
            return same_verdicts(case, "not testable", happened)
        return same_verdicts(case, "wrong", f"breaks: {happened}")


def _serve(differentiates: Sequence[Differentiate], connection: Connection) -> None:
    """Answer requests until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the parent ends its workers
    newest_opset()  # loads ONNX Runtime now, outside of the time limit of the first case
    with limited_memory(MEMORY_LIMIT) if can_limit_memory() else contextlib.nullcontext():
        connection.send("ready")
        with contextlib.suppress(EOFError, BrokenPipeError):
            checker: Checker | None = None
            while True:
                case, index = connection.recv()
                if checker is None or checker.case.name != case.name:
                    checker = Checker(case, connection.send)
                connection.send(checker.verdicts(differentiates[index]))
