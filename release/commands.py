# SPDX-License-Identifier: MIT
"""Programs that a release runs, each step with the time that it took."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click


@contextlib.contextmanager
def step(what: str) -> Iterator[Path]:
    """Print what is done, and its time when it is done; yield a temporary folder outside of the repository."""
    started = time.monotonic()
    click.echo(f"{what} ...")
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
    click.echo(f"{what}: {time.monotonic() - started:.0f} s")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Return what a program prints, which has further variables of the environment, but not PYTHONPATH.

    Raises:
        click.ClickException: the exit status is not 0. The message has the end of the output.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(  # noqa: S603
        command, cwd=cwd, env=inherited | environment, capture_output=True, text=True, check=False
    )
    if process.returncode:
        output = (process.stdout + process.stderr)[-4000:]
        raise click.ClickException(f"{' '.join(map(str, command))}: status {process.returncode}\n{output}")
    return process.stdout


def new_environment(folder: Path, *requirements: str, base: str = sys.executable) -> Path:
    """Make a virtual environment of the Python `base`, install into it, and return its Python."""
    run(base, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    if requirements:
        install(folder, *requirements)
    return folder / "bin/python"


def install(folder: Path, *requirements: str) -> None:
    """Install into a virtual environment."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--python", folder)
    run(*pip, "install", *requirements, cwd=folder)
