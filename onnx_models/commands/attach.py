"""``python -m onnx_models attach``."""

from __future__ import annotations

from pathlib import Path

import click
import onnx

from onnx_models.commands.common import FORCE, MODEL, OUT, count
from onnx_models.files import change_file
from onnx_models.portable.attach import attach
from onnx_models.tools.functions import is_body


@click.command("attach")
@MODEL
@OUT
@FORCE
def attach_command(model: Path, out: Path, force: bool) -> None:
    """Attach bodies of standard operators to the file MODEL, so that it runs without this project's kernels.

    The command first converts RoiAlign and MaxRoiPool of ONNX, and the nodes of mmcv and caffe2 that the command convert
    knows. If no node of the model gets a body, it writes nothing, and the exit status is 1.
    """
    _, after = change_file(model, out, _attached, force)
    click.echo(f"{count(_bodies(after), 'body', 'bodies')} attached: {out}")


def _attached(model: onnx.ModelProto) -> onnx.ModelProto:
    made = attach(model)
    if not _bodies(made):
        raise click.ClickException(
            "there is nothing to attach: the model has no operator of ortops, and no RoiAlign or MaxRoiPool"
        )
    return made


def _bodies(model: onnx.ModelProto) -> int:
    return sum(map(is_body, model.functions))
