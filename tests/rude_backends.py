# SPDX-License-Identifier: MIT
"""Functions as backends that are rude: their errors would do more than stand in a report, they end their process or fill its
memory, or they never answer."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CLEARS = (
    "\x1b[2J\x1b]8;;http://x\x1b\\link\x07\r\n3780 passed, 0 failed\n\0\x9b31m\u202edc\ud800 \uffff [red]中 :smile:"
)
"""Clears a terminal, makes a link, rings, feigns a last line, colours, turns text round, and is neither UTF-8 nor XML."""

SHOWN = (
    r"\x1b[2J\x1b]8;;http://x\x1b\link\x07 | 3780 passed, 0 failed | \x00\x9b31m\u202edc\ud800 \uffff [red]中 :smile:"
)


class Panic(BaseException):
    """What an extension in Rust raises, as pyo3 has it."""


def with_message(name: str, error: BaseException) -> type[Exception]:
    """A class of exceptions whose message raises another one."""

    def raises(_: Exception) -> str:
        raise error

    return type(name, (Exception,), {"__str__": raises})


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


def raises(error: Callable[[], BaseException]) -> Callable[..., None]:
    """A backend that raises this error in every case."""

    def function(*_: object) -> None:
        raise error()

    return function


refuses = raises(lambda: ValueError(CLEARS))
supports_nothing = raises(lambda: NotImplementedError(CLEARS))
has_a_rude_name = raises(type(CLEARS.replace("\0", "").replace("\ud800", ""), (Exception,), {}))
says_much = raises(lambda: ValueError("\ud800" * 10**6))
is_wordless = raises(with_message("WordlessError", RuntimeError()))
is_nameless = raises(lambda: NamelessError("x"))
panics = raises(lambda: Panic("unwrap() on a `None` value"))
exits = raises(lambda: SystemExit(0))
interrupts_itself = raises(KeyboardInterrupt)
exits_in_its_message = raises(with_message("ExitInMessageError", SystemExit(0)))
interrupts_in_its_message = raises(with_message("InterruptInMessageError", KeyboardInterrupt()))


def ends_at_once(*_: object) -> None:
    os._exit(0)


def answers_in_a_rude_type(*_: object) -> npt.NDArray[np.void]:
    return np.zeros(3, [(f"\x1b{i}", np.float32) for i in range(1000)])


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


ENDS = "it would have ended the process: "
RAISED = "refused: {}: its message raised {}".format
RUDE: dict[str, tuple[str, str]] = {
    "panics": ("crashed", f"{ENDS}Panic: unwrap() on a `None` value"),
    "interrupts_itself": ("crashed", f"{ENDS}KeyboardInterrupt: "),
    "exits": ("crashed", f"{ENDS}SystemExit: 0"),
    "exits_in_its_message": ("failed", RAISED("ExitInMessageError", "SystemExit")),
    "interrupts_in_its_message": ("failed", RAISED("InterruptInMessageError", "KeyboardInterrupt")),
    "is_wordless": ("failed", RAISED("WordlessError", "RuntimeError")),
    "is_nameless": ("failed", "refused: NamelessError: x"),
    "ends_at_once": ("crashed", f"{ENDS}os._exit(0)"),
    "closes_the_streams": ("failed", "refused: ValueError: closed"),
    "redirects_the_streams": ("failed", "refused: ValueError: redirected"),
    "has_a_thread_that_dies": ("failed", "refused: ValueError: thread"),
    "answers_in_objects": ("failed", "Y: expected type float32, got type object"),
    "answers_in_a_word": ("failed", "Y: expected type float32, got type <U1"),
    "answers_in_a_rude_type": ("failed", r"Y: expected type float32, got type [('\x1b0', '<f4'), ('\x1b1', "),
    "refuses": ("failed", f"refused: ValueError: {SHOWN}"),
    "supports_nothing": ("unsupported", SHOWN),
    "has_a_rude_name": ("failed", rf"refused: {SHOWN}:".replace(r"\x00", "").replace(r"\ud800", "")),
    "says_much": ("failed", r"\ud800... and 998012 more characters"),
}
"""What a backend may do in one case of many, and the outcome and words of the message that this has."""

_by_case: dict[object, str] = {}


def does_it_all(
    op_type: str, inputs: dict[str, npt.NDArray[np.float32]], attributes: dict[str, object], outputs: list[str]
) -> object:
    # A case that is asked a second time has a negated map.
    case = *attributes.items(), *(np.abs(array).tobytes() for array in inputs.values())
    name = _by_case.setdefault(case, list(RUDE)[len(_by_case) % len(RUDE)])
    return globals()[name](op_type, inputs, attributes, outputs)


def writes_garbage_to_its_pipe(*_: object) -> None:
    for descriptor in _sockets():
        os.write(descriptor, b"\0\0\0\5hello")
    raise ValueError("garbage")


def answers_for_another_case(*_: object) -> None:
    from multiprocessing.connection import Connection

    from conformance.child import _Message
    from conformance.run import Answer

    for descriptor in _sockets():
        connection = Connection(os.dup(descriptor))
        connection.send(_Message(0, False, Answer("unsupported", text="the answer of another case")))
    raise ValueError("mine")


def leaves_a_child_and_ends(*_: object) -> None:
    if os.fork() == 0:
        time.sleep(20)
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


_asked = itertools.count(1)


def ends_itself_at_max(_: str, _inputs: object, attributes: Mapping[str, Any], *_others: object) -> None:
    if attributes["mode"] == "max":
        os.abort()
    raise NotImplementedError


def ends_itself(*_: object) -> None:
    os.abort()


def hangs(*_: object) -> None:
    time.sleep(1000)


def hangs_at_first_unless_it_has_a_second(*_: object) -> None:
    """Writes the time limit of each call to a file, and takes more time in the first call of a folder if it has less."""
    from conformance.child import _current

    assert _current is not None
    _, limit = _current.times
    file = Path("limits.txt")
    is_first = not file.exists()
    with file.open("a", encoding="ascii") as stream:
        stream.write(f"{limit:g}\n")
    if is_first and limit < 1:
        hangs()
    raise ValueError("loaded")


def hangs_and_writes_its_limit(*_: object) -> None:
    with contextlib.suppress(ValueError):
        hangs_at_first_unless_it_has_a_second()
    hangs()


def hungry_at_max(_: str, _inputs: object, attributes: Mapping[str, Any], *_others: object) -> None:
    if attributes["mode"] == "max":
        np.ones(2**30)
    raise NotImplementedError


def answers_thirty(*_: object) -> None:
    if next(_asked) > 30:
        time.sleep(1000)
    raise ValueError("not now")


def never_ends(*_: object) -> None:
    Path(os.environ["ASKED"]).touch()
    while True:
        time.sleep(1)


def _sockets() -> list[int]:
    """The descriptors of this process that are sockets: in a child, its pipe to the suite."""
    return [int(name) for name in os.listdir("/proc/self/fd") if _is_socket(int(name))]  # noqa: PTH208


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False
