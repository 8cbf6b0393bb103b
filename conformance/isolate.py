"""Run a backend in a child process, so that a case which ends the interpreter does not end the suite.

One child answers case after case. If it dies or takes too long, that case has crashed and the next case gets a new child.
Importing a runtime takes seconds and a case milliseconds, so a child for each case would take a thousand times as long.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Collection, Iterator, Sequence
from multiprocessing.connection import Connection
from types import TracebackType

from conformance import backends
from conformance.backends import Backend, conventions_of, is_unsafe
from conformance.case import Basis, Case
from conformance.expected_failures import ExpectedFailure, find
from conformance.run import Answer, CaseRunner, ask
from ortops.worker_process import WorkerProcess, limited_memory

TIME_LIMIT = 60.0
"""Seconds for one case, without the start of a child."""

_MIB = 2**20

_NO_MEMORY = re.compile(
    "MemoryError: $|Unable to allocate|Cannot allocate memory|bad_alloc|Failed to allocate memory|pthread_create failed"
)
"""What NumPy, Python and ONNX Runtime say when memory runs out. A backend's own MemoryError says something else."""


class IsolatedBackend:
    """A backend in a child process; a context manager that ends the child.

    time_limit: seconds that one case may take.
    provider: as `backends.load` takes it.
    memory_limit: MiB of address space that one case may take in addition to the child's; None for no limit. A limit needs
        `ortops.worker_process.can_limit_memory()`.
    """

    def __init__(
        self,
        name: str,
        time_limit: float = TIME_LIMIT,
        *,
        provider: str | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.time_limit = time_limit
        self._memory_limit = memory_limit
        self._child = WorkerProcess(_serve, name, provider, memory_limit)
        self.kill, self.end = self._child.kill, self._child.end

    def __enter__(self) -> IsolatedBackend:  # noqa: PYI034  # Self is of Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def ask(self, case: Case) -> Answer:
        """The answer, which is a crash if the child ended or exceeded a limit."""
        try:
            connection = self._child.connection()
            connection.send(case)
            if connection.poll(self.time_limit):
                answer: Answer = connection.recv()
                return answer
        except (EOFError, OSError):
            limit = "" if self._memory_limit is None else f", allowed {self._memory_limit} MiB"
            return Answer("crash", text=f"the process ended with exit code {self.end()}{limit}")
        self.end()
        return Answer("crash", text=f"no answer within {self.time_limit:g} s", seconds=self.time_limit)


@contextlib.contextmanager
def case_runner(
    name: str,
    *,
    provider: str | None = None,
    known: Sequence[ExpectedFailure] | None = None,
    isolate: bool = False,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    strict: Basis = Basis.OURS,
    conventions: Collection[str] = (),
) -> Iterator[CaseRunner]:
    """A runner for the cases of a backend, within a context.

    Cases that are known to end the process, and all cases of an unsafe backend, always run in a child.

    Args:
        name: the backend's.
        provider: as `backends.load` takes it.
        known: expected failures that replace the backend's own list, or None.
        isolate: True to run every case in a child.
        time_limit: seconds for a case in a child; None for `TIME_LIMIT`.
        memory_limit: see `IsolatedBackend`.
        strict: see `CaseRunner`.
        conventions: those in addition to the backend's own.

    Raises:
        MissingBackendError, ProviderError: see `backends.load`.
    """
    backend = backends.load(name, provider)
    listed = backend.expected_failures if known is None else known
    unsafe = is_unsafe(backend)
    with IsolatedBackend(name, provider=provider, memory_limit=memory_limit) as child:
        if time_limit is not None:
            child.time_limit = time_limit

        def answer_of(case: Case) -> Answer:
            failure = find(listed, case.id)
            if not (isolate or unsafe or (failure and failure.crashes)):
                return ask(backend, case)
            answer = child.ask(case)
            if unsafe and case.expects_error == "data" and answer.kind == "outputs":
                child.end()  # it may have written out of bounds, which could make a later case fail
            return answer

        yield CaseRunner(answer_of, listed, strict, {*conventions, *conventions_of(backend)})


def _serve(name: str, provider: str | None, memory_limit: int | None, connection: Connection) -> None:
    """Answer cases in the child until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both; the parent ends the child
    backend = backends.load(name, provider)
    connection.send("ready")
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            case = connection.recv()
            connection.send(ask(backend, case) if memory_limit is None else _ask_within(memory_limit, backend, case))


def _ask_within(mebibytes: int, backend: Backend, case: Case) -> Answer:
    """The answer of a backend within a limit of memory. Running out of memory is a crash, never a refusal."""
    with limited_memory(mebibytes * _MIB):
        answer = ask(backend, case)
    if answer.kind == "refusal" and _NO_MEMORY.search(answer.text):
        text = f"took more memory than the {mebibytes} MiB it is allowed: {answer.text}"
        return Answer("crash", text=text, seconds=answer.seconds)
    return answer
