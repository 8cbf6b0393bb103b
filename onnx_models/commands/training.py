# SPDX-License-Identifier: MIT
"""``python -m onnx_models with-loss`` and ``with-optimizer``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, get_args

import click

from onnx_models.commands.common import FORCE, MODEL, OPERATORS, OUT, change_and_warn, count, imported, show_needs
from onnx_models.gradient import own_operators
from onnx_models.tools.protos import one_line
from onnx_models.training import NEXT, Loss, Optimizer, with_loss, with_optimizer


@click.command(
    "with-loss",
    epilog="Example: python -m onnx_models with-loss net.onnx --loss cross_entropy --output scores --out loss.onnx",
)
@MODEL
@OUT
@FORCE
@click.option("--loss", required=True, type=click.Choice(get_args(Loss)), help="The loss, a mean over all elements.")
@click.option("--output", metavar="NAME", required=True, help="Name of the tensor to compare with the target.")
@click.option("--target", metavar="NAME", default="target", show_default=True, help="Name of the new input.")
@click.option("--name", metavar="NAME", default="loss", show_default=True, help="Name of the new output.")
@OPERATORS
def with_loss_command(
    model: Path, out: Path, force: bool, loss: Loss, output: str, target: str, name: str, operators: tuple[str, ...]
) -> None:
    """Add a loss to the file MODEL: an input for the target, and an output that `gradient` differentiates."""
    settings: Any = {"name": name, "operators": imported(operators)}
    change_and_warn(model, out, lambda before: with_loss(before, loss, output, target, **settings), force)
    click.echo(f"{loss} of {output} and the input {target}: {out}")


@click.command(
    "with-optimizer",
    epilog="Example: python -m onnx_models with-optimizer gradients.onnx --optimizer sgd --momentum 0.9 --out step.onnx",
)
@MODEL
@OUT
@FORCE
@click.option("--optimizer", required=True, type=click.Choice(get_args(Optimizer)), help="As PyTorch's.")
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME",
    help="Name of a parameter; may be repeated. Default: all that have an output NAME_grad.",
)
@click.option("--clip", type=float, help="The largest norm of all gradients together.")
@click.option("--weight-decay", type=float, help="Default: 0.01 with adamw, and 0 otherwise.")
@click.option("--momentum", type=float, default=0.0, show_default=True, help="Of sgd.")
@click.option("--nesterov", is_flag=True, help="Nesterov momentum of sgd.")
@click.option(
    "--betas", type=float, nargs=2, default=(0.9, 0.999), show_default=True, help="Of adam and adamw, two numbers."
)
@click.option("--eps", type=float, default=1e-8, show_default=True, help="Of adam and adamw.")
@click.option("--master-weights", is_flag=True, help="Keep copies in float of parameters of float16 and bfloat16.")
def with_optimizer_command(
    model: Path, out: Path, force: bool, optimizer: Optimizer, parameters: tuple[str, ...], **settings: Any
) -> None:
    """Add a step of an optimizer to the file MODEL, which `gradient` wrote: outputs NAME_next for the inputs NAME.

    The learning rate is an input. MODEL may come from another project if it has an output NAME_grad for each parameter.
    """
    change = functools.partial(with_optimizer, optimizer=optimizer, parameters=parameters or None, **settings)
    before, after, _ = change_and_warn(model, out, change, force)
    added = [value.name for value in after.graph.output if value.name.endswith(NEXT)]
    click.echo(f"{count(len(added), 'output')} *{NEXT}: {out}")
    without = {value.name for value in before.graph.input} - {tensor.name for tensor in before.graph.initializer}
    changed = [name for name in sorted(without) if f"{name}{NEXT}" in added]
    if changed and not parameters:
        click.echo(
            one_line(f"{', '.join(changed)}: trained, although the model has no value; --parameter names others")
        )
    show_needs(own_operators(after), "the command attach")
