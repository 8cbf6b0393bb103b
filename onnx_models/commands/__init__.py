# SPDX-License-Identifier: MIT
"""The commands of ``python -m onnx_models``; `COMMANDS` lists them."""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click
import onnx

from onnx_models.collection import collection, describe
from onnx_models.commands.check import check_command
from onnx_models.commands.common import FORCE, MODEL, OUT, change_file, count, show_table, with_progress
from onnx_models.commands.gradient import gradient_command, vjp_command
from onnx_models.commands.training import with_loss_command, with_optimizer_command
from onnx_models.convert import conversions, convert, not_converted
from onnx_models.fuse import fuse
from onnx_models.gradient import coverage
from onnx_models.portable.attach import attach, lower, lowered_operators
from onnx_models.tools.functions import is_body
from ortops.spec import DOMAIN

MANIFEST = "manifest.json"


@click.command("write", epilog="Example: python -m onnx_models write models")
@click.argument("out_dir", type=click.Path(file_okay=False, path_type=Path))
def write_command(out_dir: Path) -> None:
    """Write a model for each of this project's operators, and a manifest, to OUT_DIR.

    The directory is created if it does not exist. Files with the same names are replaced, other files stay.
    """
    kinds: dict[str, list[str]] = {}
    entries = []
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        models = list(collection())
        for name, kind, model in with_progress(models, "models", len(models)):
            file = f"{name}_{kind}.onnx"
            (out_dir / file).write_bytes(model.SerializeToString(deterministic=True))
            entries.append({"file": file, "element_type": kind} | describe(model))
            kinds.setdefault(name, []).append(kind)
        (out_dir / MANIFEST).write_text(json.dumps({"models": entries}, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"OUT_DIR = {out_dir}: {error}") from error
    show_table(("files", "element types"), [(f"{name}_*.onnx", ", ".join(types)) for name, types in kinds.items()])
    click.echo(f"{len(entries)} models and {MANIFEST} in {out_dir}")


@click.command("convert", epilog="Example: python -m onnx_models convert model.onnx --out converted.onnx")
@MODEL
@OUT
@FORCE
@click.option("--domain", default=DOMAIN, show_default=True, metavar="NAME", help="The domain of this project's nodes.")
def convert_command(model: Path, out: Path, force: bool, domain: str) -> None:
    """Convert RoI nodes of the file MODEL to this project's operators.

    It converts RoiAlign and MaxRoiPool of ONNX, MMCVRoiAlign and MMCVRoIAlignRotated of mmcv and mmdeploy, and RoIAlign and
    RoIAlignRotated of caffe2 as detectron2 exports them. MMCVMultiScaleDeformableAttention and
    MultiscaleDeformableAttnPlugin_TRT become MSDeformAttn. grid_sampler, MMCVModulatedDeformConv2d and MMCVDeformConv2d of
    mmcv and mmdeploy become ONNX's GridSample and DeformConv. All other nodes stay as they are; the command lists those of
    mmcv, mmdeploy and caffe2.
    """
    before, after = change_file(model, out, functools.partial(convert, domain=domain), force)
    counts = conversions(before)
    click.echo(f"{count(counts.total(), 'node')} converted: {out}")
    for (source, ours), number in sorted(counts.items()):
        click.echo(f"{number} {source} to {ours}")
    for name, number in sorted(not_converted(after).items()):
        click.echo(f"{number} {name} unchanged: ortops has no such operator")


@click.command("fuse", epilog="Example: python -m onnx_models fuse model.onnx --out fused.onnx")
@MODEL
@OUT
@FORCE
@click.option("--domain", default=DOMAIN, show_default=True, metavar="NAME", help="The domain of the new nodes.")
def fuse_command(model: Path, out: Path, force: bool, domain: str) -> None:
    """Replace deformable attention of standard nodes in the file MODEL by MSDeformAttn nodes, for hosts with a library.

    It finds what PyTorch exports of Deformable DETR, Grounding DINO, RT-DETR, D-FINE, Mask2Former and models like these. All
    other nodes stay as they are.
    """
    before, after = change_file(model, out, functools.partial(fuse, domain=domain), force)
    attentions, samples = (Counter(node.op_type for node in graph.node) for graph in (after.graph, before.graph))
    fused = attentions["MSDeformAttn"] - samples["MSDeformAttn"]
    click.echo(f"{count(fused, 'attention')} fused: {out}")
    if left := attentions["GridSample"]:
        click.echo(
            f"{left} GridSample unchanged: not part of deformable attention as PyTorch exports it, or the model does not "
            "tell its shapes; onnx.shape_inference.infer_shapes may add them"
        )


@click.command("attach", epilog="Example: python -m onnx_models attach model.onnx --out attached.onnx")
@MODEL
@OUT
@FORCE
def attach_command(model: Path, out: Path, force: bool) -> None:
    """Attach bodies of standard operators to the file MODEL, so that it runs without this project's kernels.

    The command first converts RoiAlign and MaxRoiPool of ONNX, and the nodes of mmcv and caffe2 that the command convert
    knows. In a model before opset 22 that has nodes of this project already, such as a gradient, these stay for the
    runtime's own kernels. If no node of the model gets a body, it writes nothing, and the exit status is 1.
    """
    _, after = change_file(model, out, _attached, force)
    click.echo(f"{count(_bodies(after), 'body', 'bodies')} attached: {out}")


def _attached(model: onnx.ModelProto) -> onnx.ModelProto:
    attached = attach(model)
    if not _bodies(attached):
        raise click.ClickException(
            "there is nothing to attach: the model has no operator of ortops, and no RoiAlign or MaxRoiPool"
        )
    return attached


def _bodies(model: onnx.ModelProto) -> int:
    return sum(map(is_body, model.functions))


@click.command("lower", epilog="Example: python -m onnx_models lower model.onnx --out lowered.onnx")
@MODEL
@OUT
@FORCE
def lower_command(model: Path, out: Path, force: bool) -> None:
    """Replace RoI nodes of the file MODEL by basic ONNX nodes, for runtimes that have neither RoiAlign nor functions.

    It lowers the nodes that the command convert converts and all operators of this project, and inlines the model's
    functions. Memory grows with the number of RoIs.
    """
    before, _ = change_file(model, out, lower, force)
    counts = lowered_operators(before)
    click.echo(f"{count(counts.total(), 'node')} lowered: {out}")
    for name, number in sorted(counts.items()):
        click.echo(f"{number} {name}")


@click.command("rules", epilog="Example: python -m onnx_models rules")
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects instead of a table.")
def rules_command(as_json: bool) -> None:
    """List how `gradient` differentiates each operator of ONNX, ai.onnx.ml, ONNX Runtime's optimizer and this project.

    An operator has a rule, is composed of other operators, or is expanded to its function in ONNX's specification. "zero"
    means that the derivative is 0 wherever it exists, "refused" that the operator cannot be differentiated, and "none" that
    it is unknown.
    """
    ways = coverage()
    if as_json:
        click.echo(json.dumps([asdict(row) for row in ways], indent=2))
        return
    rows = [(row.domain or "ai.onnx", row.operator, row.way, row.reason) for row in ways]
    show_table(("domain", "operator", "gradient", "reason"), rows)
    click.echo(", ".join(f"{way} {number}" for way, number in Counter(row.way for row in ways).most_common()))


COMMANDS: tuple[click.Command, ...] = (
    write_command,
    convert_command,
    fuse_command,
    attach_command,
    lower_command,
    with_loss_command,
    gradient_command,
    vjp_command,
    with_optimizer_command,
    check_command,
    rules_command,
)
