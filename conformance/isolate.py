"""Asking a backend in a child process, so that a case which ends the interpreter ends no more than that.

One child answers case after case; when it dies or takes too long, that case has crashed and the next has a new child.
Importing a runtime takes seconds, a case milliseconds: a child for each case would cost a thousand times the suite.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from types import TracebackType

from conformance import backends
from conformance.case import Case
from conformance.run import Answer, ask

TIME_LIMIT = 60.0
"""Seconds for one case, the start of a child not included."""

START_LIMIT = 120.0
"""Seconds for a child to load its backend."""


class IsolatedBackend:
    """Asks the backend of this name in a child process; a context manager that ends the child.

    time_limit: seconds that one case may take.
    """

    def __init__(self, name: str, time_limit: float = TIME_LIMIT) -> None:
        self._name = name
        self._time_limit = time_limit
        self._child: tuple[multiprocessing.process.BaseProcess, Connection] | None = None

    def __enter__(self) -> IsolatedBackend:  # noqa: PYI034  # Self is of Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def ask(self, case: Case) -> Answer:
        """The answer, which is a crash where the child ended or exceeded the time limit."""
        try:
            _, connection = self._child or self._start()
            connection.send(case)
            if connection.poll(self._time_limit):
                answer: Answer = connection.recv()
                return answer
        except (EOFError, OSError):
            return Answer("crash", text=f"the process ended with exit code {self._end()}")
        self._end()
        return Answer("crash", text=f"no answer within {self._time_limit:g} s", seconds=self._time_limit)

    def _start(self) -> tuple[multiprocessing.process.BaseProcess, Connection]:
        # Not a fork: the parent may have threads, of a runtime or of numba, that a forked child would lack.
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(self._name, there), daemon=True)
        process.start()
        there.close()
        self._child = process, here
        if not here.poll(START_LIMIT):
            raise EOFError
        here.recv()
        return self._child

    def _end(self) -> int | None:
        if self._child is None:
            return None
        process, connection = self._child
        self._child = None
        connection.close()
        process.join(1.0)
        if process.exitcode is None:
            process.kill()
            process.join()
        return process.exitcode


def _serve(name: str, connection: Connection) -> None:
    """What a child does: one answer for each case, until the connection closes."""
    backend = backends.load(name)
    connection.send("ready")
    while True:
        try:
            case = connection.recv()
        except EOFError:
            return
        connection.send(ask(backend, case))
