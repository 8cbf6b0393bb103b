"""Try `onnx_models.gradient` on trained models of a folder: ``python -m benchmarks.trained FOLDER``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import onnx
from rich.console import Console
from rich.markup import escape
from rich.progress import track

import onnx_models
from benchmarks.interleave import interleave
from benchmarks.networks.sessions import Array, is_plain, session
from benchmarks.report import WIDTH, markdown_table, rich_table
from benchmarks.tables import Table
from onnx_models.gradient import PARAMETERS, ZeroGradientWarning
from onnx_models.traversal import iter_nodes

LEGEND = (
    "nodes: of the model, and of the one with gradients. wrt: what the gradients are of, the parameters or else the inputs.",
    "gradient: seconds to write the model. forward, step: milliseconds of the model, and of it with all gradients, in turn.",
    "off: the relative difference of the derivative along a direction from a finite difference, the least of several steps:",
    "float32 rounds short steps, and long ones bend. The loss: the sum of the means of the squares of all real outputs.",
)
"""The legend of the table."""

CHANGES = (0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4)
"""By which share of the loss the steps of finite differences change it, nearly."""

_SIDE, _CHANNELS, _LENGTH = 64, 3, 16
_MOST_CHANNELS = 4
"""With so many elements or fewer, the last axis of an image is that of the channels."""


@dataclass(frozen=True)
class Trial:
    """What came of a model; None for what could not be measured.

    refusal: the first line of the error, or "". seconds: the medians of forward and step.
    """

    model: str
    nodes: int = 0
    refusal: str = ""
    wrt: str = ""
    all_nodes: int | None = None
    writing: float | None = None
    seconds: tuple[float, float] | None = None
    off: float | None = None

    def row(self) -> list[str]:
        """The row of the table."""
        if self.seconds is None or self.off is None:
            return [self.model, str(self.nodes), *7 * ["-"]]
        forward, step = self.seconds
        times = [f"{self.writing:.1f}", f"{forward * 1e3:.1f}", f"{step * 1e3:.1f}", f"{step / forward:.1f}"]
        return [self.model, str(self.nodes), str(self.all_nodes), self.wrt, *times, f"{self.off:.0e}"]


def try_model(path: Path, lengths: Mapping[str, int], values: Mapping[str, float], rounds: int | None) -> Trial:
    """Differentiate a model, time it, and compare its gradients with finite differences."""
    model = onnx.load(path)
    known = Trial(path.name, sum(1 for _ in iter_nodes(model)))
    try:
        feeds = inputs(model, lengths, values)
        outputs = _floats(model, session(model.SerializeToString(), 1, plain=is_plain(model)).run(None, feeds))
        loss = with_squares(model, outputs)
        began = time.perf_counter()
        made, wrt = _differentiated(loss, feeds)
        writing = time.perf_counter() - began
        plain = is_plain(made)
        run = session(made.SerializeToString(), 1, plain=plain)
        forward = session(loss.SerializeToString(), 1, plain=is_plain(loss))
        found = dict(zip([one.name for one in made.graph.output], run.run(None, feeds), strict=True))
        gradients = {name.removesuffix("_grad"): value for name, value in found.items() if name.endswith("_grad")}
        times = interleave({"forward": lambda: forward.run(None, feeds), "step": lambda: run.run(None, feeds)}, rounds)
        off = _off(model, feeds, outputs, gradients)
    except Exception as error:  # noqa: BLE001 - of ONNX, ONNX Runtime and ours, of any class: what the table is for
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        # The first line of a refusal of ours only says that there is one.
        return Trial(path.name, known.nodes, lines[min(1, len(lines) - 1)] if lines[0].endswith(":") else lines[0])
    seconds = median(times["forward"]), median(times["step"])
    return Trial(path.name, known.nodes, "", wrt, sum(1 for _ in iter_nodes(made)), writing, seconds, off)


def inputs(model: onnx.ModelProto, lengths: Mapping[str, int], values: Mapping[str, float]) -> dict[str, Array]:
    """Inputs for a model, always the same: numbers of a normal distribution, integers from 0 to 3, and True.

    Args:
        model: the model.
        lengths: by the names of axes, or by "INPUT:AXIS" with the number of an axis, the lengths. Of others without a
            length, the first is 1, those of images are 3, 64 and 64 (or 64, 64 and 3), and the rest 16.
        values: the number that fills an input, by its name.

    Raises:
        ValueError: the type of an input is not a number's.
    """
    rng = np.random.default_rng(0)
    given = {tensor.name for tensor in model.graph.initializer}
    made = {}
    for value in model.graph.input:
        if value.name in given:
            continue
        kind = value.type.tensor_type
        if kind.elem_type in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
            raise ValueError(f"input {value.name!r}: must be a tensor of numbers")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [_length(value.name, axis, dim, kind.shape, lengths) for axis, dim in enumerate(kind.shape.dim)]
        if value.name in values:
            made[value.name] = np.full(shape, values[value.name], dtype)
        elif kind.elem_type == onnx.TensorProto.BOOL:
            made[value.name] = np.ones(shape, dtype)
        elif np.issubdtype(dtype, np.integer):
            made[value.name] = rng.integers(0, 4, shape).astype(dtype)
        else:
            made[value.name] = rng.standard_normal(shape).astype(dtype)
    return made


def _length(name: str, axis: int, dim: Any, shape: Any, lengths: Mapping[str, int]) -> int:
    chosen = lengths.get(f"{name}:{axis}", lengths.get(dim.dim_param) if dim.dim_param else None)
    if chosen is not None:
        return chosen
    if dim.dim_value > 0:
        return int(dim.dim_value)
    if axis == 0:
        return 1
    if len(shape.dim) != 4:
        return _LENGTH
    is_channel = axis == 1 and not 0 < shape.dim[3].dim_value <= _MOST_CHANNELS
    return _CHANNELS if is_channel else _SIDE


def _floats(model: onnx.ModelProto, results: Sequence[Any]) -> list[str]:
    """The names of the outputs that are not empty and hold floating-point numbers."""
    named = zip(model.graph.output, results, strict=True)
    found = [
        one.name for one, value in named if isinstance(value, np.ndarray) and value.size and value.dtype.kind == "f"
    ]
    if not found:
        raise ValueError("the model has no floating-point output")
    return found


def with_squares(model: onnx.ModelProto, outputs: Sequence[str]) -> onnx.ModelProto:
    """A copy of a model with an output `ortops_loss`: the sum of the means of the squares of some outputs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    node, means = onnx.helper.make_node, []
    for i, name in enumerate(outputs):
        cast, square, mean = (f"ortops_{what}_{i}" for what in ("output", "square", "mean"))
        made.graph.node.append(node("Cast", [name], [cast], to=onnx.TensorProto.FLOAT))
        made.graph.node.append(node("Mul", [cast, cast], [square]))
        made.graph.node.append(node("ReduceMean", [square], [mean], keepdims=0))
        means.append(mean)
    made.graph.node.append(node("Sum", means, ["ortops_loss"]))
    made.graph.output.append(onnx.helper.make_tensor_value_info("ortops_loss", onnx.TensorProto.FLOAT, []))
    return made


def _differentiated(loss: onnx.ModelProto, feeds: Mapping[str, Array]) -> tuple[onnx.ModelProto, str]:
    """The model with gradients of its parameters, or of its inputs if it has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroGradientWarning)
        try:
            return onnx_models.gradient(loss, "ortops_loss", PARAMETERS), PARAMETERS
        except ValueError as error:
            if not str(error).startswith("wrt = "):
                raise
        real = [name for name, value in feeds.items() if value.dtype.kind == "f"]
        return onnx_models.gradient(loss, "ortops_loss", real), "inputs"


def _off(
    model: onnx.ModelProto, feeds: Mapping[str, Array], outputs: Sequence[str], gradients: Mapping[str, Array]
) -> float:
    """The least relative difference between the derivative along a direction and finite differences.

    The direction is the gradient times random numbers from 0 to 2, plus a random part of the same length, of which each
    tensor has an equal share: along a random direction alone, the loss of a large model changes less than it is rounded.
    """
    rng = np.random.default_rng(1)
    tensors = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer if one.name in gradients}
    tensors |= {name: value for name, value in feeds.items() if name in gradients}
    wide = {name: gradients[name].astype(np.float64) for name in tensors}
    share = np.sqrt(sum((value**2).sum() for value in wide.values()) / len(wide))
    directions = {}
    for name, value in wide.items():
        noise = rng.standard_normal(value.shape)
        directions[name] = value * rng.uniform(0, 2, value.shape) + noise * (share / (np.linalg.norm(noise) or 1.0))
    rise = sum(float((wide[name] * direction).sum()) for name, direction in directions.items())
    whole = _squares(model, feeds, outputs, {})
    least = np.inf
    for change in CHANGES if rise and whole else ():
        step = change * whole / rise
        ends = [
            {name: (v + s * step * directions[name]).astype(v.dtype) for name, v in tensors.items()} for s in (1, -1)
        ]
        # The step as it was taken, after rounding.
        moved = {name: ends[0][name].astype(np.float64) - ends[1][name].astype(np.float64) for name in tensors}
        slope = sum(float((wide[name] * by).sum()) for name, by in moved.items())
        difference = _squares(model, feeds, outputs, ends[0]) - _squares(model, feeds, outputs, ends[1])
        least = min(least, abs(slope - difference) / (max(abs(slope), abs(difference)) or 1.0))
    return float(least)


def _squares(
    model: onnx.ModelProto, feeds: Mapping[str, Array], outputs: Sequence[str], changed: Mapping[str, Array]
) -> float:
    """The loss of a model with other weights or inputs, in float64 from its outputs on."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        if tensor.name in changed:
            tensor.CopyFrom(onnx.numpy_helper.from_array(changed[tensor.name], tensor.name))
    run = session(made.SerializeToString(), 1, plain=is_plain(made))
    results = run.run(list(outputs), {name: changed.get(name, value) for name, value in feeds.items()})
    return float(sum((np.asarray(one, np.float64) ** 2).mean() for one in results))


def _tried(path: Path, options: Sequence[str], timeout: float) -> Trial:
    """The trial of a model in a process of its own, which a model may end or hang."""
    command = [sys.executable, "-m", "benchmarks.trained", str(path), "--json", *options]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return Trial(path.name, refusal=f"took longer than {timeout:g} s")
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or [""])[-1]
        return Trial(path.name, refusal=f"ended its process with status {answer.returncode}: {last}")
    return Trial(**json.loads(answer.stdout))


def _pairs(values: Sequence[str], kind: type[Any]) -> dict[str, Any]:
    """NAME=NUMBER arguments as a dictionary."""
    try:
        return {name: kind(number) for name, number in (one.rsplit("=", 1) for one in values)}
    except ValueError as error:
        raise click.BadParameter(f"{list(values)}: each must be NAME=NUMBER") from error


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--length",
    multiple=True,
    metavar="AXIS=N",
    help="The length of an axis, by its name or as INPUT:NUMBER. [repeatable]",
)
@click.option("--value", multiple=True, metavar="INPUT=V", help="The number that fills an input. [repeatable]")
@click.option("--rounds", type=click.IntRange(1, 10_000), help="The number of timed steps. [default: 7 to 51]")
@click.option("--timeout", default=600.0, show_default=True, type=click.FloatRange(1), help="Seconds for a model.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table as Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print the trials as JSON: a list, or one for a single model.")
def main(
    folder: Path,
    length: Sequence[str],
    value: Sequence[str],
    rounds: int | None,
    timeout: float,
    as_markdown: bool,
    as_json: bool,
) -> None:
    """Differentiate each ONNX model of FOLDER (or a single model), time its steps and check its gradients.

    The exit status is 0, or 2 for a wrong call.
    """
    lengths, values = _pairs(length, int), _pairs(value, float)
    if folder.is_file() and as_json:
        click.echo(json.dumps(asdict(try_model(folder, lengths, values, rounds))))
        return
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*.onnx"))
    if not paths:
        raise click.BadParameter(f"{folder}: must have files *.onnx")
    options = [f"--length={one}" for one in length] + [f"--value={one}" for one in value]
    options += [] if rounds is None else [f"--rounds={rounds}"]
    shown = track(paths, "trying models", console=Console(stderr=True), transient=True)
    trials = [_tried(path, options, timeout) for path in shown]
    if as_json:
        click.echo(json.dumps([asdict(trial) for trial in trials], indent=1))
        return
    headings = ["network", "nodes", "with gradients", "wrt", "gradient", "forward", "step", "times", "off"]
    table = Table("trained models", headings, [trial.row() for trial in trials])
    refusals = [f"{trial.model}: {trial.refusal}" for trial in trials if trial.refusal]
    if as_markdown:
        click.echo("\n\n".join([markdown_table(table), "\n".join(f"- {line}" for line in (*LEGEND, *refusals))]))
        return
    console = Console(file=sys.stdout, width=WIDTH)
    for part in (rich_table(table), *map(escape, (*LEGEND, *refusals))):
        console.print(part, highlight=False)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.trained")
