# SPDX-License-Identifier: MIT OR Apache-2.0
"""Child processes for calls that may crash or hang, and a memory limit for the current process.

One thread owns a child: it calls functions in it, and starts another one if a call has ended it. A child without work ends
itself after `IDLE_SECONDS`. The processes that a child started end with it, and its temporary folder is removed.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from multiprocessing import connection as pipes
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

if TYPE_CHECKING or os.name == "posix":
    from multiprocessing import popen_spawn_posix

START_TIMEOUT = 120.0
"""Seconds that a process may take to start, and the default time limit of a call."""

STEP = 0.5
"""Seconds between two checks that a process is alive and within its time."""

IDLE_SECONDS = 40.0
"""A child without work ends itself after this many seconds. Its owner starts a new one after half of them."""

SPAWN = multiprocessing.get_context("spawn")
"""Not fork: a forked child lacks the threads that a runtime or numba may have started in the parent."""

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
    times = property(
        lambda self: tuple(self._times), doc="The deadline, a monotonic time, and the time limit in seconds."
    )

    @contextlib.contextmanager
    def interrupted(self, seconds: float) -> Iterator[None]:
        """A context with a time limit of its own, after which the stage has as much time left as before."""
        deadline, limit = self.times
        left = deadline - time.monotonic()
        self._times[:] = time.monotonic() + seconds, seconds
        yield
        self._times[:] = time.monotonic() + left, limit

    @property
    def wait_seconds(self) -> float:
        """The time until the deadline, at most `STEP`."""
        return min(STEP, max(0.0, float(self._times[0]) - time.monotonic()))


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


class Child:
    """A child process that runs one call at a time, for the thread that owns it. A context manager, which ends it.

    It starts with the first call, and again if a call has ended it.

    Args:
        begin: a function of a module, which each new process calls first.
        args: its arguments, which can be pickled.

    Attributes:
        greeting: what `begin` returned.
    """

    greeting: Any = None

    def __init__(self, begin: Callable[..., object], *args: Any) -> None:
        self._begin = begin, args
        self._running: tuple[BaseProcess, Connection] | None = None
        self._stage = _Stage()
        self._number, self._last_used, self._is_closed = 0, 0.0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> Any:
        """Start the process unless it is running, and return the result of `begin`.

        Raises:
            ProcessLostError: it ended, or took more than `START_TIMEOUT` to start.
            CancelledError: `kill` was called.
            Exception: `begin` raised it.
        """
        if self._is_closed:
            raise CancelledError
        if self._running is not None:
            is_idle = time.monotonic() - self._last_used > IDLE_SECONDS / 2
            if is_idle or self._running[0].exitcode is not None:
                self.end()
        if self._running is None:
            here, there = SPAWN.Pipe()
            begin, args = self._begin
            self._number = 0
            self._stage.set("", START_TIMEOUT)
            first = _Call(0, begin, [args], START_TIMEOUT)
            folder = tempfile.mkdtemp(prefix="conformance-")
            self._remove_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            process = _Process(target=_serve, args=(first, there, self._stage, folder), daemon=True)
            process.start()
            there.close()
            self._running = process, here
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
            lost = f"the process ended with {ending(self.end())}"
            if self._is_closed:
                raise CancelledError from None
        except Exception as error:  # noqa: BLE001  # unpickling what is no pickle raises any exception
            self.end()
            lost = f"the process sent something other than an answer: {type(error).__name__}: {error}"
        else:
            self._last_used = time.monotonic()
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
        while not connection.poll(self._stage.wait_seconds):
            if process.exitcode is not None and not connection.poll():
                raise EOFError
            # Both at once, since the process may begin a stage with another limit now.
            deadline, seconds = self._stage.times
            if time.monotonic() >= deadline:
                raise TimeoutError(seconds)
        return _Message(*connection.recv())

    def kill(self) -> None:
        """End the process at once, from any thread. The call that waits for it and all later calls raise CancelledError."""
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
        self._remove_folder()
        return process.exitcode


def ending(code: int | None) -> str:
    """What a process ended with, in words: its exit code, or the signal whose number it is the negative of."""
    return f"signal {-code} ({signal.strsignal(-code)})" if code is not None and code < 0 else f"exit code {code}"


def _end_in_time(process: BaseProcess, current: _Stage) -> None:
    """Kill a process at its deadline: otherwise the owner would wait forever for the rest of a partial message."""
    while not pipes.wait([process.sentinel], STEP):
        if time.monotonic() > current.times[0] + STEP:
            process.kill()


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


def uncounted(seconds: float) -> AbstractContextManager[None]:
    """A context in the current call that has its own time limit and does not count in the call's."""
    return contextlib.nullcontext() if _current is None else _current.interrupted(seconds)


def _serve(call: _Call, connection: Connection, current: _Stage, folder: str) -> None:
    """Run calls in a child process until the connection closes, or no call comes. The first one is `begin`."""
    global _current  # noqa: PLW0603  # a process serves one connection
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the parent ends its children
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # what a backend starts is of this group, and ends with it
    _current = current
    tempfile.tempdir = folder  # the parent removes it, however this process ends
    # The parent may have been killed.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
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
            if not connection.poll(IDLE_SECONDS):
                return
            call = connection.recv()


def can_limit_memory() -> bool:
    """Whether this process's memory can be limited: only on Linux."""
    return Path("/proc/self/statm").exists()


@contextlib.contextmanager
def limited_memory(size: int) -> Iterator[None]:
    """A context in which this process may use `size` more bytes of address space."""
    import resource  # not on Windows

    limits = resource.getrlimit(resource.RLIMIT_AS)
    set_memory_limit(size)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def set_memory_limit(size: int, process: int | None = None) -> None:
    """Let a process, by default this one, use `size` more bytes of address space than now.

    Raises:
        OSError: the process has ended.
    """
    import resource

    number = os.getpid() if process is None else process
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path(f"/proc/{number}/statm").read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    lowest = min(limit for limit in (used + size, soft, hard) if limit != resource.RLIM_INFINITY)
    resource.prlimit(number, resource.RLIMIT_AS, (lowest, hard))
