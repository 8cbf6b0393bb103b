"""``python -m onnx_models write``."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from onnx_models.collection import collection, describe
from onnx_models.commands.common import say

MANIFEST = "manifest.json"


@click.command("write")
@click.argument("out_dir", type=click.Path(file_okay=False, path_type=Path))
def write_command(out_dir: Path) -> None:
    """Write a model of each of this project's operators and a manifest to OUT_DIR.

    The directory is created if it does not exist. Files of the same names are replaced, others stay.
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
    say(f"{len(entries)} models and {MANIFEST} in {out_dir}")
