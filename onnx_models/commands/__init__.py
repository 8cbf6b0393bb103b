"""The commands of ``python -m onnx_models``, one module each; `COMMANDS` lists them."""

from __future__ import annotations

import click

from onnx_models.commands.attach import attach_command
from onnx_models.commands.check import check_command
from onnx_models.commands.convert import convert_command
from onnx_models.commands.gradient import gradient_command
from onnx_models.commands.lower import lower_command
from onnx_models.commands.rules import rules_command
from onnx_models.commands.write import write_command

COMMANDS: tuple[click.Command, ...] = (
    write_command,
    convert_command,
    attach_command,
    lower_command,
    gradient_command,
    check_command,
    rules_command,
)
