"""Run a backend in a child process, so that a case which ends the interpreter does not end the suite.

One child answers case after case. If it dies or takes too long, that case has crashed and the next case gets a new child.
Importing a runtime takes seconds and a case milliseconds, so a child for each case would take a thousand times as long.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import NamedTuple

from conformance import backends
from conformance.backends import Backend, MissingBackendError, ProviderError, conventions_of, is_unsafe
from conformance.case import Basis, Case
from conformance.expected_failures import ExpectedFailure, find
from conformance.run import Answer, CaseRunner, ask
from ortops.worker_process import START_TIMEOUT, WorkerProcess, limited_memory

TIME_LIMIT = 60.0
"""Seconds for one case, without the start of a child."""

_MIB = 2**20

_NO_MEMORY = re.compile(
    "MemoryError: $|Unable to allocate|Cannot allocate memory|bad_alloc|Failed to allocate memory|pthread_create failed"
)
"""What NumPy, Python and ONNX Runtime say when memory runs out. A backend's own MemoryError says something else."""


class Declaration(NamedTuple):
    """What a backend says of itself: its expected failures, whether it is unsafe, and its conventions."""

    expected_failures: Sequence[ExpectedFailure]
    is_unsafe: bool
    conventions: Sequence[str]


def declaration_of(backend: Backend) -> Declaration:
    """The declaration of a backend in this process."""
    return Declaration(backend.expected_failures, is_unsafe(backend), conventions_of(backend))


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
        self.name, self.time_limit = name, time_limit
        self._memory_limit = memory_limit
        self._child = WorkerProcess(_serve, name, provider, memory_limit)
        self.kill, self.end = self._child.kill, self._child.end
        self._number = 0

    def __enter__(self) -> IsolatedBackend:  # noqa: PYI034  # Self is of Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def declaration(self) -> Declaration:
        """What the backend says of itself; this starts the child.

        Raises:
            MissingBackendError, ProviderError: see `backends.load`; or loading it ended the child.
        """
        try:
            self._child.connection()
        except TimeoutError as error:
            self.end()
            raise MissingBackendError(f"backend {self.name}: it is not loaded within {START_TIMEOUT:g} s") from error
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            text = f"backend {self.name}: loading it ended the process with exit code {self.end()}"
            raise MissingBackendError(text) from error
        if isinstance(self._child.greeting, Exception):
            self.end()
            raise self._child.greeting
        declared: Declaration = self._child.greeting
        return declared

    def ask(self, case: Case) -> Answer:
        """The answer, which is a crash if the child ended or exceeded a limit."""
        try:
            self._number += 1
            self._child.connection().send((self._number, case))
            return self._answer(time.monotonic() + self.time_limit)
        except TimeoutError:
            self.end()
            return Answer("crash", text=f"no answer within {self.time_limit:g} s", seconds=self.time_limit)
        except pickle.UnpicklingError as error:
            self.end()
            return Answer("crash", text=f"something else than an answer came from the process: {error}")
        except (EOFError, OSError):
            limit = "" if self._memory_limit is None else f", allowed {self._memory_limit} MiB"
            return Answer("crash", text=f"the process ended with exit code {self.end()}{limit}")

    def _answer(self, deadline: float) -> Answer:
        """The answer with the number of the last request; one with another number is dropped."""
        while True:
            found = self._child.receive(max(0.0, deadline - time.monotonic()))
            if not isinstance(found, _Numbered):
                raise pickle.UnpicklingError(f"it has the type {type(found).__name__}")
            if found.number == self._number:
                return found.answer


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
    with IsolatedBackend(name, provider=provider, memory_limit=memory_limit) as child:
        # A backend whose import ends the process is not imported here if all cases run in the child.
        backend = None if isolate else backends.load(name, provider)
        declared = child.declaration() if backend is None else declaration_of(backend)
        listed = declared.expected_failures if known is None else known
        if time_limit is not None:
            child.time_limit = time_limit

        def answer_of(case: Case) -> Answer:
            failure = find(listed, case.id)
            if not (backend is None or declared.is_unsafe or (failure and failure.crashes)):
                return ask(backend, case)
            answer = child.ask(case)
            if declared.is_unsafe and case.expects_error == "data" and answer.kind == "outputs":
                child.end()  # it may have written out of bounds, which could make a later case fail
            return answer

        yield CaseRunner(answer_of, listed, strict, {*conventions, *declared.conventions})


class _Numbered(NamedTuple):
    """An answer with the number of its request."""

    number: int
    answer: Answer


def _serve(name: str, provider: str | None, memory_limit: int | None, connection: Connection) -> None:
    """Answer cases in the child until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both; the parent ends the child
    try:
        backend = backends.load(name, provider)
    except (MissingBackendError, ProviderError) as error:
        connection.send(error)
        return
    connection.send(declaration_of(backend))
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            number, case = connection.recv()
            answer = ask(backend, case) if memory_limit is None else _ask_within(memory_limit, backend, case)
            try:
                connection.send(_Numbered(number, answer))
            except MemoryError:  # an array may be larger than its memory
                connection.send(_Numbered(number, Answer("crash", text="its answer is too large to be sent")))


def _ask_within(mebibytes: int, backend: Backend, case: Case) -> Answer:
    """The answer of a backend within a limit of memory. Running out of memory is a crash, never a refusal."""
    with limited_memory(mebibytes * _MIB):
        answer = ask(backend, case)
    if answer.kind == "refusal" and _NO_MEMORY.search(answer.text):
        text = f"took more memory than the {mebibytes} MiB it is allowed: {answer.text}"
        return Answer("crash", text=text, seconds=answer.seconds)
    return answer
