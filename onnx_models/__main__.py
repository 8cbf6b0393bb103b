# SPDX-License-Identifier: MIT
"""The command line: ``python -m onnx_models COMMAND``."""

from __future__ import annotations

import os
from pathlib import Path

import click

import ortops
from onnx_models.commands import COMMANDS
from ortops.help_text import keep_names_whole

keep_names_whole()


class WriteToPath(click.Group):
    """A group of commands in which ``python -m onnx_models DIRECTORY`` means ``python -m onnx_models write DIRECTORY``.

    The first argument is a directory if it contains a path separator or the directory exists, so that a mistyped command is
    not taken for a directory.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command's name, the command and its arguments."""
        first = args[0]
        is_path = any(separator in first for separator in (os.sep, os.altsep) if separator) or Path(first).is_dir()
        return super().resolve_command(ctx, ["write", *args] if first not in self.commands and is_path else args)


@click.group(cls=WriteToPath, commands=COMMANDS)
@click.version_option(ortops.__version__, prog_name="onnx_models", message="%(prog)s of ortops %(version)s")
def main() -> None:
    """Convert and differentiate ONNX models, and write models of this project's operators."""


if __name__ == "__main__":
    main(prog_name="python -m onnx_models")
