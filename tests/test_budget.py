"""The most lines of Python that each package may have, so that growth is a decision that somebody explains."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

BUDGET = {  # lines of code and comments, of docstrings, and blank lines outside of these
    "ortops": (17789, 4488, 4250),
    "onnx_models": (11741, 2601, 2684),
    "conformance": (13041, 2755, 3033),
    "benchmarks": (908, 136, 224),
    "docs": (643, 88, 135),
    "examples": (790, 127, 242),
    "release": (409, 75, 109),
    "tests": (23768, 883, 5648),
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of(file: Path) -> tuple[int, int, int]:
    text, docstrings = file.read_text("utf-8"), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    others = [line.strip() for number, line in enumerate(text.splitlines(), 1) if number not in docstrings]
    return len(others) - others.count(""), len(docstrings), others.count("")


@pytest.mark.parametrize("package", BUDGET)
def test_a_package_has_no_more_lines_than_its_budget(package: str) -> None:
    files = zip(*map(lines_of, (ROOT / package).rglob("*.py")), strict=True)
    for what, count, budget in zip(("code", "docstrings", "blank"), map(sum, files), BUDGET[package], strict=True):
        assert count <= budget, (
            f"{package} has {count} lines of {what}, {count - budget} more than its budget. Delete lines, or raise the "
            f"number in {Path(__file__).name} in the same commit and give the reason in its message."
        )
