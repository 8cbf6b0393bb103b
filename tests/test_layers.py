# SPDX-License-Identifier: MIT
"""The arrows of imports between folders run down the layers, and modules import each other in no circle."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("ortops", "onnx_models", "conformance")

LAYERS = (
    ("ortops.extras", "ortops.shapes", "ortops.spec"),
    ("ortops.operators",),
    ("ortops.reference",),
    ("ortops.foreign.standard",),
    ("ortops.atomic_file", "ortops.exceptions", "ortops.extras", "ortops.forks", "ortops.memory", "ortops.progress"),
    # What compiled code is written in, from structs that Python shares; what is compiled; and what calls it in a process.
    ("ortops.native.constants", "ortops.native.elements", "ortops.native.process", "ortops.native.structs"),
    ("ortops.compiler",),
    ("ortops.native.kernels.functions", "ortops.native.kernels.layout"),
    ("ortops.native.interface", "ortops.native.types"),
    ("ortops.native",),
    ("ortops.runtime",),
    ("ortops.node",),
    ("ortops.compute",),
    ("ortops.functional", "ortops.engine"),
    ("ortops.custom",),
    ("ortops.foreign",),
    ("ortops.library",),
    # Libraries, the command line, and `import ortops`, which gives all of this.
    ("ortops",),
    ("onnx_models.tools",),
    ("onnx_models.*",),
    ("onnx_models.portable",),
    ("onnx_models.build", "onnx_models.collection"),
    ("onnx_models.gradient",),
    ("onnx_models.training", "onnx_models.inference", "onnx_models.torch", "onnx_models.gradient_check"),
    ("onnx_models.commands",),
    ("onnx_models",),
    # The floors of the suite: a case and its expected values; the families of operators; runtimes, all cases, tolerances;
    # verdicts; explanations, diagnoses and child processes; reports and fuzz campaigns; commands; the command line and the
    # plugin of pytest.
    (
        *(
            "conformance.case",
            "conformance.child",
            "conformance.error_terms",
            "conformance.expected_values",
            "conformance.formula",
            "conformance.guard",
            "conformance.model",
            "conformance.mutants",
            "conformance.outcome",
        ),
        *(
            "conformance.printable",
            "conformance.stored_results",
            "conformance.tensor_files",
        ),
    ),
    ("conformance.expected_failures", "conformance.families"),
    ("conformance.backends", "conformance.cases", "conformance.compare"),
    ("conformance.export", "conformance.run"),
    (
        "conformance.conditions",
        "conformance.diagnosis",
        "conformance.explain",
        "conformance.schedule",
    ),
    ("conformance.fuzz", "conformance.report"),
    ("conformance.commands",),
    ("conformance",),
)
"""Folders and modules from the lowest layer to the highest. A name stands for all that it contains and no other name does;
``onnx_models.*`` for the modules of the folder itself, ``onnx_models`` for its public names and its command line."""

ONLY = {"onnx_models.gradient": "onnx_models.gradient.ours"}
"""By package, its only module that imports `ortops`."""


def _modules() -> dict[str, Path]:
    files = (file for package in (*PACKAGES, "benchmarks") for file in (ROOT / package).rglob("*.py"))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


MODULES = _modules()


def _imports(module: str) -> Iterator[str]:
    """The modules of this project that a module imports, also in functions and for types."""
    for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            names = [name if (name := f"{node.module}.{a.name}") in MODULES else str(node.module) for a in node.names]
        yield from (name for name in names if name in MODULES)


@functools.cache
def imports() -> dict[str, set[str]]:
    return {module: set(_imports(module)) - {module} for module in MODULES}


def _layer(module: str) -> int:
    known = {name: i for i, names in enumerate(LAYERS) for name in names}
    parent = module.rpartition(".")[0]
    is_own = MODULES[module].name not in ("__init__.py", "__main__.py")
    if is_own and module not in known and f"{parent}.*" in known:
        return known[f"{parent}.*"]
    while module not in known:
        module = module.rpartition(".")[0]
    return known[module]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_run_down_the_layers(package: str) -> None:
    arrows = ((one, other) for one in MODULES if one.split(".")[0] == package for other in imports()[one])
    upward = [f"{one} imports {other}" for one, other in arrows if _layer(other) > _layer(one)]
    assert upward == []


def test_the_engine_knows_operators_by_their_definitions_alone() -> None:
    imported = {other for one, others in imports().items() if one.startswith("ortops.engine") for other in others}
    below = (
        *(
            "ortops.compute",
            "ortops.engine",
            "ortops.exceptions",
            "ortops.forks",
            "ortops.memory",
            "ortops.native",
            "ortops.runtime",
        ),
        *("ortops.shapes", "ortops.spec"),
    )
    assert [name for name in imported if not name.startswith(below)] == []
    engine = (path for module, path in MODULES.items() if module.startswith("ortops.engine"))
    assert [path.name for path in engine if "roi" in path.read_text("utf-8").lower()] == []


def test_the_suite_has_eight_floors_and_no_folder_imports_its_neighbour() -> None:
    assert sum(names[0].startswith("conformance") for names in LAYERS) <= 8
    rooms = {module: ".".join(module.split(".")[:2]) for module in MODULES if module.startswith("conformance.")}
    neighbours = [
        f"{module} imports {other}"
        for module, room in rooms.items()
        for other in imports()[module] & rooms.keys()
        # Files of the suite's own folder make one room on each floor.
        if room != rooms[other] and _layer(module) == _layer(other)
        if "__init__.py" in (MODULES[room].name, MODULES[rooms[other]].name)
    ]
    assert neighbours == []


def test_every_layer_has_modules() -> None:
    assert {_layer(module) for module in MODULES if module.split(".")[0] in PACKAGES} == set(range(len(LAYERS)))


@pytest.mark.parametrize("package", ONLY)
def test_one_module_of_a_package_imports_ortops(package: str) -> None:
    own = (module for module in MODULES if module.startswith(f"{package}."))
    assert {one for one in own if any(other.split(".")[0] == "ortops" for other in imports()[one])} == {ONLY[package]}


@pytest.mark.parametrize("package", [*PACKAGES, "benchmarks"])
def test_modules_of_a_package_import_each_other_in_no_circle(package: str) -> None:
    own = {one for one in MODULES if one.split(".")[0] == package}
    TopologicalSorter({one: imports()[one] & own for one in own}).prepare()
