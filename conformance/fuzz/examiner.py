"""Processes that ask the reference, and the backend in a child of theirs. What one is told to do may end it.

They are started as programs, not by `multiprocessing`, whose daemons (dask's workers are some) may have no children.
A pickled request goes in, pickled answers come out, None is the last. One whose starter has ended ends, too.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from conformance.fuzz.work import TIME_LIMIT, Look, Shrink
from conformance.isolate import asking

END_SECONDS = 5.0
"""For one to end by itself."""

PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); name, *sys.path = sys.argv[1:]; "
    "from conformance.fuzz.examiner import serve; serve(name)"
)
"""With the path of the process that starts it. Whoever interrupts that process interrupts this one no earlier."""


class EndedError(Exception):
    """An examiner ended instead of answering."""


class Examiner:
    """A process that answers requests about one backend."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        command = [sys.executable, "-c", PROGRAM, backend, *sys.path]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)  # noqa: S603

    def answers(self, request: Look | Shrink) -> Iterator[Any]:
        """Its answers.

        Raises:
            EndedError: with the exit code.
        """
        there, back = self._process.stdin, self._process.stdout
        assert there is not None  # noqa: S101  # they are pipes
        assert back is not None  # noqa: S101
        try:
            pickle.dump(request, there)
            there.flush()
            while (answer := pickle.load(back)) is not None:  # noqa: S301  # of our own process
                yield answer
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise EndedError(f"ended with exit code {self.end()}") from error

    def end(self) -> int:
        """End it; its exit code."""
        try:
            self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        return self._process.returncode

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it at once, whoever waits for its answer, and with it a backend that does not come to an end."""
        if self.is_alive and hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()


def serve(backend: str) -> None:
    """What the process does."""
    # What a runtime prints must not come between the answers.
    back = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asked = asking(backend, known=(), isolate=True, time_limit=TIME_LIMIT)
    with asked as examiner, contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            request = pickle.load(sys.stdin.buffer)  # noqa: S301  # of the process that started this one
            for answer in request.answers(examiner.asker):
                pickle.dump(answer, back)
                back.flush()
            pickle.dump(None, back)
            back.flush()
