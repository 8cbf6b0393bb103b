"""``python -m onnx_models convert``."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from onnx_models.commands.common import FORCE, MODEL, OUT, count
from onnx_models.convert import conversions, convert, not_converted
from onnx_models.files import change_file
from ortops.spec import DOMAIN


@click.command("convert")
@MODEL
@OUT
@FORCE
@click.option("--domain", default=DOMAIN, show_default=True, metavar="NAME", help="The domain of this project's nodes.")
def convert_command(model: Path, out: Path, force: bool, domain: str) -> None:
    """Convert RoI nodes of the file MODEL to this project's operators.

    It converts RoiAlign and MaxRoiPool of ONNX, MMCVRoiAlign and MMCVRoIAlignRotated of mmcv and mmdeploy, and RoIAlign and
    RoIAlignRotated of caffe2 as detectron2 exports them. grid_sampler, MMCVModulatedDeformConv2d and MMCVDeformConv2d of
    mmcv and mmdeploy become ONNX's GridSample and DeformConv. All other nodes stay as they are; the command lists those of
    mmcv, mmdeploy and caffe2.
    """
    before, after = change_file(model, out, functools.partial(convert, domain=domain), force)
    found = conversions(before)
    click.echo(f"{count(found.total(), 'node')} converted: {out}")
    for (source, ours), number in sorted(found.items()):
        click.echo(f"{number} {source} to {ours}")
    for name, number in sorted(not_converted(after).items()):
        click.echo(f"{number} {name} unchanged: ortops has no such operator")
