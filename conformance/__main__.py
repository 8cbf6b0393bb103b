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
    """A group that takes what does not begin with one of its commands for arguments of the first one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, that command's name before them where it was left out."""
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
    """Check a runtime against the specification of RoiAlign and its kin.

    Without a COMMAND the suite is run; `python -m conformance run --help` tells the options.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that has not all characters is no reason to end a report.
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main(prog_name="python -m conformance")
