"""The commands of ``python -m conformance``, one file each. A new one is named in `COMMANDS`."""

from __future__ import annotations

import click

from conformance.commands.run import run_command

COMMANDS: tuple[click.Command, ...] = (run_command,)
"""The first is the one that runs where none is named."""
