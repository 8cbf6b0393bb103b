"""The command line: ``python -m onnx_models OUT_DIR`` and, for other tasks, ``python -m onnx_models COMMAND``."""

from __future__ import annotations

import json
from pathlib import Path

import click
import onnx
from rich.console import Console
from rich.progress import track
from rich.table import Table

from onnx_models.collection import collection, describe
from onnx_models.convert import convert
from onnx_models.files import change_file
from onnx_models.gradient import gradient
from onnx_models.gradient_check.command import check_gradients_command
from onnx_models.portable import attach
from onnx_models.walk import nodes_of
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


main.add_command(check_gradients_command)

_MODEL = click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_OUT = click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write.")


@main.command("convert")
@_MODEL
@_OUT
def convert_file(model: Path, out: Path) -> None:
    """Convert the standard RoiAlign nodes of the file MODEL to this project's."""
    before, after = change_file(model, out, convert)
    _say(_count(len(_operators(after)) - len(_operators(before)), "node"), "converted", out)


@main.command("attach")
@_MODEL
@_OUT
@click.option("--loops/--no-loops", default=True, help="Whether bodies may have Loop, Scan and the like.")
def attach_file(model: Path, out: Path, loops: bool) -> None:
    """Attach bodies of standard operators to the file MODEL, so that it runs where no kernel of ours is registered."""
    _, after = change_file(model, out, lambda before: attach(before, loops=loops))
    bodies = [function for function in after.functions if function.domain == DOMAIN]
    _say(_count(len(bodies), "body", "bodies"), "attached", out)


@main.command("gradient")
@_MODEL
@_OUT
@click.option("--wrt", required=True, multiple=True, help="Name of a tensor to differentiate by; may be repeated.")
@click.option("--loss", help="Name of the tensor to differentiate; needed where the model has several outputs.")
@click.option("--stop-at", multiple=True, help="Name of a tensor to take for a constant; may be repeated.")
@click.option("--portable", is_flag=True, help="Attach bodies of standard operators, too.")
def gradient_file(
    model: Path, out: Path, wrt: tuple[str, ...], loss: str | None, stop_at: tuple[str, ...], portable: bool
) -> None:
    """Add gradients to the file MODEL: an output NAME_grad for each tensor NAME of --wrt."""

    def differentiate(before: onnx.ModelProto) -> onnx.ModelProto:
        outputs = [output.name for output in before.graph.output]
        if loss is None and len(outputs) != 1:
            raise ValueError(f"--loss is missing: must be given for a model with the outputs {', '.join(outputs)}")
        made = gradient(before, loss or outputs[0], wrt, stop_at=stop_at)
        return attach(made) if portable else made

    change_file(model, out, differentiate)
    _say(_count(len(wrt), "gradient"), "added", out)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _say(what: str, done: str, out: Path) -> None:
    Console().print(f"{what} {done}: {out}", highlight=False, soft_wrap=True)


def _operators(model: onnx.ModelProto) -> list[str]:
    """The nodes of this project's domain in `model`."""
    scopes = (model, *model.functions)
    return [node.op_type for scope in scopes for node in nodes_of(scope) if node.domain == DOMAIN]


if __name__ == "__main__":
    main(prog_name="python -m onnx_models")
