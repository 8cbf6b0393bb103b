"""All generated files: the reference of the operators, the pictures, and the numbers in documents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from docs.numbers import SENTENCES, numbered
from docs.operators import operators_document
from docs.pictures import PICTURES, drawn

ROOT = Path(__file__).parents[1]

MEASURED = {f"docs/images/{name}-{theme}.svg" for name in ("speed", "growth") for theme in ("light", "dark")}
"""The pictures that `make bench` draws, and one of how cost grows, which stays as it is."""


def generated() -> dict[str, str]:
    """The text of each generated file by its path in the repository."""
    files = {"docs/operators.md": operators_document()}
    files |= {name: numbered(name, (ROOT / name).read_text("utf-8")) for name in SENTENCES}
    for name, picture in PICTURES.items():
        for theme, text in drawn(picture).items():
            files[f"docs/images/{name}-{theme}.svg"] = text
    return files


def stale(files: Mapping[str, str], root: Path = ROOT) -> list[str]:
    """The files whose text is another one below the root, and the pictures there that are not generated."""

    def is_changed(path: Path, text: str) -> bool:
        return not path.is_file() or path.read_text("utf-8") != text

    changed = [name for name, text in files.items() if is_changed(root / name, text)]
    pictures = {f"docs/images/{path.name}" for path in (root / "docs/images").glob("*.svg")}
    return changed + sorted(pictures - set(files) - MEASURED)


def write(files: Mapping[str, str], root: Path = ROOT) -> list[str]:
    """Write the stale files, remove the pictures that are not generated, and say so: one line for each file."""
    done = []
    for name in stale(files, root):
        path = root / name
        if name in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[name], "utf-8")
        else:
            path.unlink()
        done.append(f"{'wrote' if name in files else 'removed'} {name}")
    return done
