"""Trying cases in processes of their own, so that a crash or a hang in one takes none of the others."""

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
from ortops.child import Child, can_limit_memory, limited_memory

TIME_LIMIT = 60.0
"""Seconds for one case."""

MEMORY_LIMIT = 8 * 2**30
"""Bytes of address space that a process may take beyond what it begins with; where the system can limit that."""

Tried = list[list[Verdict]]
"""For each way to differentiate, the verdicts of a case."""


def check_in_processes(cases: Sequence[Case], differentiates: Sequence[Differentiate], jobs: int) -> Iterator[Tried]:
    """Try all ways to differentiate on all cases.

    Args:
        cases: in the order in which the results come.
        differentiates: functions of modules, which another process can import.
        jobs: how many processes, at least 1.
    """
    idle: list[_Worker] = []
    lock = Lock()

    def one(case: Case) -> Tried:
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
    """A process that tries case after case; when it dies or takes too long, the next case has a new one."""

    def __init__(self, differentiates: Sequence[Differentiate]) -> None:
        self._ways = range(len(differentiates))
        self._child = Child(_serve, list(differentiates))
        self.end = self._child.end

    def ask(self, case: Case) -> Tried:
        """What each way gives: one that crashes leaves the others."""
        return [self._ask(case, way) for way in self._ways]

    def _ask(self, case: Case, way: int) -> list[Verdict]:
        stage = "the model"
        try:
            connection = self._child.connection()
            connection.send((case, way))
            last = time.monotonic() + TIME_LIMIT
            while connection.poll(max(0.0, last - time.monotonic())):
                answer = connection.recv()
                if isinstance(answer, list):
                    return answer
                stage = answer
        except (EOFError, OSError):
            happened = f"the process ended with exit code {self.end()} in running {stage}"
        else:
            self.end()
            happened = f"no answer within {TIME_LIMIT:g} s in running {stage}"
        if stage == "the model":
            return same_verdicts(case, "not testable", happened)
        return same_verdicts(case, "wrong", f"breaks: {happened}")


def _serve(differentiates: Sequence[Differentiate], connection: Connection) -> None:
    """What a process does until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all: the parent decides what ends
    newest_opset()  # loads ONNX Runtime: not in the time of the first case
    with limited_memory(MEMORY_LIMIT) if can_limit_memory() else contextlib.nullcontext():
        connection.send("ready")
        with contextlib.suppress(EOFError, BrokenPipeError):
            checker: Checker | None = None
            while True:
                case, way = connection.recv()
                if checker is None or checker.case.name != case.name:
                    checker = Checker(case, connection.send)
                connection.send(checker.verdicts(differentiates[way]))
