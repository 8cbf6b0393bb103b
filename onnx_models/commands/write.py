"""``python -m onnx_models write``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from onnx_models.collection import collection, describe
from onnx_models.commands.common import show_table, with_progress

MANIFEST = "manifest.json"


@click.command("write")
@click.argument("out_dir", type=click.Path(file_okay=False, path_type=Path))
def write_command(out_dir: Path) -> None:
    """Write a model for each of this project's operators, and a manifest, to OUT_DIR.

    The directory is created if it does not exist. Files with the same names are replaced, other files stay.
    """
    kinds: dict[str, list[str]] = {}
    entries = []
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        models = list(collection())
        for name, kind, model in with_progress(models, "models", len(models)):
            file = f"{name}_{kind}.onnx"
            (out_dir / file).write_bytes(model.SerializeToString(deterministic=True))
            entries.append({"file": file, "element_type": kind} | describe(model))
            kinds.setdefault(name, []).append(kind)
        (out_dir / MANIFEST).write_text(json.dumps({"models": entries}, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"OUT_DIR = {out_dir}: {error}") from error
    show_table(("files", "element types"), [(f"{name}_*.onnx", ", ".join(types)) for name, types in kinds.items()])
    click.echo(f"{len(entries)} models and {MANIFEST} in {out_dir}")
