# SPDX-License-Identifier: MIT
"""Hooks of MkDocs: the site has the documents as they are on disk, a page with all public names, and an order.

Links between documents lead to their pages. Links to other files of the repository lead to REPOSITORY_ADDRESS if the
environment has one, and are plain words otherwise.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Documents of the root that are pages, with the names of the pages."""

API = "api.md"
"""The page with all public names."""

PUBLIC = (
    *("ortops", "ortops.torch", "ortops.reference"),
    *("onnx_models", "onnx_models.torch", "onnx_models.portable"),
    *("conformance.backends", "conformance.case", "conformance.explain"),
)
"""The modules whose `__all__` has the public names."""

_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_PICTURE = re.compile(r'\b(src|srcset)="([^"]+)"')
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Order the pages: README, the documents in the order in which it links to them, the others, and the public names."""
    config.nav = order((ROOT / "README.md").read_text("utf-8"), sorted(path.name for path in DOCS.glob("*.md")))
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File

    pages = {page: (ROOT / name).read_text("utf-8") for name, page in OUTSIDE.items()} | {API: api_page()}
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001  # of MkDocs
    """Let links and pictures of a page lead where they do on disk."""
    source = next((name for name, other in OUTSIDE.items() if other == page.file.src_uri), None)
    return with_links(markdown, ROOT if source else DOCS, config.repo_url or "")


def order(readme: str, documents: list[str]) -> list[str]:
    """Return the names of all pages in the order in which the site lists them."""
    linked = [name for name in dict.fromkeys(re.findall(r"\(docs/([\w-]+\.md)", readme)) if name in documents]
    others = [name for name in documents if name not in linked]
    first, *last = OUTSIDE.values()
    return [first, *linked, *others, API, *last]


def with_links(text: str, folder: Path, repository: str) -> str:
    """Return a document of a folder with the links that it has as a page; repository: its address, or ""."""

    def linked(match: re.Match[str]) -> str:
        words, target = match.groups()
        place = _place(target, folder)
        if place is None:
            return match[0]
        page = OUTSIDE.get(place[0]) or (place[0][5:] if place[0].startswith("docs/") else None)
        if page:
            return f"[{words}]({page}{place[1]})"
        return f"[{words}]({repository}/blob/main/{place[0]}{place[1]})" if repository else words

    def pictured(match: re.Match[str]) -> str:
        place = _place(match[2], folder)
        return f'{match[1]}="{place[0].removeprefix("docs/")}"' if place else match[0]

    parts = _FENCED.split(text)
    parts[::2] = [_PICTURE.sub(pictured, _LINK.sub(linked, part)) for part in parts[::2]]
    return "".join(parts)


def _place(target: str, folder: Path) -> tuple[str, str] | None:
    """Return the path of a link in the repository and its anchor, or None if it leads to no file of the repository."""
    path, mark, anchor = target.partition("#")
    file = (folder / path).resolve()
    if not path or "://" in path or not file.is_relative_to(ROOT) or not file.exists():
        return None
    return file.relative_to(ROOT).as_posix(), mark + anchor


def api_page() -> str:
    """Return the page with all public names; mkdocstrings puts their signatures and docstrings below."""
    lines = ["# Public names", "", "A public name that changes keeps working for one release.", ""]
    for module, names in public_names():
        lines += [f"## `{module}`", ""]
        for name in names:
            shown, path = f"{module}.{name}", _source(module, name)
            lines += [f"::: {path}"]
            lines += [f"    options: {{heading: {shown}, toc_label: {name}}}"] if path != shown else []
            lines += [""]
    return "\n".join(lines)


def public_names() -> Iterator[tuple[str, list[str]]]:
    """Return each public module and its names. PyTorch need not be installed."""
    for module in PUBLIC:
        try:
            names = importlib.import_module(module).__all__
        except ImportError:
            names = _written_names(ROOT / module.replace(".", "/") / "__init__.py")
        yield module, list(names)


def _written_names(path: Path) -> list[str]:
    """Return `__all__` as a file has it, which cannot be imported here."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    raise ValueError(f"{path} has no __all__")


def _source(module: str, name: str) -> str:
    """Return the path by which the sources have a public name: its own, unless a function has the name of its module."""
    value = getattr(sys.modules.get(module), name, None)
    package, _, last = getattr(value, "__module__", "").rpartition(".")
    if inspect.isfunction(value) and last == name and package in PUBLIC:
        return f"{value.__module__}.{name}"
    return f"{module}.{name}"
