# SPDX-License-Identifier: MIT
"""The most lines of Python that each package may have, so that growth is a decision that somebody explains."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

BUDGET = {  # lines of code and comments, of docstrings, and blank lines outside of these
    "ortops": (17723, 4511, 4270),
    "onnx_models": (11740, 2596, 2692),
    "conformance": (13004, 2765, 3045),
    "benchmarks": (894, 136, 224),
    "docs": (645, 89, 138),
    "examples": (771, 127, 242),
    "release": (361, 67, 95),
    "tests": (24114, 891, 5736),
}
SPDX = "# SPDX-License-Identifier: "
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of(file: Path) -> tuple[int, int, int]:
    text, docstrings = file.read_text("utf-8"), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    numbered = enumerate(text.splitlines(), 1)
    others = [line.strip() for number, line in numbered if number not in docstrings and not line.startswith(SPDX)]
    return len(others) - others.count(""), len(docstrings), others.count("")


@pytest.mark.parametrize("package", BUDGET)
def test_a_package_has_no_more_lines_than_its_budget(package: str) -> None:
    files = zip(*map(lines_of, (ROOT / package).rglob("*.py")), strict=True)
    for what, count, budget in zip(("code", "docstrings", "blank"), map(sum, files), BUDGET[package], strict=True):
        assert count <= budget, (
            f"{package} has {count} lines of {what}, {count - budget} more than its budget. Delete lines, or raise the "
            f"number in {Path(__file__).name} in the same commit and give the reason in its message."
        )


@pytest.mark.parametrize("package", BUDGET)
def test_each_file_begins_with_its_licence(package: str) -> None:
    licence = "MIT OR Apache-2.0" if package == "conformance" else "MIT"
    files = {file: file.read_text("utf-8").splitlines()[:1] for file in (ROOT / package).rglob("*.py")}
    assert [str(file) for file, head in files.items() if head != [f"{SPDX}{licence}"]] == []
