"""Digests of compiled functions: each covers all definitions that the function uses, found in the kernels' source files.

The search follows names and imports. Where it cannot be sure, it takes too much: a local name counts as the global name, and
a module as everything that it defines. Statements that run when a module is imported, such as those that register a type
with numba, count for every function in the modules that import it. Comments, docstrings and line numbers do not count. For
a definition from outside the package, only its name counts.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Node: TypeAlias = tuple[str, str]
"""A module's name below `ortops`, and a name in it; or RUN for what runs at its import, ALL for all its names."""

RUN, ALL = "", "*"

PREFIX = "ortops."


def digests(packages: Mapping[str, Path]) -> dict[str, str]:
    """The digest of each function and all that it uses, by `{module}.{function}`.

    Args:
        packages: the folders with compiled functions, by package name without "ortops.".

    Raises:
        SyntaxError: a source file is not Python.
    """
    graph = _Graph(packages)
    return {
        ".".join(node): graph.digest(node)
        for node, parts in graph.parts.items()
        if any(isinstance(part, ast.FunctionDef) for part in parts)
    }


class _Graph:
    """The packages' definitions.

    Attributes:
        parts: the statements that define each name.
    """

    def __init__(self, packages: Mapping[str, Path]) -> None:
        self.parts: dict[Node, list[ast.stmt]] = {}
        self._modules: dict[str, set[Node]] = {}
        for package, folder in packages.items():
            self._read(package, folder)
        # A statement may define many names.
        self._contents = {part: _content(part) for parts in self.parts.values() for part in parts}
        self._digests = {
            node: hashlib.sha256("\0".join((*node, *(self._contents[part].code for part in parts))).encode()).digest()
            for node, parts in self.parts.items()
        }
        self._uses = {node: {*self._used(*node)} for node in self.parts}

    def _read(self, package: str, folder: Path) -> None:
        """Find a package's definitions."""
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            module = ".".join(part for part in parts if part != "__init__")
            self._modules[module] = {(module, RUN)}
            self.parts |= {(module, RUN): [], (module, ALL): []}
            statements = (one for one in ast.parse(path.read_bytes()).body if not _is_text(one))
            for name, part in (found for one in statements for found in self._bindings(module, one)):
                self.parts.setdefault((module, name), []).append(part)
                self._modules[module].add((module, name))

    def digest(self, node: Node) -> str:
        """The digest of a definition and all that it uses."""
        seen, left = {node}, [node]
        while left:
            new = self._uses[left.pop()] - seen
            seen |= new
            left += new
        return hashlib.sha256(b"".join(self._digests[one] for one in sorted(seen))).hexdigest()[:32]

    def _bindings(self, module: str, statement: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
        """The names that a statement binds, each with the part of the statement that counts for it."""
        if isinstance(statement, ast.Import):
            yield from ((alias.asname or alias.name.split(".")[0], ast.Import([alias])) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                yield alias.asname or alias.name, ast.ImportFrom(statement.module, [alias], statement.level)
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name, statement
            if any(self._registers(module, decorator) for decorator in statement.decorator_list):
                yield RUN, statement
        else:
            yield from ((name, statement) for name in sorted({*_bound(statement)}))
            if not isinstance(statement, ast.Assign | ast.AnnAssign):
                yield RUN, statement

    def _registers(self, module: str, decorator: ast.expr) -> bool:
        """Whether numba's decorator does more than return a function that callers name."""
        root = next(node for node in ast.walk(decorator) if isinstance(node, ast.Name)).id
        origin = self.parts.get((module, root), [None])[0]
        return (
            isinstance(origin, ast.ImportFrom)
            and (origin.module or "").split(".")[0] == "numba"
            and origin.names[0].name != "intrinsic"
        )

    def _used(self, module: str, name: str) -> Iterator[Node]:
        """The definitions that a definition names, and the statements that run at imports."""
        yield module, RUN
        if name == ALL:
            yield from self._modules[module]
        imports = [part for node in self._modules[module] for part in self.parts[node]] if name == RUN else []
        yield from ((target, RUN) for part in imports for target, _ in self._targets(part))
        for content in (self._contents[part] for part in self.parts[module, name]):
            yield from ((module, one) for one in content.names if (module, one) in self.parts)
            for statement in content.imports:
                yield from self._targets(statement)

    def _targets(self, node: ast.stmt) -> Iterator[Node]:
        """The names in the package that an import names."""
        if not isinstance(node, ast.Import | ast.ImportFrom):
            return
        for alias in node.names:
            path = [node.module or "", alias.name] if isinstance(node, ast.ImportFrom) else [alias.name]
            inner = [part.removeprefix(PREFIX) for part in path]
            if not path[0].startswith(PREFIX):
                continue
            elif (inner[0], inner[-1]) in self.parts:
                yield inner[0], inner[-1]
            elif (module := ".".join(filter(None, inner))) in self._modules:
                yield module, ALL


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement binds."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.split(".")[0]


class _Content(NamedTuple):
    """The parts of a statement that count: code without docstrings, comments and line numbers; names; imports."""

    code: str
    names: set[str]
    imports: list[ast.Import | ast.ImportFrom]


def _content(statement: ast.stmt) -> _Content:
    """Find a statement's content in one pass. Measured: `ast.unparse` and `ast.walk` take twice the time."""
    words: list[str] = []
    found = _Content("", set(), [])
    left: list[Any] = [statement]
    while left:
        node = left.pop()
        if isinstance(node, ast.AST):
            words.append(type(node).__name__)
            if isinstance(node, ast.Name):
                found.names.add(node.id)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                found.imports.append(node)
            for field in node._fields:
                value = getattr(node, field, None)
                if value is not None and value != [] and field != "ctx":
                    words.append(field)
                    left.append(value)
        elif isinstance(node, list):
            inner = [one for one in node if not _is_text(one)]
            words.append(str(len(inner)))
            left += inner
        else:
            words.append(repr(node))
    return found._replace(code=" ".join(words))


def _is_text(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
