"""``python -m onnx_models attach``."""

from __future__ import annotations

from pathlib import Path

import click

from onnx_models.commands.common import FORCE, MODEL, OUT, count
from onnx_models.files import change_file
from onnx_models.portable.attach import attach
from ortops.spec import DOMAIN


@click.command("attach")
@MODEL
@OUT
@FORCE
def attach_command(model: Path, out: Path, force: bool) -> None:
    """Attach bodies of standard operators to the file MODEL, so that it runs without this project's kernels."""
    _, after = change_file(model, out, attach, force)
    bodies = [function for function in after.functions if function.domain == DOMAIN]
    click.echo(f"{count(len(bodies), 'body', 'bodies')} attached: {out}")
