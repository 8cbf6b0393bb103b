"""The command line: ``python -m onnx_models COMMAND``."""

from __future__ import annotations

import os
from pathlib import Path

import click

import ortops
from onnx_models.commands import COMMANDS


class WriteToPath(click.Group):
    """A group that takes the path of a directory, in the place of a command, for the argument of `write`.

    A path is what has a separator in it, or is a directory that exists: a mistyped command is neither.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command to run, its name and its arguments."""
        first = args[0]
        is_path = any(separator in first for separator in (os.sep, os.altsep) if separator) or Path(first).is_dir()
        return super().resolve_command(ctx, ["write", *args] if first not in self.commands and is_path else args)


@click.group(cls=WriteToPath, commands=COMMANDS)
@click.version_option(ortops.__version__, prog_name="onnx_models", message="%(prog)s of ortops %(version)s")
def main() -> None:
    """Change ONNX models, and write those of this project's operators."""


if __name__ == "__main__":
    main(prog_name="python -m onnx_models")
