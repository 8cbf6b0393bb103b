"""All generated files: the reference of the operators, made from their definitions, and the pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from docs.operators import operators_document
from docs.pictures import PICTURES, drawn

FOLDER = Path(__file__).parent


def generated() -> dict[Path, str]:
    """The text of each generated file."""
    files = {FOLDER / "operators.md": operators_document()}
    for name, picture in PICTURES.items():
        for theme, text in drawn(picture).items():
            files[FOLDER / "images" / f"{name}-{theme}.svg"] = text
    return files


def stale(files: Mapping[Path, str]) -> list[Path]:
    """The generated files whose text on disk is not `files`'s, and pictures on disk that `files` does not have."""
    changed = [path for path, text in files.items() if not path.is_file() or path.read_text("utf-8") != text]
    return changed + sorted(set((FOLDER / "images").glob("*.svg")) - set(files))
