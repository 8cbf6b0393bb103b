"""The command line: ``python -m conformance`` runs the suite, ``python -m conformance COMMAND`` does another task."""

from __future__ import annotations

import io
import sys

import click

EXTRA = ("jinja2", "rich")
"""Packages that the commands import and a plain installation of ortops lacks."""

try:
    from conformance.commands import COMMANDS
except ModuleNotFoundError as error:
    if error.name not in EXTRA:
        raise
    sys.stderr.write(f"{error}: python -m conformance needs the extra: pip install 'ortops[conformance]'\n")
    sys.exit(2)


class RunByDefault(click.Group):
    """A group whose first command runs if the arguments do not begin with the name of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the name of the first command before the arguments where it was left out."""
        if not args or args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [str(COMMANDS[0].name), *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=RunByDefault,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="[COMMAND] [ARGS]...",
)
def main() -> None:
    """Check a runtime against the specifications of RoiAlign, MaxRoiPool and related operators.

    Without a COMMAND this runs the suite; `python -m conformance run --help` lists the options.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A report must not end because the terminal lacks a character.
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main(prog_name="python -m conformance")
