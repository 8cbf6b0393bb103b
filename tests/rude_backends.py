"""Functions whose errors say what would do more than stand in a report, or cannot be written or said at all."""

from __future__ import annotations

import io
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

CLEARS = (
    "\x1b[2J\x1b]8;;http://x\x1b\\link\x07\r\n3780 passed, 0 failed\n\0\x9b31m\u202edc\ud800 \uffff [red]中 :smile:"
)
"""Clears a terminal, makes a link, rings, feigns a last line, colours, turns text round, and is neither UTF-8 nor XML."""

SHOWN = (
    r"\x1b[2J\x1b]8;;http://x\x1b\link\x07\r\n3780 passed, 0 failed\n\x00\x9b31m\u202edc\ud800 \uffff [red]中 :smile:"
)


class WordlessError(Exception):
    """Its message cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError


def refuses(*_: object) -> None:
    raise ValueError(CLEARS)


def supports_nothing(*_: object) -> None:
    raise NotImplementedError(CLEARS)


def has_a_rude_name(*_: object) -> None:
    raise type(CLEARS.replace("\0", "").replace("\ud800", ""), (Exception,), {})


def says_much(*_: object) -> None:
    raise ValueError("\ud800" * 10**6)


def is_wordless(*_: object) -> None:
    raise WordlessError


def exits(*_: object) -> None:
    sys.exit(0)


def answers_in_a_rude_type(*_: object) -> npt.NDArray[np.void]:
    return np.zeros(3, [(f"\x1b{i}", np.float32) for i in range(1000)])


class Panic(BaseException):  # as pyo3 has it
    """What an extension in Rust raises."""


class ExitInMessageError(Exception):
    """Its message ends the process, with a status that means success."""

    def __str__(self) -> str:
        raise SystemExit(0)


class InterruptInMessageError(Exception):
    """Its message seems to be the user's Ctrl-C."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


class Nameless(type):
    """A class of classes that do not tell their name."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit(0)


class NamelessError(Exception, metaclass=Nameless):
    """Neither its name nor its class can be had."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise SystemExit(0)


def panics(*_: object) -> None:
    raise Panic("unwrap() on a `None` value")


def interrupts_itself(*_: object) -> None:
    raise KeyboardInterrupt


def exits_in_its_message(*_: object) -> None:
    raise ExitInMessageError


def interrupts_in_its_message(*_: object) -> None:
    raise InterruptInMessageError


def is_nameless(*_: object) -> None:
    raise NamelessError("x")


def ends_at_once(*_: object) -> None:
    os._exit(0)


def closes_the_streams(*_: object) -> None:
    sys.stdout.close()
    sys.stderr.close()
    os.close(1)
    os.close(2)
    raise ValueError("closed")


def redirects_the_streams(*_: object) -> None:
    sys.stdout = sys.stderr = io.StringIO()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    raise ValueError("redirected")


def forks_and_both_return(*_: object) -> None:
    if child := os.fork():
        os.waitpid(child, 0)
        raise ValueError("parent")
    raise ValueError("child")


def has_a_thread_that_dies(*_: object) -> None:
    thread = threading.Thread(target=panics)
    thread.start()
    thread.join()
    raise ValueError("thread")


def answers_in_objects(*_: object) -> npt.NDArray[np.object_]:
    return np.array([NamelessError(), lambda: None], object)


def answers_in_a_word(_: str, inputs: dict[str, object], *_others: object) -> object:
    inputs.clear()
    return "Y"


RUDE: list[Callable[..., object]] = [
    panics,
    interrupts_itself,
    exits,
    exits_in_its_message,
    interrupts_in_its_message,
    is_wordless,
    is_nameless,
    ends_at_once,
    closes_the_streams,
    redirects_the_streams,
    has_a_thread_that_dies,
    answers_in_objects,
    answers_in_a_word,
    answers_in_a_rude_type,
    refuses,
    supports_nothing,
    has_a_rude_name,
    says_much,
]
"""What a backend may do in one case of many."""

_by_case: dict[object, Callable[..., object]] = {}


def does_it_all(
    op_type: str, inputs: dict[str, npt.NDArray[np.float32]], attributes: dict[str, object], outputs: list[str]
) -> object:
    # A case that is asked a second time has a negated map.
    case = *attributes.items(), *(np.abs(array).tobytes() for array in inputs.values())
    function = _by_case.setdefault(case, RUDE[len(_by_case) % len(RUDE)])
    return function(op_type, inputs, attributes, outputs)


def writes_garbage_to_its_pipe(*_: object) -> None:
    for descriptor in _sockets():
        os.write(descriptor, b"\0\0\0\5hello")
    raise ValueError("garbage")


def answers_for_another_case(*_: object) -> None:
    from multiprocessing.connection import Connection

    from conformance.run import Answer
    from conformance.worker_process import _Message

    for descriptor in _sockets():
        connection = Connection(os.dup(descriptor))
        connection.send(_Message(0, False, Answer("unsupported", text="the answer of another case")))
    raise ValueError("mine")


def leaves_a_child_and_ends(*_: object) -> None:
    if os.fork() == 0:
        time.sleep(20)
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _sockets() -> list[int]:
    """The descriptors of this process that are sockets: in a child, its pipe to the suite."""
    return [int(name) for name in os.listdir("/proc/self/fd") if _is_socket(int(name))]  # noqa: PTH208


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False
