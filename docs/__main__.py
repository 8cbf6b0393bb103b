"""``python -m docs``: writes the generated documents and pictures again."""

from __future__ import annotations

from docs.generate import FOLDER, generated, stale


def main() -> None:
    """Write the files that are not as they should be, and remove pictures that nothing generates any more."""
    files = generated()
    for path in stale(files):
        if path in files:
            path.parent.mkdir(exist_ok=True)
            path.write_text(files[path], "utf-8")
            print(f"wrote {path.relative_to(FOLDER.parent)}")
        else:
            path.unlink()
            print(f"removed {path.relative_to(FOLDER.parent)}")


main()
