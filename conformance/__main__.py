# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command line: ``python -m conformance`` runs the suite, ``python -m conformance COMMAND`` does another task."""

from __future__ import annotations

import importlib.util
import io
import sys

import click

import ortops
from conformance.commands import COMMANDS
from conformance.commands.options import how_to_install
from ortops.help_text import keep_names_whole

keep_names_whole()

EXTRA = ("jinja2", "rich")
"""Packages that all commands import and a plain installation of ortops lacks. Without them only `--help` works.

`fuzz` also needs hypothesis.
"""

VERSION = "--version"


class RunByDefault(click.Group):
    """A group that runs its first command if the arguments begin with an option of it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the first command's name before the arguments if it was left out."""
        if not args or (args[0].startswith("-") and args[0] not in {*ctx.help_option_names, VERSION}):
            args = [str(COMMANDS[0].name), *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command's name, the command and its arguments, after checking that its packages are installed."""
        if args[0] not in self.commands:
            ctx.fail(f"{args[0]!r}: must be a command, {', '.join(self.commands)}, or an option of `run`")
        resolved = super().resolve_command(ctx, args)
        if not set(ctx.help_option_names).intersection(resolved[2]):
            _check_extra(*EXTRA, *(["hypothesis"] if resolved[0] == "fuzz" else []))
        return resolved


def _check_extra(*names: str) -> None:
    """End the process with status 2 if a package of the extra is missing, before a run begins."""
    try:
        for name in names:
            if importlib.util.find_spec(name) is None:
                raise ModuleNotFoundError(f"No module named {name!r}")
    except ModuleNotFoundError as error:
        sys.stderr.write(f"{error}: python -m conformance needs an extra: {how_to_install('conformance')}\n")
        sys.exit(2)


@click.group(
    cls=RunByDefault,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="[COMMAND] [ARGS]...",
)
@click.version_option(ortops.__version__, VERSION, prog_name="conformance", message="%(prog)s of ortops %(version)s")
def main() -> None:
    """Check a runtime against the specifications of RoiAlign, MaxRoiPool and related operators.

    Without a COMMAND this runs the suite on --backend B, by default ortops itself. `python -m conformance run --help` lists
    the options, and docs/conformance.md explains the suite.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A report must not end because the terminal lacks a character.
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main(prog_name="python -m conformance")
