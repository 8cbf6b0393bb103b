# SPDX-License-Identifier: MIT OR Apache-2.0
"""A runtime that is any program: `exec:COMMAND` starts it, and it answers requests as docs/protocol.md says.

The program is in the process group of this process, and ends with it. If it ends before, or breaks the protocol, that costs
one case; the next case gets a new program.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance import child, tensor_files
from conformance.backends.base import (
    Backend,
    CrashError,
    MissingBackendError,
    RefusedError,
    Session,
    UnsupportedError,
    dialect_of,
)
from conformance.case import Array, Case
from conformance.model import build, described_node
from conformance.printable import printable

VERSION = 1
"""The version of the protocol."""

MAX_LINE = 2**20
"""The most bytes of an answer, together with the lines before it that a runtime has printed."""

MAX_TENSOR = 2**30
"""The most bytes of an output. Each output of each case has less than a quarter of this."""

MAX_SHOWN = 500
"""The most bytes of a program's standard error that a message repeats: the first ones, since stacks follow the error."""

STOP_SECONDS = 0.5
"""The time that a program has to end after the request to stop."""


class Program(Backend):
    """A backend that asks a program.

    Args:
        command: the program and its arguments, with the quotes of a shell. No shell runs it.
    """

    _memory: int | None = None

    def __init__(self, command: str) -> None:
        name = f"backend exec:{command}"
        self._folder = Path(tempfile.mkdtemp(prefix="program-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder.as_posix()
        if not path.isascii() or not path.isprintable() or set(path) & set('"\\'):
            raise MissingBackendError(f"{name}: {path!r}: TMPDIR must be in ASCII, without quotes and backslashes")
        try:
            self._words = shlex.split(command, posix=os.name == "posix")
            if not self._words:
                raise ValueError("must have a command, such as exec:./my_runtime")
            self._running = _Running(self._words, path)
        except (OSError, ValueError, CrashError) as error:
            raise MissingBackendError(f"{name}: {error}") from error
        self.version, self._models = self._running.version, 0

    def limited_memory(self, size: int) -> contextlib.AbstractContextManager[None]:
        """See `Backend`. The limit is for the program from its next model on; this process only passes tensors on."""
        self._memory = size
        return contextlib.nullcontext()

    def prepare(self, case: Case) -> Session:
        """See `Backend`. The program gets the model with the first call."""
        if case.is_at_once:
            raise UnsupportedError("a program answers one request at a time")
        model = build(case, dialect_of(case))
        (node,) = model.graph.node
        given, outputs = ([value.name for value in values] for values in (model.graph.input, model.graph.output))
        with _disk():
            if self._running.has_ended:
                with child.uncounted(child.START_TIMEOUT):
                    self._running = _Running(self._words, self._folder.as_posix())
            if self._memory is not None:
                self._running.limit_memory(self._memory)
            self._empty()
            self._models += 1
            file = f"model_{self._models}.onnx"
            (self._folder / file).write_bytes(model.SerializeToString())

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            running = self._running
            with _disk():
                self._empty(kept=file)
                files = {
                    name: tensor_files.write(array, self._folder, f"{name}.in", name) for name, array in inputs.items()
                }
            request = {
                "case": case.id,
                "model": file,
                "inputs": [files[name] for name in given],
                "initializers": [files[name] for name in files if name not in given],
                "outputs": outputs,
                "node": described_node(case, node),
            }
            arrays = self._arrays(running, running.answer(request), outputs)
            if case.expects_error == "data":
                running.end()  # it may have written out of bounds, which could make a later case fail
            return arrays

        return run

    def _empty(self, kept: str = "") -> None:
        """Remove what earlier calls left in the folder: no file of theirs may pass for an answer."""
        for path in self._folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != kept:
                path.unlink()

    def _arrays(self, running: _Running, descriptions: list[object], names: Sequence[str]) -> dict[str, Array]:
        """The arrays of an answer. Raises CrashError if one breaks a rule."""
        arrays = dict[str, Array]()
        try:
            for description in descriptions:
                described = tensor_files.checked(description)
                name = described["name"]
                if name not in names or name in arrays:
                    raise ValueError(f"name {name!r}: must be one of {', '.join(names)}, each at most once")
                arrays[name] = tensor_files.read(description, self._folder, MAX_TENSOR)
        except ValueError as error:
            raise running.broken(str(error)) from error
        except OSError as error:
            raise running.broken(f"file {described['file']}: must be a file in `folder`: {error.strerror}") from error
        return arrays


class _Running:
    """A running program, which has answered the request to start; `version` is the runtime's."""

    def __init__(self, words: Sequence[str], folder: str) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe)  # noqa: S603  # the user's own
        self._stdin: Any = self._process.stdin
        self._stdout: Any = self._process.stdout
        self.end = weakref.finalize(self, _stop, self._process)
        self._number, self._limit, self._printed = 0, "", bytearray()
        self._reader = threading.Thread(target=_keep_first, args=(self._process.stderr, self._printed), daemon=True)
        self._reader.start()
        answer = self._asked({"request": "start", "seq": 0, "version": VERSION, "folder": folder})
        if answer.get("version") != VERSION:
            raise self.broken(f"version {answer.get('version')!r}: must be {VERSION}")
        self.version = printable(str(answer.get("runtime", "")))

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself, or for what it answered."""
        return not self.end.alive or self._process.poll() is not None

    def limit_memory(self, size: int) -> None:
        """Let it use `size` more bytes of address space than now."""
        child.set_memory_limit(size, self._process.pid)
        self._limit = f", allowed {size // 2**20} MiB"

    def answer(self, request: Mapping[str, object]) -> list[object]:
        """The descriptions of the outputs.

        Raises:
            UnsupportedError, RefusedError: the program's answer is one of these.
            CrashError: it ended or broke the protocol.
        """
        self._number += 1
        answer = self._asked({"request": "run", "seq": self._number, **request})
        if isinstance(text := answer.get("unsupported"), str):
            raise UnsupportedError(text)
        if isinstance(text := answer.get("refused"), str):
            raise RefusedError(text)
        if not isinstance(outputs := answer.get("outputs"), list):
            raise self.broken("must have a list of outputs, or a text: unsupported or refused")
        return outputs

    def _asked(self, request: Mapping[str, object]) -> dict[str, Any]:
        """The answer to a request: the first line that begins with a brace, since runtimes print lines of their own."""
        del self._printed[:]
        with contextlib.suppress(OSError):  # it has ended: so does its output
            self._stdin.write(json.dumps(request, separators=(",", ":"), allow_nan=False).encode() + b"\n")
            self._stdin.flush()
        line, left = b"", MAX_LINE
        while not line.startswith(b"{"):
            left -= len(line)
            line = self._stdout.readline(left)
            if not line.endswith(b"\n"):
                raise self.broken(f"has more than {MAX_LINE} bytes") if len(line) == left else self._ended()
        try:
            answer: dict[str, Any] = json.loads(line.decode(errors="replace"), strict=False)
        except (ValueError, RecursionError) as error:
            raise self.broken(f"is not JSON: {error}: {line[:MAX_SHOWN].decode(errors='replace')}") from error
        if answer.get("seq") != request["seq"]:
            raise self.broken(f"seq {answer.get('seq')!r}: must be {request['seq']}, as in the request")
        return answer

    def broken(self, text: str) -> CrashError:
        """The error for an answer that breaks a rule. The program ends."""
        self._process.kill()
        self.end()
        return CrashError(f"the program's answer breaks the protocol: {text}")

    def _ended(self) -> CrashError:
        """The error for a program that closed its output: its exit code or signal, and what it printed on standard error."""
        self.end()
        self._reader.join(STOP_SECONDS)
        printed = self._printed.decode(errors="replace").strip()
        name = f"{child.ending(self._process.returncode)}{self._limit}"
        return CrashError(f"the program ended with {name}{f': {printed}' if printed else ''}")


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    """Turn errors of this suite's own files into a crash, since every other exception would count as a refusal."""
    try:
        yield
    except OSError as error:
        raise CrashError(f"the suite and the program cannot share files: {error}") from error


def _stop(process: Any) -> None:
    """Ask a program to stop, and kill it if it does not."""
    with contextlib.suppress(OSError):  # it has ended
        process.stdin.write(b'{"request":"stop"}\n')
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    process.kill()
    process.wait()
    process.stdout.close()


def _keep_first(stream: Any, printed: bytearray) -> None:
    """Read a stream to its end, and keep the first bytes."""
    with stream:
        while data := os.read(stream.fileno(), 2**16):
            printed += data[: MAX_SHOWN - len(printed)]
