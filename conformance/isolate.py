"""Asking a backend in a child process, so that a case which ends the interpreter ends no more than that.

One child answers case after case; when it dies or takes too long, that case has crashed and the next has a new child.
Importing a runtime takes seconds, a case milliseconds: a child for each case would cost a thousand times the suite.
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
from ortops.child import Child, limited_memory

TIME_LIMIT = 60.0
"""Seconds for one case, the start of a child not included."""

_MIB = 2**20

_NO_MEMORY = re.compile(
    "MemoryError: $|Unable to allocate|Cannot allocate memory|bad_alloc|Failed to allocate memory|pthread_create failed"
)
"""How NumPy, Python and ONNX Runtime word that there is no more memory. A backend's own MemoryError has other words."""


class IsolatedBackend:
    """Asks the backend of this name in a child process; a context manager that ends the child.

    time_limit: seconds that one case may take.
    provider: as `backends.load` takes it.
    memory_limit: MiB that one case may take beyond what the child has when it is asked, address space counted; None for
        as much as there is. Only where `ortops.child.can_limit_memory`.
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
        self._child = Child(_serve, name, provider, memory_limit)
        self.kill, self.end = self._child.kill, self._child.end

    def __enter__(self) -> IsolatedBackend:  # noqa: PYI034  # Self is of Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def ask(self, case: Case) -> Answer:
        """The answer, which is a crash where the child ended or exceeded a limit."""
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
    """Who asks a backend and judges it.

    Cases known to end the process, and all those of an unsafe backend, are asked in a child in any event.

    Args:
        name: of the backend.
        provider: as `backends.load` takes it.
        known: what takes the place of the backend's own list, or None.
        isolate: True to ask every case in a child.
        time_limit: seconds for a case in a child; None for `TIME_LIMIT`.
        memory_limit: see `IsolatedBackend`.
        strict: see `CaseRunner`.
        conventions: besides those that the backend says that it has.

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
                child.end()  # what has been written out of bounds is not to fail another case
            return answer

        yield CaseRunner(answer_of, listed, strict, {*conventions, *conventions_of(backend)})


def _serve(name: str, provider: str | None, memory_limit: int | None, connection: Connection) -> None:
    """What a child does: one answer for each case, until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both: the parent decides what ends
    backend = backends.load(name, provider)
    connection.send("ready")
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            case = connection.recv()
            connection.send(ask(backend, case) if memory_limit is None else _ask_within(memory_limit, backend, case))


def _ask_within(mebibytes: int, backend: Backend, case: Case) -> Answer:
    """The answer of a backend that may take so much memory. A refusal for want of it is a crash: no case asks for one."""
    with limited_memory(mebibytes * _MIB):
        answer = ask(backend, case)
    if answer.kind == "refusal" and _NO_MEMORY.search(answer.text):
        text = f"took more memory than the {mebibytes} MiB it is allowed: {answer.text}"
        return Answer("crash", text=text, seconds=answer.seconds)
    return answer
