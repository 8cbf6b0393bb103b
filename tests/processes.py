# SPDX-License-Identifier: MIT
"""New interpreters and forked children for tests that change, end or measure a whole process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def python(code: str | Path, *arguments: str, cwd: Path | None = None, **changes: str | None) -> str:
    """What a new interpreter prints that runs code or a file; it must end well.

    Args:
        code: the code, or the path of a file.
        arguments: those of the program.
        cwd: the folder in which it runs, the present one by default.
        changes: variables of the environment; None takes one away.
    """
    command = [sys.executable, *(["-c", code] if isinstance(code, str) else [str(code)]), *arguments]
    environment = {name: value for name, value in {**os.environ, **changes}.items() if value is not None}
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, timeout=1800, cwd=cwd, env=environment
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout.strip()


def outcome(child: Callable[[], object]) -> str:
    """What a call in a forked child returns or raises; a child that waits is ended by a signal after 60 s."""
    reading, writing = os.pipe()
    number = os.fork()
    if number == 0:
        signal.alarm(60)
        try:
            said = str(child())
        except Exception as error:  # noqa: BLE001 - the parent asserts it
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:  # noqa: PTH123 - a descriptor
        found = pipe.read().decode()
    assert os.waitpid(number, 0)[1] == 0, "the child waits"
    return found
