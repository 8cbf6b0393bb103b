"""``python -m onnx_models convert``."""

from __future__ import annotations

from pathlib import Path

import click
import onnx

from onnx_models.commands.common import MODEL, OUT, count, say
from onnx_models.convert import convert
from onnx_models.files import change_file
from onnx_models.walk import nodes_of
from ortops.spec import DOMAIN


@click.command("convert")
@MODEL
@OUT
def convert_command(model: Path, out: Path) -> None:
    """Convert the standard RoiAlign and MaxRoiPool nodes of the file MODEL to this project's."""
    before, after = change_file(model, out, convert)
    say(f"{count(_ours(after) - _ours(before), 'node')} converted: {out}")


def _ours(model: onnx.ModelProto) -> int:
    """How many nodes a model has of this project's domain."""
    return sum(node.domain == DOMAIN for scope in (model, *model.functions) for node in nodes_of(scope))
