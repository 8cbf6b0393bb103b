# SPDX-License-Identifier: MIT
"""``python -m onnx_models check``."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import onnx

from onnx_models.commands.common import MODEL, OPERATORS, click_errors, count, imported, load_model, show_table
from onnx_models.gradient.ours import REGIONS
from onnx_models.gradient.registry import REAL
from onnx_models.tools.nodes import NodeView
from onnx_models.tools.protos import meant, normalize_domain, one_line
from onnx_models.tools.types import single_line_errors

if TYPE_CHECKING:
    from onnx_models.gradient_check import Comparison, Load

_MAX_ROWS = 30


class _UncheckedError(click.ClickException):
    """The exit status if nothing was compared."""

    exit_code = 2


@click.command("check", epilog="Example: python -m onnx_models check model.onnx --wrt image")
@MODEL
@click.option(
    "--wrt",
    multiple=True,
    metavar="NAME",
    help="Input, initializer or Constant to differentiate with respect to; may be repeated. Default: all floating-point "
    "inputs and all trainable parameters.",
)
@click.option(
    "--output", "outputs", multiple=True, metavar="NAME", help="Output to differentiate; may be repeated. Default: all."
)
@click.option(
    "--inputs",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File written by numpy.savez, with values of inputs by name. Other floating-point inputs get random values "
    "between -1 and 1, RoIs lie on the map, loops have 2 iterations, other integers are 0, and bool random ones; or other "
    "values if an output would not be finite.",
)
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=LENGTH",
    help="Length of an axis that the model leaves open, for inputs without a value in --inputs; may be repeated.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random numbers.")
@click.option("--second-order", is_flag=True, help="Check the gradients of the gradients, too.")
@OPERATORS
def check_command(
    model: Path,
    wrt: tuple[str, ...],
    outputs: tuple[str, ...],
    file: Path | None,
    dims: tuple[str, ...],
    seed: int,
    second_order: bool,
    operators: tuple[str, ...],
) -> None:
    """Check gradients of the file MODEL against finite differences, along one random direction for each tensor.

    The model and its gradient are computed in double where ONNX Runtime can. "analytic" is the derivative along the
    direction computed from the gradient, "numeric" the one from finite differences. At a "kink", the differences ahead and
    behind disagree for every step size tried, so there is no derivative to compare. At a "zero", both derivatives are 0,
    which says nothing about the gradient elsewhere. The exit status is 0 if a gradient agrees and none is wrong, 1 if one is
    wrong, and 2 if none agrees.
    """
    from onnx_models.gradient_check import check, in_session  # which load ONNX Runtime

    lengths, given = _lengths(dims), imported(operators)
    try:
        with click_errors(model):
            proto = load_model(model)
            with single_line_errors("external data"):
                onnx.external_data_helper.load_external_data_for_model(proto, str(model.parent))
            feeds, others = _feeds(proto, _read(file), lengths, seed)
            feeds = _settled(proto, feeds, others, partial(in_session, operators=given))
            comparisons = check(
                proto, feeds, wrt=wrt, outputs=outputs, seed=seed, second_order=second_order, operators=given
            )
    except click.ClickException as error:
        raise _UncheckedError(error.message) from error
    _show(comparisons)
    counts: Counter[str] = Counter(comparison.outcome for comparison in comparisons)
    shown = [f"{count(counts['agrees'], 'gradient')} {'agrees' if counts['agrees'] == 1 else 'agree'}"]
    texts = {"wrong": "wrong", "kink": "at a kink", "zero": "zero"}
    shown += [f"{counts[outcome]} {text}" for outcome, text in texts.items() if counts[outcome]]
    click.echo(f"{', '.join(shown)}, computed in {comparisons[0].kind}")
    if counts["zero"]:
        click.echo("zero: both derivatives are 0 at these inputs; --inputs can give others")
    raise click.exceptions.Exit(1 if counts["wrong"] else 0 if counts["agrees"] else 2)


def _show(comparisons: Sequence[Comparison]) -> None:
    """Print the comparisons, wrong ones first if there are many."""
    if len(comparisons) > _MAX_ROWS:
        order = ("wrong", "kink", "zero", "agrees")
        comparisons = sorted(comparisons, key=lambda comparison: order.index(comparison.outcome))[:_MAX_ROWS]
    rows = [
        (
            *(one_line(name) for name in (comparison.output, comparison.wrt)),
            *(f"{value:.6g}" for value in (comparison.analytic, comparison.numeric)),
            *(f"{value:.1e}" for value in (comparison.difference, comparison.allowed)),
            comparison.outcome,
        )
        for comparison in comparisons
    ]
    show_table(("output", "wrt", "analytic", "numeric", "relative difference", "allowed", ""), rows)


def _lengths(dims: Sequence[str]) -> dict[str, int]:
    lengths = {}
    for dim in dims:
        name, _, length = dim.rpartition("=")
        if not name or not length.isdecimal():
            raise click.UsageError(f"--dim {dim}: must be NAME=LENGTH, with a whole number")
        lengths[name] = int(length)
    return lengths


def _read(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        with np.load(file) as arrays:
            return dict(arrays)
    except (
        AttributeError,
        EOFError,
        OSError,
        TypeError,
        ValueError,
        zipfile.BadZipFile,
    ) as error:  # a file of numpy.save gives an array
        raise click.ClickException(
            f"--inputs {file}: must be a file written by numpy.savez ({one_line(error)})"
        ) from error


def _feeds(
    model: onnx.ModelProto, given: Mapping[str, Any], lengths: Mapping[str, int], seed: int
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Values for all inputs of a model without a default, and others to try for each one that was not given."""
    defaults = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: value for value in model.graph.input}
    for name in given:
        if name not in inputs:
            raise ValueError(f"--inputs has {name!r}{meant(name, inputs)}: must be an input of the model")
    open_axes = {
        dim.dim_param for value in inputs.values() for dim in value.type.tensor_type.shape.dim if dim.dim_param
    }
    for name in lengths:
        if name not in open_axes:
            raise ValueError(f"--dim {name}{meant(name, open_axes)}: must be the name of an axis of an input")
    known = {
        dim.dim_param: length
        for name, value in given.items()
        for dim, length in zip(inputs[name].type.tensor_type.shape.dim, np.shape(value), strict=False)
    }
    lengths = {**known, **lengths}
    readers = {name: (node, i) for node in model.graph.node for i, name in enumerate(node.input)}
    rng = np.random.default_rng([seed, 0])
    feeds, others = {}, {}
    for name, value in inputs.items():
        kind = value.type.tensor_type
        if name in given:
            wanted = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type) if kind.elem_type else given[name].dtype
            feeds[name] = np.asarray(given[name], wanted)
        elif name not in defaults:
            feeds[name], *others[name] = _drawn(name, kind, lengths, rng)
            if name in readers:
                feeds[name] = _suited(feeds[name], *readers[name])
    return feeds, others


def _suited(value: Any, node: onnx.NodeProto, i: int) -> Any:
    """The value of input `i` of a node; regions of interest on the map and several iterations in place of what was drawn."""
    if node.op_type == "Loop" and i < 2:
        return np.full_like(value, 2)
    if (normalize_domain(node.domain), node.op_type, i) not in REGIONS or value.ndim != 2:
        return value
    scale = NodeView(node).attribute("spatial_scale", 1.0)
    regions = abs(value) / scale
    regions[:, -2:] += 2 / scale
    if node.op_type.startswith("MaxRoiPool"):
        regions[:, 0] = 0  # the batch index
    return regions.astype(value.dtype)


def _settled(
    model: onnx.ModelProto, feeds: dict[str, Any], others: Mapping[str, list[Any]], load: Load
) -> dict[str, Any]:
    """Replace values of one input after another by others, as long as that makes more numbers of the outputs finite."""

    def worst(feeds: Mapping[str, Any]) -> dict[str, float]:
        """By output, how many of its numbers are not finite."""
        try:
            found = run(feeds)
        except Exception:  # noqa: BLE001 -- ONNX Runtime raises many types
            return dict.fromkeys(outputs, math.inf)
        return {name: float((~np.isfinite(np.asarray(found[name], np.float64))).sum()) for name in outputs}

    outputs = [value.name for value in model.graph.output if value.type.tensor_type.elem_type in REAL]
    try:
        run = load(model)
    except Exception:  # noqa: BLE001 -- which `check` explains
        return feeds
    left = worst(feeds)
    for name, values in others.items():
        for value in values:
            if not any(left.values()):
                return feeds
            tried = {**feeds, name: value}
            if sum((now := worst(tried)).values()) < sum(left.values()):
                feeds, left = tried, now
    for name, number in left.items():
        if number and math.isfinite(number):
            click.echo(
                f"{one_line(name)} has {number:g} numbers that are NaN or infinite, whatever is drawn for "
                f"{', '.join(map(one_line, others)) or 'no input'}: --inputs can give other values",
                err=True,
            )
    return feeds


def _drawn(name: str, kind: onnx.TypeProto.Tensor, lengths: Mapping[str, int], rng: np.random.Generator) -> list[Any]:
    """Values to try for an input, the usual ones first: others suit logarithms and roots, lengths, and masks."""
    if not kind.elem_type or kind.elem_type == onnx.TensorProto.STRING or not kind.HasField("shape"):
        raise ValueError(f"input {name!r} is not a tensor of numbers with a known rank: must have a value in --inputs")
    shape = []
    for axis, dim in enumerate(kind.shape.dim):
        length = dim.dim_value if dim.HasField("dim_value") else lengths.get(dim.dim_param)
        if length is None:
            option = f"--dim {dim.dim_param}=LENGTH" if dim.dim_param else "--inputs"
            raise ValueError(f"input {name!r}: the length of axis {axis} is open: must be given by {option}")
        shape.append(length)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if np.issubdtype(dtype, np.bool_):
        return [np.asarray(rng.random(shape) < 0.5), np.ones(shape, dtype), np.zeros(shape, dtype)]
    if np.issubdtype(dtype, np.integer):
        return [np.zeros(shape, dtype), np.ones(shape, dtype)]
    return [np.asarray(rng.uniform(low, high, shape)).astype(dtype) for low, high in ((-1, 1), (0.1, 1), (1.1, 2))]
