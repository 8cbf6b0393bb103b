# SPDX-License-Identifier: MIT
"""``python -m onnx_models gradient`` and ``vjp``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import onnx

from onnx_models.commands.common import (
    FORCE,
    MODEL,
    OPERATORS,
    OUT,
    OUT_FILE,
    Change,
    change_and_warn,
    click_errors,
    count,
    imported,
    load_model,
    show_needs,
    show_table,
)
from onnx_models.gradient import PARAMETERS, Report, gradient, own_operators, report, vjp
from onnx_models.portable.attach import attach
from onnx_models.tools.protos import one_line
from ortops.custom.decorator import CustomOperator

_MAX_NAMES = 10
"""The largest number of names in a line of output."""


def differentiation(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments of all commands that differentiate, but `--out`."""
    options = (
        MODEL,
        FORCE,
        click.option(
            "--wrt",
            required=True,
            multiple=True,
            metavar="NAME",
            help=f"Name of a tensor to get the gradient for; may be repeated. {PARAMETERS!r} selects all trainable "
            "parameters; `gradient --dry-run` shows which these are, and which constants it leaves out.",
        ),
        click.option(
            "--name",
            "chosen",
            nargs=2,
            multiple=True,
            metavar="NAME OUTPUT",
            help="Call the gradient with respect to NAME, one of --wrt, OUTPUT instead of NAME_grad; may be repeated.",
        ),
        click.option(
            "--stop-at", multiple=True, metavar="NAME", help="Name of a tensor to treat as a constant; may be repeated."
        ),
        click.option(
            "--through-rois/--no-through-rois",
            default=True,
            help="Whether gradients flow through the RoIs of RoiAlign. In torchvision, they do not.",
        ),
        click.option(
            "--untie", is_flag=True, help="Give each layer its own copy of a parameter that an exporter merged."
        ),
        OPERATORS,
        click.option("--portable", is_flag=True, help="Also attach bodies of standard operators."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(
    "gradient",
    epilog="Example: python -m onnx_models gradient model.onnx --loss loss --wrt parameters --out gradients.onnx",
)
@click.option("--out", type=OUT_FILE, help="File to write.")
@click.option("--loss", metavar="NAME", help="Name of the tensor to differentiate; by default the only output.")
@differentiation
@click.option("--dry-run", is_flag=True, help="Write nothing and show how each operator is differentiated.")
def gradient_command(
    model: Path,
    out: Path | None,
    force: bool,
    wrt: tuple[str, ...],
    loss: str | None,
    chosen: tuple[tuple[str, str], ...],
    operators: tuple[str, ...],
    portable: bool,
    dry_run: bool,
    **settings: Any,
) -> None:
    """Add gradients to the file MODEL: an output NAME_grad for each tensor NAME of --wrt.

    The command warns of a gradient that is 0 for all inputs, and of parameters that an exporter merged. The exit status of
    --dry-run is 1 if an operator cannot be differentiated.
    """
    names, settings["operators"] = _names(wrt, chosen), imported(operators)
    if dry_run:
        before = load_model(model)
        with click_errors(model):
            described = report(before, _loss(before, loss), _checked(before, names), **settings)
        _show(described, names == PARAMETERS)
        raise click.exceptions.Exit(1 if described.refused else 0)
    if out is None:
        raise click.UsageError("Missing option '--out'. Only --dry-run works without it.")

    def change(before: onnx.ModelProto) -> onnx.ModelProto:
        return gradient(before, _loss(before, loss), _checked(before, names), **settings)

    _write(model, out, force, change, settings["operators"], portable)


@click.command(
    "vjp", epilog="Example: python -m onnx_models vjp net.onnx --output scores --wrt image --out product.onnx"
)
@OUT
@click.option(
    "--output", "outputs", required=True, multiple=True, metavar="NAME", help="Name of a tensor; may be repeated."
)
@differentiation
def vjp_command(
    model: Path,
    out: Path,
    force: bool,
    outputs: tuple[str, ...],
    wrt: tuple[str, ...],
    chosen: tuple[tuple[str, str], ...],
    operators: tuple[str, ...],
    portable: bool,
    **settings: Any,
) -> None:
    """Add a vector-Jacobian product to the file MODEL: an output NAME_grad for each tensor NAME of --wrt.

    Each tensor of --output gets an input NAME_cotangent. The gradients are those of the sum of cotangent * output.
    """
    names, settings["operators"] = _names(wrt, chosen), imported(operators)

    def change(before: onnx.ModelProto) -> onnx.ModelProto:
        return vjp(before, outputs, _checked(before, names), **settings)

    _write(model, out, force, change, settings["operators"], portable)


def _write(
    model: Path, out: Path, force: bool, change: Change, operators: Sequence[CustomOperator], portable: bool
) -> None:
    """Write the file with gradients, and say what it has."""

    def attached(before: onnx.ModelProto) -> onnx.ModelProto:
        return attach(change(before), operators=operators) if portable else change(before)

    before, after, zeros = change_and_warn(model, out, attached, force)
    number = len(after.graph.output) - len(before.graph.output)
    all_zeros = f" ({zeros} of them 0 for all inputs)" if zeros else ""
    click.echo(f"{count(number, 'gradient')} added{all_zeros}: {out}")
    show_needs(own_operators(after), "--portable")


def _names(wrt: Sequence[str], chosen: Sequence[tuple[str, str]]) -> Sequence[str] | Mapping[str, str] | str:
    """Return the argument `wrt` of `onnx_models.gradient`."""
    if PARAMETERS in wrt:
        if len(wrt) > 1 or chosen:
            raise click.UsageError(f"--wrt {PARAMETERS}: must be the only --wrt, without --name")
        return PARAMETERS
    if not chosen:
        return wrt
    outputs = dict(chosen)
    if len(outputs) < len(chosen):
        raise click.UsageError("--name: must name each tensor once")
    for name in outputs:
        if name not in wrt:
            raise click.UsageError(f"--name {name}: must be one of --wrt, which has {', '.join(wrt)}")
    if len(set(wrt)) < len(wrt):
        raise click.UsageError("--wrt: must have each name once")
    return {name: outputs.get(name, f"{name}_grad") for name in wrt}


def _loss(model: onnx.ModelProto, loss: str | None) -> str:
    outputs = [output.name for output in model.graph.output]
    if loss is None and len(outputs) != 1:
        raise ValueError(f"--loss is missing: must be given for a model with the outputs {', '.join(outputs)}")
    return loss or outputs[0]


def _checked(
    model: onnx.ModelProto, wrt: Sequence[str] | Mapping[str, str] | str
) -> Sequence[str] | Mapping[str, str] | str:
    """Return the argument `wrt`, and refuse one that is ambiguous in this model."""
    tensors = {name for node in model.graph.node for name in node.output}
    tensors |= {value.name for value in (*model.graph.input, *model.graph.initializer)}
    if wrt == PARAMETERS and PARAMETERS in tensors:
        raise ValueError(f"--wrt {PARAMETERS}: must not also be the name of a tensor, which it is in this model")
    return wrt


def _show(described: Report, with_parameters: bool) -> None:
    rows = []
    for operator, number in described.operators:
        name = f"{operator.domain}::{operator.operator}" if operator.domain else operator.operator
        rows.append([one_line(text) for text in (name, str(number), operator.way, operator.reason)])
    show_table(("operator", "nodes", "gradient", "reason"), rows)
    for line in described.zeros:
        click.echo(one_line(f"zero: {line}"))
    for name in described.zero_gradients:
        click.echo(one_line(f"zero: the gradient with respect to {name!r} is 0 for all inputs"))
    if with_parameters:
        for name, shape in zip(described.wrt, described.shapes, strict=True):
            click.echo(one_line(f"trained: {name} {shape}"))
    by_reason: dict[str, list[str]] = {}
    for name, reason in described.left_out:
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        shown = [*names[:_MAX_NAMES], f"and {len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else names
        click.echo(one_line(f"left out: {', '.join(shown)}: {reason}"))
    for line in described.tied:
        click.echo(one_line(f"tied: {line}; --untie gives each layer its own copy"))
    for line in described.refused:
        click.echo(one_line(f"refused: {line}"))
    after = "none with the gradient" if described.nodes_after is None else f"{described.nodes_after} with the gradient"
    click.echo(f"{count(described.nodes_before, 'node')} of the model, {after}")
    show_needs(dict(described.ours), "--portable")
