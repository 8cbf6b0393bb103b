"""``python -m onnx_models lower``."""

from __future__ import annotations

from pathlib import Path

import click

from onnx_models.commands.common import FORCE, MODEL, OUT, count
from onnx_models.files import change_file
from onnx_models.portable.lower import lower, lowered_operators


@click.command("lower")
@MODEL
@OUT
@FORCE
def lower_command(model: Path, out: Path, force: bool) -> None:
    """Replace RoI nodes of the file MODEL by basic ONNX nodes, for runtimes that have neither RoiAlign nor functions.

    It lowers the nodes that the command convert converts and all operators of this project, and inlines the model's
    functions. Memory grows with the number of RoIs.
    """
    before, _ = change_file(model, out, lower, force)
    found = lowered_operators(before)
    click.echo(f"{count(found.total(), 'node')} lowered: {out}")
    for name, number in sorted(found.items()):
        click.echo(f"{number} {name}")
