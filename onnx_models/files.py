"""Models in files: reading them with clear errors, and writing changed ones where their external data is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import click
import onnx
from google.protobuf import json_format, message, text_format  # type: ignore[import-untyped]

from onnx_models.traversal import all_nodes

_UNREADABLE = (
    OSError,
    ValueError,
    RecursionError,
    message.Error,
    text_format.Error,
    json_format.Error,
    onnx.parser.ParseError,
)
"""What reading a file as one of ONNX's formats raises: binary, JSON and two kinds of text."""

_TOKENS = re.compile(r'"(?:\\.|[^"\\])*"|#[^\n]*|[][{}()]', re.DOTALL)
"""Strings, comments and brackets of ONNX's text; < and > are no pairs there."""

_MOST_BRACKETS = 500

Change = Callable[[onnx.ModelProto], onnx.ModelProto]


def change_file(path: Path, out: Path, change: Change) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Write to `out` what `change` makes of the model in a file; the models before and after.

    Raises:
        click.ClickException: a file cannot be read or written, holds no model, or the change is refused.
    """
    before = load_model(path)
    with click_errors(path):
        if out.resolve().parent != path.resolve().parent and _has_external_data(before):
            raise click.ClickException(
                f"--out = {out}: must be in the folder of {path}, which refers to external data beside it"
            )
        after = change(before)
        onnx.save(after, out)
    return before, after


@contextmanager
def click_errors(path: Path) -> Iterator[None]:
    """Make what is wrong with the model of a file, or with another file, an error of one line.

    Raises:
        click.ClickException: with the name of the file.
    """
    try:
        yield
    except (OSError, TypeError, ValueError, message.Error) as error:
        raise click.ClickException(f"{path}: {one_line(error)}") from error


def load_model(path: Path) -> onnx.ModelProto:
    """The model in a file, its external data left where it is.

    Raises:
        click.ClickException: the file cannot be read or holds no model.
    """
    try:
        if path.suffix in (".onnxtxt", ".onnxtext"):
            _check_brackets(path.read_text(encoding="utf-8"))
        model = onnx.load(path, load_external_data=False)
    except _UNREADABLE as error:
        raise click.ClickException(f"MODEL = {path}: must be an ONNX model ({one_line(error)})") from error
    # An empty file is a protobuf message as well.
    if not model.HasField("graph"):
        raise click.ClickException(f"MODEL = {path}: must be an ONNX model (it has no graph)")
    return model


def one_line(error: object) -> str:
    """What an error or a text says in one line; what a name of the model would do to a terminal is shown instead."""
    text = " ".join(str(error).split())
    return text if text.isprintable() else ascii(text)


def _check_brackets(text: str) -> None:
    """Refuse what ONNX's parser, which calls itself for each bracket within another, ends the process of."""
    steps = ({"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(token, 0) for token in _TOKENS.findall(text))
    if max(accumulate(steps), default=0) > _MOST_BRACKETS:
        raise ValueError(f"brackets are in each other more than {_MOST_BRACKETS} deep")


def _has_external_data(model: onnx.ModelProto) -> bool:
    attributes = [
        attribute for scope in (model, *model.functions) for node in all_nodes(scope) for attribute in node.attribute
    ]
    graphs = [model.graph, *(a.g for a in attributes if a.HasField("g")), *(g for a in attributes for g in a.graphs)]
    tensors = [tensor for graph in graphs for tensor in graph.initializer]
    tensors += [tensor for a in attributes for tensor in (a.t, *a.tensors)]
    return any(map(onnx.external_data_helper.uses_external_data, tensors))
