# SPDX-License-Identifier: MIT OR Apache-2.0
"""``python -m conformance init``: write a first backend."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import click


@click.command("init", epilog="Example: python -m conformance init my_backend.py")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def init_command(file: Path) -> None:
    """Write a first backend to FILE, such as my_backend.py.

    The backend computes RoiAlign in NumPy, and comments say what to change. The exit status is 0 if FILE is written, 2 for
    a wrong call or if FILE exists.
    """
    if not (file.suffix == ".py" and file.stem.isidentifier()):
        raise click.BadParameter(f"{file.name}: must be the name of a module, such as my_backend.py", param_hint="FILE")
    text = resources.files(__package__).joinpath("template.py").read_text("utf-8")
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text.replace("MODULE", file.stem).replace("  # type: ignore[attr-defined]", ""))
    except FileExistsError as error:
        raise click.BadParameter(f"{file} exists; choose another name or delete it", param_hint="FILE") from error
    except OSError as error:
        raise click.BadParameter(f"cannot write: {error}", param_hint="FILE") from error
    click.echo(f"python -m conformance --backend {file.stem}:answer")
