"""The command line: ``python -m onnx_models OUT_DIR`` and, for other tasks, ``python -m onnx_models COMMAND``."""

from __future__ import annotations

import json
from pathlib import Path

import click
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from rich.console import Console
from rich.progress import track
from rich.table import Table

from onnx_models.collection import collection, describe
from onnx_models.convert import convert, scopes
from ortops.spec import DOMAIN

MANIFEST = "manifest.json"


class WriteByDefault(click.Group):
    """A group that takes what is none of its commands for the first argument of `write`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command to run, its name and its arguments."""
        return super().resolve_command(ctx, args if args[0] in self.commands else ["write", *args])


@click.group(cls=WriteByDefault, subcommand_metavar="OUT_DIR | COMMAND [ARGS]...")
def main() -> None:
    """Write the models of this project's operators to OUT_DIR, or run a COMMAND.

    A directory with the name of a command is given as ./NAME.
    """


@main.command()
@click.argument("out_dir", type=click.Path(file_okay=False, path_type=Path))
def write(out_dir: Path) -> None:
    """Write all models and a manifest to OUT_DIR.

    The directory is made where it does not exist. Files of the same names are written anew, others stay.
    """
    console = Console()
    kinds: dict[str, list[str]] = {}
    entries = []
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        for name, kind, model in track(list(collection()), "models", console=console, transient=True):
            file = f"{name}_{kind}.onnx"
            (out_dir / file).write_bytes(model.SerializeToString(deterministic=True))
            entries.append({"file": file, "element_type": kind} | describe(model))
            kinds.setdefault(name, []).append(kind)
        (out_dir / MANIFEST).write_text(json.dumps({"models": entries}, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"OUT_DIR = {out_dir}: {error}") from error
    table = Table("files", "element types")
    for name, types in kinds.items():
        table.add_row(f"{name}_*.onnx", ", ".join(types))
    console.print(table)
    console.print(f"{len(entries)} models and {MANIFEST} in {out_dir}", highlight=False, soft_wrap=True)


@main.command("convert")
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
def convert_file(model: Path, out: Path) -> None:
    """Convert the standard RoiAlign nodes of the file MODEL to this project's."""
    before = _load(model)
    if out.resolve().parent != model.resolve().parent and _has_external_data(before):
        raise click.ClickException(
            f"--out = {out}: must be in the folder of {model}, which refers to external data beside it"
        )
    try:
        after = convert(before)
        onnx.save(after, out)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{model}: {error}") from error
    count = _operators(after) - _operators(before)
    Console().print(f"{count} {'node' if count == 1 else 'nodes'} converted: {out}", highlight=False, soft_wrap=True)


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


def _operators(model: onnx.ModelProto) -> int:
    """How many nodes of this project's domain are in `model`."""
    return sum(node.domain == DOMAIN for _, nodes in scopes(model) for node in nodes)


def _has_external_data(model: onnx.ModelProto) -> bool:
    attributes = [attribute for _, nodes in scopes(model) for node in nodes for attribute in node.attribute]
    graphs = [model.graph, *(a.g for a in attributes if a.HasField("g")), *(g for a in attributes for g in a.graphs)]
    tensors = [tensor for graph in graphs for tensor in graph.initializer]
    tensors += [tensor for a in attributes for tensor in (a.t, *a.tensors)]
    return any(map(onnx.external_data_helper.uses_external_data, tensors))


if __name__ == "__main__":
    main(prog_name="python -m onnx_models")
