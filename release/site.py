# SPDX-License-Identifier: MIT
"""Writes the pages of the site to build/pages: the documents as they are on disk, and a page with all public names.

Links to files that are not pages lead to `repo_url` in zensical.toml if it is there, and are plain words otherwise.
"""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build/pages"
PROJECT = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]

PUBLIC = (
    *("ortops", "ortops.torch", "ortops.reference"),
    *("onnx_models", "onnx_models.torch", "onnx_models.portable"),
    *("conformance.backends", "conformance.case", "conformance.explain"),
)
"""The modules whose `__all__` has the public names."""

_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_PICTURE = re.compile(r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*(<img [^>]*src=")([^"]+)("[^>]*>)\s*</picture>')
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Write the pages. Their folders are those of the documents, so links between them stay as they are."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs/images", PAGES / "docs/images")
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        text = with_links(path.read_text("utf-8"), path.parent, PROJECT.get("repo_url", ""))
        (PAGES / path.relative_to(ROOT)).write_text(text, "utf-8")
    (PAGES / "api.md").write_text(api_page(), "utf-8")
    shutil.copy(ROOT / "release/site.css", PAGES)


def with_links(text: str, folder: Path, repository: str) -> str:
    """Return a document of a folder with the links that it has as a page; repository: its address, or ""."""

    def linked(match: re.Match[str]) -> str:
        words, target = match.groups()
        file = (folder / target.partition("#")[0]).resolve()
        if file.suffix in {".md", ".svg"} or file == folder or not file.exists():
            return match[0]
        return f"[{words}]({repository}/blob/main/{file.relative_to(ROOT).as_posix()})" if repository else words

    parts = _FENCED.split(text)
    parts[::2] = [_PICTURE.sub(r"\2\1#only-dark\4\2\3#only-light\4", _LINK.sub(linked, part)) for part in parts[::2]]
    return "".join(parts)


def api_page() -> str:
    """Return the page with all public names; mkdocstrings puts their signatures and docstrings below."""
    lines = ["# Public names", "", "A public name that changes keeps working for one release.", ""]
    for module in PUBLIC:
        lines += [f"## `{module}`", ""]
        for path in (f"{module}.{name}" for name in names_of(module)):
            file, name = ROOT / path.replace(".", "/"), path.rpartition(".")[2]
            if file.with_suffix(".py").exists() or (file.exists() and path not in PUBLIC):
                lines += [f"::: {path}.{name}", f"    options: {{heading: {path}, toc_label: {name}}}", ""]
            else:
                lines += [f"::: {path}", ""]
    return "\n".join(lines)


def names_of(module: str) -> list[str]:
    """Return the public names of a module. PyTorch need not be installed."""
    try:
        return list(importlib.import_module(module).__all__)
    except ImportError:
        text = (ROOT / module.replace(".", "/") / "__init__.py").read_text("utf-8")
        return list(ast.literal_eval(text.partition("__all__ = ")[2].partition("]")[0] + "]"))


if __name__ == "__main__":
    main()
