# SPDX-License-Identifier: MIT OR Apache-2.0
"""The commands of ``python -m conformance``. `COMMANDS` lists them."""

from __future__ import annotations

import click

from conformance.commands.explain import explain_command
from conformance.commands.export import export_command
from conformance.commands.fuzz import fuzz_command
from conformance.commands.init import init_command
from conformance.commands.reports import compare_command, history_command, matrix_command
from conformance.commands.run import run_command

COMMANDS: tuple[click.Command, ...] = (
    run_command,
    fuzz_command,
    matrix_command,
    compare_command,
    history_command,
    export_command,
    init_command,
    explain_command,
)
"""The first one runs if the command line names no command."""

for _command in COMMANDS:
    _command.epilog = f"docs/conformance.md explains the suite. {_command.epilog}"
