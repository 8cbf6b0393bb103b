"""``python -m onnx_models attach``."""

from __future__ import annotations

import warnings
from pathlib import Path

import click
import onnx

from onnx_models.commands.common import FORCE, MODEL, OUT, count
from onnx_models.files import change_file
from onnx_models.portable.attach import NothingToAttachWarning, attach
from ortops.spec import DOMAIN


@click.command("attach")
@MODEL
@OUT
@FORCE
def attach_command(model: Path, out: Path, force: bool) -> None:
    """Attach bodies of standard operators to the file MODEL, so that it runs without this project's kernels.

    RoiAlign and MaxRoiPool of ONNX must be converted first (convert). If there are only such nodes, nothing is written, and
    the exit status is 1.
    """
    _, after = change_file(model, out, _attached, force)
    bodies = [function for function in after.functions if function.domain == DOMAIN]
    click.echo(f"{count(len(bodies), 'body', 'bodies')} attached: {out}")


def _attached(model: onnx.ModelProto) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NothingToAttachWarning)
        try:
            return attach(model)
        except NothingToAttachWarning as warning:
            raise click.ClickException(f"{warning} (python -m onnx_models convert)") from warning
