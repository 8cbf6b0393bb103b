# SPDX-License-Identifier: MIT
"""All generated files: the reference of the operators, what is known of runtimes, numbers in sentences, and the pictures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from docs import findings
from docs.operators import operators_document
from docs.pictures import PICTURES, drawn
from docs.rules import counted
from docs.speeds import ranged

FOLDER = Path(__file__).parent

NUMBERED = ("../README.md", "conformance.md", "performance.md")
"""The documents with numbers that `numbered` writes."""

TABLES = ("performance.md", "pytorch.md")
"""The documents with measured tables, whose numbers stand in sentences, too."""

MEASURED = {"images/speed.svg"}
"""The picture that `make bench` draws."""


def generated() -> dict[str, str]:
    """The text of each generated file by its path in this folder."""
    files = {"operators.md": operators_document()}
    files |= {name: numbered((FOLDER / name).read_text("utf-8")) for name in NUMBERED}
    text = (FOLDER / "findings.md").read_text("utf-8")
    files["findings.md"] = findings.rewritten(text, findings.runtimes(), findings.read_counts())
    for name, picture in PICTURES.items():
        for theme, text in drawn(picture).items():
            files[f"images/{name}-{theme}.svg"] = text
    return files


def numbered(text: str) -> str:
    """A document with the numbers of cases, of mutants and of measured tables in its sentences as they are."""
    return ranged(counted(text), "".join((FOLDER / name).read_text("utf-8") for name in TABLES))


def stale(files: Mapping[str, str], folder: Path = FOLDER) -> list[str]:
    """The files whose text in the folder is another one, and the pictures in the folder that are not generated."""

    def is_changed(path: Path, text: str) -> bool:
        return not path.is_file() or path.read_text("utf-8") != text

    changed = [name for name, text in files.items() if is_changed(folder / name, text)]
    pictures = {f"images/{path.name}" for path in (folder / "images").glob("*.svg")}
    return changed + sorted(pictures - set(files) - MEASURED)


def write(files: Mapping[str, str], folder: Path = FOLDER) -> list[str]:
    """Write the stale files, remove the pictures that are not generated, and say so: one line for each file."""
    lines = []
    for name in stale(files, folder):
        path = folder / name
        if name in files:
            path.parent.mkdir(exist_ok=True)
            path.write_text(files[name], "utf-8")
        else:
            path.unlink()
        lines.append(f"{'wrote' if name in files else 'removed'} {os.path.normpath(f'docs/{name}')}")
    return lines
