# SPDX-License-Identifier: MIT
"""What several commands share: arguments, output, reading model files and writing changed ones."""

from __future__ import annotations

import importlib
import operator
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import click
import onnx
from google.protobuf import json_format, message, text_format  # type: ignore[import-untyped]

from onnx_models.gradient import ZeroGradientWarning
from onnx_models.tools.attributes import LinesError
from onnx_models.tools.protos import iter_nodes, one_line
from ortops.custom.decorator import CustomOperator

MODEL = click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
OUT_FILE = click.Path(dir_okay=False, path_type=Path)
OUT = click.option("--out", required=True, type=OUT_FILE, help="File to write.")
FORCE = click.option("--force", is_flag=True, help="Allow --out to be the file MODEL, which is then replaced.")

OPERATORS = click.option(
    "--operators",
    "operators",
    multiple=True,
    metavar="MODULE:NAME",
    help="An operator made by ortops.operator that the model uses: a module, installed or in the working folder, and the "
    "operator's name in it, which also stands for the gradient that it declares; may be repeated.",
)

T = TypeVar("T")


def imported(names: Sequence[str]) -> list[CustomOperator]:
    """Import the operators of --operators, and the gradients that they declare from the same modules.

    Raises:
        click.BadParameter: a value is not MODULE:NAME, or does not name an operator made by `ortops.operator`.
    """
    operators: dict[str, CustomOperator] = {}
    for name in (name for value in names for name in value.split(",")):
        module_name, _, attribute = name.partition(":")
        try:
            module = importlib.import_module(module_name)
            imported_operator = operator.attrgetter(attribute)(module)
        except (ImportError, AttributeError, ValueError) as error:
            raise click.BadParameter(f"--operators {name}: must be MODULE:NAME ({error})") from error
        if not isinstance(imported_operator, CustomOperator):
            raise click.BadParameter(f"--operators {name}: must be an operator made by ortops.operator")
        for value in (*vars(module).values(), imported_operator):
            if isinstance(value, CustomOperator) and value.label in (
                imported_operator.label,
                imported_operator.gradient,
            ):
                operators[value.label] = value
    return list(operators.values())


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of one-line cells below their headings, each column as wide as its longest cell."""
    lines = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def with_progress(items: Iterable[T], title: str, total: int) -> Iterator[T]:
    """Yield the items, and show a progress bar on standard error if that is a terminal."""
    is_hidden = not sys.stderr.isatty()
    with click.progressbar(items, total, title, file=sys.stderr, hidden=is_hidden) as shown:
        yield from shown


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def show_needs(operators: Mapping[str, int], remedy: str) -> None:
    """Print which operators of this project, by name with the number of nodes, a model needs, and how to do without."""
    if operators:
        names = ", ".join(f"{number} {name}" for name, number in sorted(operators.items()))
        click.echo(f"needs ortops.InferenceSession, or {remedy} for stock onnxruntime: {names}")


_UNREADABLE = (
    OSError,
    ValueError,
    RecursionError,
    message.Error,
    text_format.Error,
    json_format.Error,
    onnx.parser.ParseError,
)
"""The exceptions of reading a file in one of ONNX's formats: binary, JSON and two text formats."""

_TOKENS = re.compile(r'"(?:\\.|[^"\\])*"|#[^\n]*|[][{}()]', re.DOTALL)
"""Strings, comments and brackets of ONNX's text format; < and > need not be paired there."""

_MAX_BRACKETS = 500

Change = Callable[[onnx.ModelProto], onnx.ModelProto]


def change_file(path: Path, out: Path, change: Change, force: bool) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Change the model in a file, write it to `out` (the same file only with `force`); return the models before and after.

    Raises:
        click.ClickException: a file cannot be read or written, is not a model, or `change` refuses the model.
    """
    if not force and out.exists() and out.samefile(path):
        raise click.ClickException(f"--out = {out}: must be another file than MODEL, unless --force is given")
    before = load_model(path)
    with click_errors(path):
        if out.resolve().parent != path.resolve().parent and _has_external_data(before):
            raise click.ClickException(
                f"--out = {out}: must be in the folder of {path}, which refers to external data in that folder"
            )
        after = change(before)
        onnx.save(after, out)
    return before, after


def change_and_warn(path: Path, out: Path, change: Change, force: bool) -> tuple[onnx.ModelProto, onnx.ModelProto, int]:
    """Change a file as `change_file` does, and print warnings.

    Returns:
        The models before and after, and the number of gradients that are 0 for all inputs.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        before, after = change_file(path, out, change, force)
    told = [warning for warning in caught if issubclass(warning.category, UserWarning)]
    for warning in told:
        click.echo(f"warning: {one_line(warning.message)}", err=True)
    return before, after, sum(issubclass(warning.category, ZeroGradientWarning) for warning in told)


@contextmanager
def click_errors(path: Path) -> Iterator[None]:
    """Report errors of a model, or of reading and writing files: in one line, or in the lines of a `LinesError`.

    Raises:
        click.ClickException: an error occurred; the message begins with `path`.
    """
    try:
        yield
    except (OSError, TypeError, ValueError, message.Error) as error:
        lines = error.args if isinstance(error, LinesError) else [error]
        raise click.ClickException(f"{path}: " + "\n".join(map(one_line, lines))) from error


def load_model(path: Path) -> onnx.ModelProto:
    """Load the model in a file, without its external data.

    Raises:
        click.ClickException: the file cannot be read or is not a model.
    """
    try:
        if path.suffix in (".onnxtxt", ".onnxtext"):
            _check_brackets(path.read_text(encoding="utf-8"))
        model = onnx.load(path, load_external_data=False)
    except _UNREADABLE as error:
        raise click.ClickException(f"MODEL = {path}: must be an ONNX model ({one_line(error)})") from error
    # An empty file is a valid protobuf message.
    if not model.HasField("graph"):
        raise click.ClickException(f"MODEL = {path}: must be an ONNX model (it has no graph)")
    return model


def _check_brackets(text: str) -> None:
    """Refuse nested brackets that overflow the stack of ONNX's recursive parser, which would end the process."""
    steps = ({"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(token, 0) for token in _TOKENS.findall(text))
    if max(accumulate(steps), default=0) > _MAX_BRACKETS:
        raise ValueError(f"brackets are nested more than {_MAX_BRACKETS} deep")


def _has_external_data(model: onnx.ModelProto) -> bool:
    attributes = [
        attribute for scope in (model, *model.functions) for node in iter_nodes(scope) for attribute in node.attribute
    ]
    graphs = [model.graph, *(a.g for a in attributes if a.HasField("g")), *(g for a in attributes for g in a.graphs)]
    tensors = [tensor for graph in graphs for tensor in graph.initializer]
    tensors += [tensor for a in attributes for tensor in (a.t, *a.tensors)]
    return any(map(onnx.external_data_helper.uses_external_data, tensors))
