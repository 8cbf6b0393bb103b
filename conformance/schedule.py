# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run cases in child processes, so that a case that kills its process or never returns does not stop the suite.

A child runs and judges many cases. If it dies or takes too long, that case has crashed, and the next case gets a new child.
Importing a runtime takes seconds and a case milliseconds, so a child for each case would take a thousand times as long. Each
thread of a `WorkerPool` owns a child for the backend.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

from conformance import backends
from conformance.backends import Backend, MissingBackendError
from conformance.case import MAX_SAMPLES, Case, Level, scenario_of
from conformance.child import START_TIMEOUT, Child, ProcessLostError, stage
from conformance.expected_failures import ExpectedFailure
from conformance.families import family_of
from conformance.outcome import Outcome, Reason, Result
from conformance.run import Answer, AnswerFunction, CaseRunner, ask, part_of
from conformance.stored_results import store_results

TIME_LIMIT = 10.0
"""Seconds that a backend may take for one case. Most take milliseconds."""

WARM_UP_LIMITS = 3
"""How many times the time limit of a case a backend may take for its first call, which does not count."""

MAX_CASES = 32
"""The maximum number of cases of one task."""

QUIET_SECONDS = 5.0
"""A backend that takes longer to start is named on standard error."""

LISTEN_EVERY = 1.0
"""Seconds after which a wait is interrupted, because Windows delivers no Ctrl-C to a thread that waits without a limit."""

MAX_TASKS = 4
"""The maximum number of unfinished tasks for each worker."""

TWIN = "the valid twin"
"""The stage of a call in which the backend runs the twin of a case."""

_MIB = 2**20

_NO_MEMORY = re.compile(
    "MemoryError: $|Unable to allocate|Cannot allocate memory|bad_alloc|Failed to allocate memory|pthread_create failed"
)
"""The messages of NumPy, Python and ONNX Runtime when memory runs out. A backend's own MemoryError has another message."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The backend of a run, and how it is judged.

    backend, provider: as `backends.load` takes them.
    known: expected failures that replace the backend's own list, or None.
    level: see `CaseRunner`.
    conventions: those in addition to the backend's own.
    time_limit: seconds that the backend may take for one case.
    memory_limit: MiB of address space that one case may take in addition to the child's; None for no limit. A limit needs
        `conformance.child.can_limit_memory()`.
    """

    backend: str
    provider: str | None = None
    known: tuple[ExpectedFailure, ...] | None = None
    level: Level = Level.STRICT
    conventions: tuple[str, ...] = ()
    time_limit: float = TIME_LIMIT
    memory_limit: int | None = None


class Declaration(NamedTuple):
    """What a backend says of itself: see `Backend`."""

    expected_failures: Sequence[ExpectedFailure]
    is_unsafe: bool
    conventions: Sequence[str]
    version: str = ""


class BackendChild(Child):
    """A child process with a backend."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(load, setting)
        self._setting = setting

    def declaration(self) -> Declaration:
        """The backend's declaration.

        Raises:
            MissingBackendError, ProviderError: see `backends.load`; or the child ended while it loaded the backend.
        """
        name = f"backend {self._setting.backend}"
        try:
            declared: Declaration = self.start()
        except ProcessLostError as error:
            text = str(error).replace("the process ended", "loading it ended the process")
            raise MissingBackendError(f"{name}: {text.replace('no answer', 'it is not loaded')}") from error
        return declared

    def answer(self, case: Case) -> Answer:
        """The backend's answer; a crash if the child ended or exceeded a limit."""
        declared = self.declaration()
        try:
            answer = self.call(answer_within, self._setting, case)
        except ProcessLostError as error:
            return self._lost(error)
        if declared.is_unsafe and case.expects_error == "data" and answer.kind == "outputs":
            self.end()  # it may have written out of bounds, which could make a later case fail
        return answer

    def result(self, case: Case) -> Result:
        """The result of a case, with the valid twin if it is refused."""
        (result,) = self.results([case])
        return result

    def results(self, cases: Sequence[Case]) -> Iterator[Result]:
        """The results of cases, which the child gets in one message. If a case ends the child, it has crashed."""
        left = deque(cases)
        while left:
            declared = self.declaration()
            try:
                for result in self.calls(_judged_in_child, [(self._setting, case) for case in left]):
                    case = left.popleft()
                    yield result
                    is_wrong = result.outcome not in (Outcome.PASSED, Outcome.UNSUPPORTED)
                    if declared.is_unsafe and case.expects_error == "data" and is_wrong:
                        self.end()  # as above
                        break
            except ProcessLostError as error:
                runner = runner_of(self._setting, declared, self.answer)
                yield runner.result_of(left.popleft(), self._lost(error))

    def warm_up(self, case: Case) -> None:
        """Let the backend do what it does once, such as compiling: run the case, and ignore the answer."""
        with contextlib.suppress(ProcessLostError):
            self.call(answer_within, self._setting, case, "", WARM_UP_LIMITS * self._setting.time_limit)

    def _lost(self, error: ProcessLostError) -> Answer:
        limit, text = self._setting.memory_limit, str(error)
        if limit is not None and text.startswith("the process ended"):
            text = f"{text}, allowed {limit} MiB"
        if error.stage == TWIN:
            return Answer("unsupported", text=f"no right answer to its valid twin: {text}", seconds=error.seconds)
        reason = Reason.TIME if error.seconds else Reason.ENDED
        return Answer("crash", text=text, seconds=error.seconds, reason=reason)


@contextlib.contextmanager
def judge_of(setting: Setting, is_isolated: bool) -> Iterator[Callable[[Case], Result]]:
    """A function that returns the result of a case, for a block. The backend runs in this process unless it is isolated.

    An unsafe backend is always isolated, and so is one with cases that are known to end the process.

    Raises:
        MissingBackendError, ProviderError: see `backends.load`; or the child ended while it loaded the backend.
    """
    if not is_isolated:
        declared = load(setting)
        runner = runner_of(setting, declared, functools.partial(ask, _loaded(setting)))
        if not declared.is_unsafe and not any(failure.crashes for failure in runner.known):
            yield runner.result
            return
    with BackendChild(setting) as child:
        child.declaration()
        yield child.result


def runner_of(setting: Setting, declared: Declaration, answer: AnswerFunction) -> CaseRunner:
    """The runner that judges a backend with this declaration by the setting."""
    known = declared.expected_failures if setting.known is None else setting.known
    return CaseRunner(answer, known, setting.level, {*setting.conventions, *declared.conventions})


T = TypeVar("T")
C = TypeVar("C", bound=Child)

_here = threading.local()
_owned: list[Child] = []
"""The children that threads of pools own in this process."""


def own_child(kind: Callable[..., C], *args: Any) -> C:
    """The child `kind(*args)` of the current thread, which is a pool's."""
    children: dict[object, C] = _here.__dict__.setdefault("children", {})
    key = kind, *args
    if key not in children:
        children[key] = kind(*args)
        _owned.append(children[key])
    return children[key]


class WorkerPool:
    """Threads that own child processes. A context manager, at whose end all tasks are stopped and all children have ended.

    worker_count: the number of tasks that run at once.
    """

    def __init__(self, jobs: int) -> None:
        self.worker_count = jobs
        self._threads, self._unfinished = ThreadPoolExecutor(jobs), set[Future[Any]]()

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call a function in a worker."""
        future = self._threads.submit(function, *args)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        while wait(list(self._unfinished), 0.0).not_done:  # a running task may make another child
            for child in _owned:
                child.kill()
            wait(list(self._unfinished), 0.1)
        while _owned:
            _owned.pop().end()


def run_cases(pool: WorkerPool, setting: Setting, cases: Sequence[Case]) -> tuple[str, Iterator[Result]]:
    """The backend's version, empty without cases, and an iterator over the results, as soon as each is ready.

    Cases of one scenario run one after another in one process, because they share results of the reference. Cases with very
    many samples come last in their group, because a runtime that visits each sample may exceed its time. Each worker first
    runs a small case with a longer time limit, because a first call may take seconds, as with a runtime that compiles then.

    Raises:
        MissingBackendError, ProviderError: see `backends.load`; or the child ended while it loaded the backend.
    """
    if not cases:
        return "", iter(())
    tasks = tasks_of(cases)
    small = (case for task in tasks for case in task if not (case.expects_error or case.formula or _is_huge(case)))
    parts = (part_of(case, case.formula.smaller().smaller()) for case in cases if case.formula)
    first = next(itertools.chain(small, parts), None)
    # Each worker loads the backend at once, rather than when its first case waits for it.
    loading = [pool.submit(load_first, setting, first) for _ in range(pool.worker_count)]
    if not wait(loading[:1], QUIET_SECONDS).done:
        sys.stderr.write(f"waiting for {setting.backend} to start, at most {START_TIMEOUT:.0f} s\n")
    return loading[0].result().version, _as_completed(pool, setting, tasks)


def tasks_of(cases: Sequence[Case]) -> list[list[Case]]:
    """The cases in the order in which they run, in parts of one scenario and of one family."""
    groups: dict[str, int] = {}
    order = sorted(cases, key=lambda case: (groups.setdefault(case.group, len(groups)), _is_huge(case)))
    scenarios = itertools.groupby(order, lambda case: (scenario_of(case.id), case.definition.family))
    tasks = (list(scenario) for _, scenario in scenarios)
    return [task[first : first + MAX_CASES] for task in tasks for first in range(0, len(task), MAX_CASES)]


def _is_huge(case: Case) -> bool:
    if case.expects_error or case.formula is not None:
        return not case.expects_error
    try:
        return bool(family_of(case.definition).samples(case) > MAX_SAMPLES)
    except ValueError as error:
        error.add_note(f"in the case {case.id}, which its operator's definition refuses")
        raise


def _as_completed(pool: WorkerPool, setting: Setting, tasks: Iterable[list[Case]]) -> Iterator[Result]:
    """The results of tasks. The pool gets a few at a time."""
    waiting, running = deque(tasks), set[Future[list[Result]]]()
    while waiting or running:
        while waiting and len(running) < MAX_TASKS * pool.worker_count:
            running.add(pool.submit(run_task, setting, waiting.popleft()))
        wait(running, LISTEN_EVERY, FIRST_COMPLETED)
        for future in [future for future in running if future.done()]:
            running.remove(future)
            yield from future.result()


# Tasks of a pool.


def load_first(setting: Setting, first: Case | None) -> Declaration:
    """Load the backend in the thread's child, and run a first case, which does not count."""
    child = own_child(BackendChild, setting)
    declared = child.declaration()
    if first is not None:
        child.warm_up(first)
    return declared


def run_task(setting: Setting, cases: Sequence[Case]) -> list[Result]:
    """The results of cases in the thread's child."""
    return list(own_child(BackendChild, setting).results(cases))


# What a child calls.


@functools.cache
def _loaded(setting: Setting) -> Backend:
    return backends.load(setting.backend, setting.provider)


def load(setting: Setting) -> Declaration:
    """Load the backend in this process."""
    backend = _loaded(setting)
    return Declaration(backend.expected_failures, backend.is_unsafe, backend.conventions, backend.version)


def answers_of(setting: Setting) -> AnswerFunction:
    """A function that runs a case on the backend; the calls after the first run its twin."""
    stages = itertools.chain([""], itertools.repeat(TWIN))
    return lambda case: answer_within(setting, case, next(stages))


def answer_within(setting: Setting, case: Case, name: str = "", seconds: float | None = None) -> Answer:
    """The backend's answer within the limits of time and memory, as a stage of this name.

    The time limit is the setting's unless `seconds` is given. Exceeding the memory limit is a crash, never a refusal.
    """
    seconds = setting.time_limit if seconds is None else seconds
    stage(name, seconds)
    try:
        if setting.memory_limit is None:
            return ask(_loaded(setting), case, seconds)
        backend = _loaded(setting)
        with backend.limited_memory(setting.memory_limit * _MIB):
            answer = ask(backend, case, seconds)
    finally:
        stage(name, START_TIMEOUT)
    if answer.kind == "refusal" and _NO_MEMORY.search(answer.text):
        text = f"took more memory than the {setting.memory_limit} MiB it is allowed: {answer.text}"
        return Answer("crash", text=text, seconds=answer.seconds, reason=Reason.MEMORY)
    return answer


def _judged_in_child(setting: Setting, case: Case) -> Result:
    store_results()
    return runner_of(setting, load(setting), answers_of(setting)).result(case)
