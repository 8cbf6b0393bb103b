# SPDX-License-Identifier: MIT
"""docs/design.md is what is so: its folders exist, and its checklists hold for everything that is there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from conformance.backends import BACKENDS, NAMES
from onnx_models.gradient.rules import DECOMPOSITIONS, RULES
from ortops.operators import OPERATORS
from test_operators import ROOMS

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs" / "design.md").read_text("utf-8")
FAMILIES = sorted({operator.family for operator in OPERATORS})
OURS = ("ortops", "ortops-standard", "reference")
"""The backends that have to pass everything."""


def checklist(title: str) -> list[str]:
    """The paths of the checklist below a heading."""
    section = DESIGN.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    paths = re.findall(r"^- \[ \] `([^`]+)`: \S", section, re.MULTILINE)
    assert paths, f"{title} has no checklist"
    return paths


def absent(paths: list[str], **names: str) -> list[str]:
    return [path for path in (path.format(**names) for path in paths) if not (ROOT / path).exists()]


def test_the_folders_of_its_table_exist() -> None:
    rows = re.findall(r"^\| (`.*?) \|", DESIGN, re.MULTILINE)
    folders = [folder for row in rows for folder in re.findall(r"`([\w/]+)`", row)]
    assert len(folders) > 10
    missing = [name for name in folders if not (ROOT / name).is_dir() and not (ROOT / "conformance" / name).is_dir()]
    assert missing == []


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_of_operators_has_what_the_checklist_says(family: str) -> None:
    paths, record = checklist("Add an operator"), import_module(f"conformance.families.{family}").FAMILY
    if record.like:
        paths = [path for path in paths if not re.search("/vectors|refusals|random", path)]
    assert absent(paths, family=family) == []


def test_the_checklist_of_an_operator_has_every_package_with_a_module_for_each_family() -> None:
    paths = {path.replace("{family}/__init__.py", "{family}.py") for path in checklist("Add an operator")}
    assert {f"{room.replace('.', '/')}/{{family}}.py" for room in ROOMS} <= paths


@pytest.mark.parametrize("backend", [name for name in NAMES if name not in OURS])
def test_each_backend_has_what_the_checklist_says(backend: str) -> None:
    paths = [path for path in checklist("Add a backend") if not path.startswith("conformance/backends/{")]
    assert absent(paths, backend=backend) == []
    runtime = BACKENDS[backend].maker.partition(":")[0]
    assert absent(["conformance/backends/{runtime}.py"], runtime=runtime) == []


def test_every_gradient_rule_has_what_the_checklist_says() -> None:
    assert absent(checklist("Add a gradient rule")) == []
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").glob("*gradient*.py"))
    operators = {name for _, name in (*RULES, *DECOMPOSITIONS)}
    assert [name for name in sorted(operators) if not re.search(rf"\b{name}\b", tests)] == []
