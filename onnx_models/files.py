"""Models in files: reading them with clear errors, and writing changed ones where their external data is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from onnx_models.convert import scopes

Change = Callable[[onnx.ModelProto], onnx.ModelProto]


def change_file(path: Path, out: Path, change: Change) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Write to `out` what `change` makes of the model in a file; the models before and after.

    Raises:
        click.ClickException: a file cannot be read or written, holds no model, or the change is refused.
    """
    before = _load(path)
    if out.resolve().parent != path.resolve().parent and _has_external_data(before):
        raise click.ClickException(
            f"--out = {out}: must be in the folder of {path}, which refers to external data beside it"
        )
    try:
        after = change(before)
        onnx.save(after, out)
    except (OSError, TypeError, ValueError, onnx.shape_inference.InferenceError) as error:
        raise click.ClickException(f"{path}: {error}") from error
    return before, after


def _load(path: Path) -> onnx.ModelProto:
    """The model in a file, its external data left where it is.

    Raises:
        click.ClickException: the file cannot be read or holds no model.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except (OSError, DecodeError, ValueError, onnx.parser.ParseError) as error:
        raise click.ClickException(f"MODEL = {path}: must be an ONNX model ({error})") from error
    # An empty file is a protobuf message as well.
    if not model.HasField("graph"):
        raise click.ClickException(f"MODEL = {path}: must be an ONNX model (it has no graph)")
    return model


def _has_external_data(model: onnx.ModelProto) -> bool:
    attributes = [attribute for _, nodes in scopes(model) for node in nodes for attribute in node.attribute]
    graphs = [model.graph, *(a.g for a in attributes if a.HasField("g")), *(g for a in attributes for g in a.graphs)]
    tensors = [tensor for graph in graphs for tensor in graph.initializer]
    tensors += [tensor for a in attributes for tensor in (a.t, *a.tensors)]
    return any(map(onnx.external_data_helper.uses_external_data, tensors))
