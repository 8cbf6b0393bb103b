"""Child processes for calls that may crash or hang, threads that use them, and a memory limit for the current process.

A task of an executor borrows a child of its process (`borrowed`), calls functions in it, and returns it. The executor may be
`LocalExecutor`, or a cluster's, such as dask.distributed's `Client.get_executor`.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from multiprocessing import connection as pipes
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING or os.name == "posix":
    from multiprocessing import popen_spawn_posix

START_TIMEOUT = 120.0
"""Seconds that a process may take to start, and the default time limit of a call."""

STEP = 0.5
"""Seconds between two checks that a process is alive."""

IDLE_SECONDS = 20.0
"""An idle child process ends after this many seconds."""

SPAWN = multiprocessing.get_context("spawn")
"""Not fork: a forked child lacks the threads that a runtime or numba may have started in the parent."""

_SIZES = Path("/proc/self/statm")

T = TypeVar("T")


class ProcessLostError(Exception):
    """A call without a result: its process ended, took too long or sent something else. The message says which.

    stage: the last stage that the call named.
    seconds: the time limit, if the call took longer; else 0.
    """

    def __init__(self, message: str, stage: str = "", seconds: float = 0.0) -> None:
        super().__init__(message)
        self.stage, self.seconds = stage, seconds


class _Call(NamedTuple):
    """A task for a child process: to call a function with each of several tuples of arguments."""

    number: int
    function: Callable[..., object]
    arguments: list[tuple[Any, ...]]
    seconds: float


class _Message(NamedTuple):
    """A child process's message for each tuple of arguments of call `number`: the result, or the error that was raised."""

    number: int
    is_error: bool
    value: Any


class _Stage:
    """The stage of a call and its deadline, in memory that both processes share; sending messages would need a thread."""

    def __init__(self) -> None:
        self._name, self._times = SPAWN.RawArray("c", 64), SPAWN.RawArray("d", 2)

    def set(self, name: str, seconds: float | None) -> None:
        """Begin a stage with a time limit; None keeps the current deadline."""
        self._name.value = name.encode()
        if seconds is not None:
            self._times[:] = time.monotonic() + seconds, seconds

    name = property(lambda self: bytes(self._name.value).decode(errors="replace"))
    times = property(lambda self: tuple(self._times), doc="The deadline and the time limit of the stage.")
    deadline = property(lambda self: float(self._times[0]), doc="The monotonic time at which the stage has to be over.")


if TYPE_CHECKING or os.name == "posix":

    class _Popen(popen_spawn_posix.Popen):
        """A child process whose group is killed before the child is reaped: later its number may belong to another group."""

        def __init__(self, process: BaseProcess) -> None:
            self._lock = threading.Lock()
            super().__init__(process)

        def poll(self, flag: int = os.WNOHANG) -> int | None:
            """The exit code, or None. Only this method reaps the child: see `multiprocessing.popen_fork`."""
            if not hasattr(os, "waitid"):  # macOS before Python 3.13: `kill` alone ends the group
                return super().poll(flag)
            with contextlib.suppress(ChildProcessError):  # another thread has reaped it
                if self.returncode is None and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | flag):
                    with self._lock:
                        self._kill_group()
                        super().poll()
            return self.returncode

        def kill(self) -> None:
            """End the child and its group."""
            with self._lock:
                self._kill_group()
            super().kill()

        def _kill_group(self) -> None:
            if self.returncode is None:
                with contextlib.suppress(OSError):  # the child has not made it yet
                    os.killpg(self.pid, signal.SIGKILL)

    class _Process(SpawnProcess):
        """A child process that ends together with the processes that it started, such as compiled programs."""

        @staticmethod
        def _Popen(process: BaseProcess) -> _Popen:  # noqa: N802  # multiprocessing's name for it
            return _Popen(process)
else:
    _Process = SpawnProcess  # Windows has no groups


class WorkerProcess:
    """A child process that runs one call at a time. It starts with the first call, and again if a call has ended it.

    Args:
        begin: a function of a module, which each new process calls first.
        args: its arguments, which can be pickled.

    Attributes:
        greeting: what `begin` returned.
        key: `begin` and its arguments.
    """

    greeting: Any = None

    def __init__(self, begin: Callable[..., object], *args: Any) -> None:
        self.key = begin, *args
        self._running: tuple[BaseProcess, Connection] | None = None
        self._stage = _Stage()
        self._number = 0
        self._is_closed = False

    def start(self) -> Any:
        """Start the process unless it is running, and return the result of `begin`.

        Raises:
            ProcessLostError: it ended, or took more than `START_TIMEOUT` to start.
            CancelledError: `kill` was called.
            Exception: `begin` raised it.
        """
        if self._is_closed:
            raise CancelledError
        if self._running is not None and self._running[0].exitcode is not None:
            self.end()
        if self._running is None:
            here, there = SPAWN.Pipe()
            begin = _Call(0, self.key[0], [self.key[1:]], START_TIMEOUT)
            process = _Process(target=_serve, args=(begin, there, self._stage), daemon=True)
            # A dask worker is a daemon process, which multiprocessing allows no children unless the flag is cleared.
            multiprocessing.current_process().daemon = False
            self._stage.set("", START_TIMEOUT)
            process.start()
            there.close()
            self._running, self._number = (process, here), 0
            threading.Thread(target=_end_in_time, args=(process, self._stage), daemon=True).start()
            try:
                self.greeting = self._result()
            except BaseException:
                self.end()
                raise
            self._stage.set("", math.inf)
        return self.greeting

    def call(self, function: Callable[..., T], *args: Any, seconds: float = START_TIMEOUT) -> T:
        """The result of a function of a module, called in the process.

        Args:
            function: the function.
            args: its arguments, which can be pickled.
            seconds: the time limit; the function can change it by `stage`.

        Raises:
            ProcessLostError: there is no result; the next call starts a new process.
            CancelledError: `kill` was called.
            Exception: the function raised it.
        """
        (result,) = self.calls(function, [args], seconds)
        return result

    def calls(
        self, function: Callable[..., T], arguments: Iterable[tuple[Any, ...]], seconds: float = START_TIMEOUT
    ) -> Iterator[T]:
        """The results of calls with each of several tuples of arguments, sent in one message, which costs less.

        Each result is yielded as soon as it comes. The first call without a result ends the iterator with the exception that
        `call` raises; those after it have not been made. All results have to be taken before the next call.
        """
        self.start()
        assert self._running is not None  # noqa: S101  # it has been started
        self._number += 1
        call = _Call(self._number, function, list(arguments), seconds)
        self._stage.set("", seconds)
        with contextlib.suppress(OSError):  # the process has ended: its exit code follows
            self._running[1].send(call)
        for _ in call.arguments:
            yield self._result()
        self._stage.set("", math.inf)

    def _result(self) -> Any:
        """The result of the current call. Raises the same exceptions as `call`."""
        message, seconds = None, 0.0
        try:
            while message is None or message.number != self._number:  # another call may have left messages
                message = self._received()
        except TimeoutError as error:
            self.end()
            (seconds,) = error.args
            lost = f"no answer within {seconds:g} s"
        except (EOFError, OSError):
            lost = f"the process ended with exit code {self.end()}"
            if self._is_closed:
                raise CancelledError from None
        except Exception as error:  # noqa: BLE001  # unpickling what is no pickle raises any exception
            self.end()
            lost = f"the process sent something other than an answer: {type(error).__name__}: {error}"
        else:
            if message.is_error:
                raise message.value
            return message.value
        raise ProcessLostError(lost, self._stage.name, seconds)

    def _received(self) -> _Message:
        """The next message of the process.

        Raises:
            TimeoutError: it sent no message before the deadline; the argument is the stage's time limit.
            EOFError, OSError: it ended, or its end of the pipe is closed.
            Exception: it sent something that is not a message.
        """
        if self._running is None:
            raise EOFError
        process, connection = self._running
        # The end of the process does not close the pipe if it has forked a process that is alive.
        while not connection.poll(min(STEP, max(0.0, self._stage.deadline - time.monotonic()))):
            if process.exitcode is not None and not connection.poll():
                raise EOFError
            # Both at once, since the process may begin a stage with another limit now.
            deadline, seconds = self._stage.times
            if time.monotonic() >= deadline:
                raise TimeoutError(seconds)
        return _Message(*connection.recv())

    def kill(self) -> None:
        """End the process at once. The call that waits for it and all later calls raise CancelledError."""
        self._is_closed = True
        if (running := self._running) is not None:
            running[0].kill()

    def end(self) -> int | None:
        """End the process and return its exit code, or None if it is not running. The next call starts a new one."""
        if self._running is None:
            return None
        process, connection = self._running
        self._running = None
        connection.close()
        pipes.wait([process.sentinel], 1.0)
        process.kill()
        process.join()
        return process.exitcode


_current: _Stage | None = None
"""In a child process: the stage of the current call."""


def stage(name: str, seconds: float | None = None) -> None:
    """Name the next step of the current call, for error messages. Does nothing outside of child processes.

    Args:
        name: the name.
        seconds: the time limit from now on; None keeps the current deadline.
    """
    if _current is not None:
        _current.set(name, seconds)


def _end_in_time(process: BaseProcess, current: _Stage) -> None:
    """Kill a process at its deadline: otherwise the parent would wait forever for the rest of a partial message."""
    while not pipes.wait([process.sentinel], STEP):
        if time.monotonic() > current.deadline + STEP:
            process.kill()


def _serve(call: _Call, connection: Connection, current: _Stage) -> None:
    """Run calls in a child process until the connection closes. The first one is `begin`."""
    global _current  # noqa: PLW0603  # a process serves one connection
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the parent ends its children
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # what a backend starts is of this group, and ends with it
    _current = current
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            for args in call.arguments:
                current.set("", call.seconds)
                try:
                    message = _Message(call.number, False, call.function(*args))
                except Exception as error:  # noqa: BLE001  # the parent raises it
                    message = _Message(call.number, True, error)
                try:
                    connection.send(message)
                except Exception as error:  # noqa: BLE001  # too large for the memory, or it cannot be pickled
                    lost = ProcessLostError(f"its answer cannot be sent: {type(error).__name__}")
                    message = _Message(call.number, True, lost)
                    connection.send(message)
                if message.is_error:
                    break
            del message
            call = connection.recv()


_lock = threading.Lock()
_all: dict[WorkerProcess, threading.Timer | None] = {}
"""The child processes of this process, each with the timer that will end it; None while a thread uses it."""


@contextlib.contextmanager
def borrowed(begin: Callable[..., object], *args: Any) -> Iterator[WorkerProcess]:
    """A child process for a block, for this thread alone: an idle one with the same `begin` and `args`, or a new one."""
    with _lock:
        idle = (child for child, timer in _all.items() if timer and child.key == (begin, *args))
        child = next(idle, None) or WorkerProcess(begin, *args)
        if timer := _all.get(child):
            timer.cancel()
        _all[child] = None
    try:
        yield child
    finally:
        with _lock:
            timer = _all[child] = threading.Timer(IDLE_SECONDS, _end_idle, [child])
            timer.daemon = True
            timer.start()


def _end_idle(child: WorkerProcess) -> None:
    with _lock:
        timer = _all.get(child)
        if timer is None:  # in use again, or ended
            return
        timer.cancel()
        del _all[child]
    child.end()


class LocalExecutor(ThreadPoolExecutor):
    """Threads whose tasks call functions in child processes. All child processes end with the `with` block.

    Args:
        jobs: the number of threads.
    """

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self._unfinished: set[Future[Any]] = set()

    def submit(self, function: Callable[..., T], /, *args: Any, **named: Any) -> Future[T]:
        """See `concurrent.futures.Executor.submit`."""
        future = super().submit(function, *args, **named)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return future

    def __exit__(self, *_: object) -> None:
        """Cancel waiting tasks, stop running ones, and end all child processes."""
        self.shutdown(wait=False, cancel_futures=True)
        while wait(list(self._unfinished), 0.0).not_done:
            with _lock:
                running = [child for child, timer in _all.items() if timer is None]
            for child in running:
                child.kill()
            wait(list(self._unfinished), 0.1)
        for child in list(_all):
            _end_idle(child)


def can_limit_memory() -> bool:
    """Whether this process's memory can be limited: only on Linux."""
    return _SIZES.exists()


@contextlib.contextmanager
def limited_memory(size: int) -> Iterator[None]:
    """A context in which the process may use `size` more bytes of address space."""
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(_SIZES.read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    lowest = min(limit for limit in (used + size, soft, hard) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
