"""Pictures of how the cost grows, and the tables of docs/performance.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from benchmarks import __main__ as command
from benchmarks import cost_model, counts, documented_tables
from benchmarks.cost_model import LIMITS, TERMS, Work, amounts
from benchmarks.sweeps import NAMES, Point, Sweep, sweeps
from benchmarks.workloads import Workload

TINY = Workload("tiny", (1, 20, 12, 40), 5, 3, 2, 1 / 2, (4, 40))
ROOT = Path(__file__).parents[1]

COSTS = (5e-5, 2e-8, 8e-8, 5e-10, 6e-11, 1e-10, 3e-11, 2e-11, 3e-11, 1e-5)
"""Those of the model that gives the times of `growth_report`."""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, list(arguments))


def growth_report(cores: int = 2) -> dict[str, Any]:
    """A report of all sweeps as `growth --json` writes it, with the times of a model."""
    swept = []
    for operation, sweep in product(("avg", "dX"), sweeps()):
        for point in sweep.points:
            work, threads = (
                counts.work(operation, replace(point.workload, rois=min(point.workload.rois, 100))),
                point.threads or 1,
            )
            assert work is not None
            ours = float(amounts(work, threads, cores) @ COSTS)
            seconds = {"ortops": ours, "copy": ours / 3} | ({"onnxruntime": 9 * ours} if operation == "avg" else {})
            cell = {
                "operation": operation,
                "workload": point.workload.name,
                "facts": point.workload.facts,
                "element_type": "float",
                "threads": threads,
                "seconds": {name: {"median": one} for name, one in seconds.items()},
                "differences": {"onnxruntime": {}} if operation == "avg" else {},
            }
            swept.append({"sweep": sweep.name, "value": point.value, "work": asdict(work), **cell})
    packages = {"ortops": "0.1", "onnxruntime": "1.2", "numpy": "2.3"}
    return {"machine": {"cpu": "A <processor>", "cpus": cores}, "packages": packages, "cells": [], "swept": swept}


def texts(file: Path) -> list[str]:
    tree = ET.parse(file)  # noqa: S314 - we wrote it
    assert tree.getroot().get("width") == "600pt"
    return [text.strip() for text in tree.getroot().itertext() if text.strip()]


def draw(report: Mapping[str, Any], folder: Path) -> tuple[Path, Path]:
    pytest.importorskip("matplotlib")
    file = folder / "report.json"
    file.write_text(json.dumps(report), "utf-8")
    result = run("draw", str(file), "--growth", str(folder / "growth.svg"))
    assert result.exit_code == 0, result.output
    return folder / "growth-light.svg", folder / "growth-dark.svg"


def test_growth_is_drawn_with_what_limits_each_point_and_the_errors_of_the_model(tmp_path: Path) -> None:
    light, dark = draw(growth_report(), tmp_path)
    shown = texts(light)
    assert {*NAMES, "average, ms", "dX, ms", "copying", "onnxruntime", "model", "2 cores", "10000", "size"} <= {*shown}
    assert {f"ortops, limited by {limit}" for limit in LIMITS} <= {*shown}
    assert "Median error of the model: 0% for average, 0% at most; 0% for dX, 0% at most." in shown
    assert "Medians of calls in float32 on A <processor>, 2 CPUs." in shown
    assert any("X 1x256x100x152, RoIs 100, bins 7, samples 2, threads 1." in text for text in shown)
    assert light.read_bytes() != dark.read_bytes()
    assert light.stat().st_size < 150_000
    first = light.read_bytes()
    assert draw(growth_report(), tmp_path)[0].read_bytes() == first


def test_a_sweep_alone_is_drawn_without_a_model(tmp_path: Path) -> None:
    report = growth_report()
    alone = {**report, "swept": [cell for cell in report["swept"] if cell["sweep"] == "threads"]}
    shown = texts(draw(alone, tmp_path)[0])
    assert {"threads", "ortops", "2 cores", "16"} <= {*shown}
    assert {"channels", "model"}.isdisjoint(shown)


@pytest.mark.parametrize(
    ("report", "message"),
    [({**growth_report(), "swept": []}, "must have sweeps"), ({}, "must be one that"), ([1], "must be one that")],
    ids=["none", "empty", "list"],
)
def test_a_report_without_growth_is_an_error(report: Any, message: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report), "utf-8")
    result = run("draw", str(file), "--growth", str(tmp_path / "growth.svg"))
    assert result.exit_code == 1
    assert message in result.output


def test_growth_is_measured_and_drawn_later_as_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    points = tuple(Point(n, replace(TINY, rois=n)) for n in (1, 5))
    made = (Sweep("RoIs", points), Sweep("threads", (Point(1, TINY, 1), Point(3, TINY, 3))))
    monkeypatch.setattr(command, "sweeps", lambda: made)
    file = tmp_path / "growth.json"
    result = run("growth", "--rounds", "1", "--json", str(file), "--chart", str(tmp_path / "now.svg"))
    assert result.exit_code == 0, result.output
    data = json.loads(file.read_text("utf-8"))
    assert [(cell["sweep"], cell["value"], cell["operation"], cell["threads"]) for cell in data["swept"]] == [
        (sweep.name, point.value, operation, point.threads or 1)
        for sweep in made
        for point in sweep.points
        for operation in ("avg", "dX")
    ]
    assert data["cells"] == []
    for cell, workload in zip(data["swept"][::2], [*(p.workload for p in points), TINY, TINY], strict=True):
        assert Work(**cell["work"]) == counts.average_work(workload)
        assert set(cell["seconds"]) == {"ortops", "copy", "onnxruntime"}
    assert data["models"] == {}
    result = run("draw", str(file), "--growth", str(tmp_path / "later.svg"))
    assert result.exit_code == 0, result.output
    for theme in ("light", "dark"):
        assert (tmp_path / f"now-{theme}.svg").read_bytes() == (tmp_path / f"later-{theme}.svg").read_bytes()


def test_sweeps_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = (Sweep("RoIs", (Point(5, TINY),)), Sweep("threads", (Point(3, TINY, 3),)))
    monkeypatch.setattr(command, "sweeps", lambda: made)
    file = tmp_path / "growth.json"
    chosen = ("--sweep", "threads", "--operation", "drois", "--type", "double")
    result = run("growth", *chosen, "--rounds", "1", "--json", str(file))
    assert result.exit_code == 0, result.output
    (cell,) = json.loads(file.read_text("utf-8"))["swept"]
    assert (cell["sweep"], cell["operation"], cell["element_type"], cell["threads"]) == (
        "threads",
        "drois",
        "double",
        3,
    )
    assert cell["work"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["growth", "--sweep", "none"], "--sweep"),
        (["growth", "--operation", "linear"], "--operation"),
        (["growth", "--chart", "growth.png"], "must end in .svg"),
        (["growth", "--json", "no/such/folder/run.json"], "is no folder"),
        (["types", "--json", "no/such/folder/run.json"], "is no folder"),
        (["draw", "REPORT", "--growth", "growth.png"], "must end in .svg"),
        (["draw", "REPORT"], "--chart or --growth"),
        (["tables"], "REPORT"),
        (["tables", "no-such-report.json"], "REPORT"),
    ],
)
def test_a_wrong_call_is_status_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}", "utf-8")
    result = run(*(str(tmp_path / "report.json") if argument == "REPORT" else argument for argument in arguments))
    assert result.exit_code == 2
    assert message in result.output


def cell(
    operation: str, workload: str, threads: int, seconds: Mapping[str, float], kind: str = "float"
) -> dict[str, Any]:
    return {
        "operation": operation,
        "workload": workload,
        "threads": threads,
        "element_type": kind,
        "facts": {"X": "1x2x3x4", "RoIs": "5", "bins": "7", "samples": "by size"},
        "seconds": {name: {"median": one / 1e3} for name, one in seconds.items()},
    }


PEERS = {"onnxruntime": 30.0, "openvino": 0.5}
TABLES = {
    "machine": {"cpus": 2},
    "cells": [
        *(cell("avg", "P2", n, {"ortops": 4 / n, "copy": 2, **PEERS}) for n in (1, 2)),
        *(cell("max", "P2", n, {"ortops": 9.96, "copy": 2, **PEERS}) for n in (1, 2)),
        *(cell("dX", "P2", n, {"ortops": 0.996, "copy": 2, "forward": 1}) for n in (1, 2)),
        cell("avg", "mask", 1, {"ortops": 0.06, "copy": 2}),
        cell("in-model", "FPN", 1, {"ortops": 10, **PEERS}),
        cell("in-model", "mask", 1, {"ortops": 10, "onnxruntime": 20}),
        cell("in-model with conversions", "FPN", 1, {"ortops": 20, **PEERS}),
        cell("in-model", "FPN", 2, {"ortops": 10, **PEERS}),
        *(cell("rotated", "P2 rotated", n, {"ortops": 20, "loops": 100}) for n in (1, 2)),
        cell("avg", "P2", 2, {"ortops": 3, "float": 4, "copy": 1}, "float16"),
        cell("avg", "P2", 2, {"ortops": 8, "float": 5, "copy": 1}, "double"),
        cell("drois", "P2", 2, {"ortops": 6, "float": 6, "copy": 1}, "bfloat16"),
    ],
}

MADE = [
    """\
| workload | X | RoIs | bins | samples | threads | average | times the floor | onnxruntime | OpenVINO | max | onnxruntime \
| dX | drois |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| P2 | 1x2x3x4 | 5 | 7 | by size | 1 | 4.0 | 2.0 | 30 (7.5) | 0.50 (0.12) | 10 | 30 (3.0) | 1.0 | |
| | | | | | 2 | 2.0 | 1.0 | 30 (15.0) | 0.50 (0.25) | 10 | 30 (3.0) | 1.0 | |
| mask | 1x2x3x4 | 5 | 7 | by size | 1 | 0.06 | 0.03 | | | | | | |""",
    """\
| operation | workload | threads | float | float16 | bfloat16 | double |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| average | P2 | 2 | 4.5 | 3.0 (0.75) | | 8.0 (1.6) |
| drois | P2 | 2 | 6.0 | | 6.0 (1.0) | |""",
    """\
| model | X of RoiAlign | RoIs | bins | samples | threads | RoiAlign | onnxruntime | OpenVINO | with conversions \
| onnxruntime | OpenVINO |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| FPN | 1x2x3x4 | 5 | 7 | by size | 1 | 10 | 30 (3.0) | 0.50 (0.05) | 20 | 30 (1.5) | 0.50 (0.03) |
| | | | | | 2 | 10 | 30 (3.0) | 0.50 (0.05) | | | |
| mask | 1x2x3x4 | 5 | 7 | by size | 1 | 10 | 20 (2.0) | | | | |""",
    """\
| operation | workload | threads | ortops | onnxruntime | OpenVINO | loops |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| rotated | P2 rotated | 1 | 20 | | | 100 (5.0) |
| | | 2 | 20 | | | 100 (5.0) |""",
]


def test_tables_of_the_documents_are_made_from_a_report() -> None:
    assert documented_tables.tables(TABLES) == MADE


def test_the_costs_of_the_model_are_a_table() -> None:
    (table,) = documented_tables.tables(growth_report())
    lines = table.splitlines()
    assert lines[:3] == ["| cost | unit | average | dX |", "| --- | --- | ---: | ---: |", "| a call | µs | 50 | 50 |"]
    assert "| a vector operation | ns | 0.50 | 0.50 |" in lines
    assert "| the map through panels | GB/s | 17 | 17 |" in lines
    assert lines[-2:] == ["| median error of the model | | 0% | 0% |", "| largest error of the model | | 0% | 0% |"]
    assert len(lines) == 2 + len(TERMS) + 2


def test_tables_are_printed_or_put_in_place_of_those_with_the_same_headings(tmp_path: Path) -> None:
    report, document = tmp_path / "report.json", tmp_path / "page.md"
    report.write_text(json.dumps(TABLES), "utf-8")
    assert run("tables", str(report)).output == "\n\n".join(MADE) + "\n"
    old = "\n\n".join("\n".join([*table.splitlines()[:2], "| old |"]) for table in MADE)
    document.write_text(f"# Page\n\n{old}\n\n| other |\n| --- |\n| kept |\n", "utf-8")
    result = run("tables", str(report), "--write", str(document))
    assert (result.exit_code, result.output) == (0, "")
    new = "\n\n".join(MADE)
    assert document.read_text("utf-8") == f"# Page\n\n{new}\n\n| other |\n| --- |\n| kept |\n"


@pytest.mark.parametrize(
    ("report", "document", "message"),
    [
        ({"cells": [], "machine": {"cpus": 1}}, "", "has no times for a table"),
        ({}, "", "must be one that"),
        ([], "", "must be one that"),
        (TABLES, "", "must have one table with the headings | workload"),
        (TABLES, "\n\n".join(2 * MADE), "not 2"),
    ],
    ids=["nothing", "empty", "list", "no table", "two tables"],
)
def test_tables_that_cannot_be_made_or_placed_are_an_error(
    report: Any, document: str, message: str, tmp_path: Path
) -> None:
    file, page = tmp_path / "report.json", tmp_path / "page.md"
    file.write_text(json.dumps(report), "utf-8")
    page.write_text(document, "utf-8")
    result = run("tables", str(file), "--write", str(page))
    assert result.exit_code == 1
    assert message in result.output.replace("\n", " ")
    assert page.read_text("utf-8") == document


def test_the_page_on_performance_has_all_these_tables() -> None:
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    made = [*MADE, *documented_tables.tables(growth_report())]
    assert all(table.splitlines()[-1] in documented_tables.replaced(page, made) for table in made)


def test_other_types_are_measured_beside_float_without_peers(tmp_path: Path) -> None:
    file = tmp_path / "types.json"
    result = run("types", "--workload", "one", "--threads", "1", "--rounds", "1", "--json", str(file))
    assert result.exit_code == 0, result.output
    data = json.loads(file.read_text("utf-8"))
    assert [(cell["operation"], cell["element_type"]) for cell in data["cells"]] == [
        (operation, kind) for operation in ("avg", "max", "dX", "drois") for kind in ("float16", "bfloat16", "double")
    ]
    assert all({"ortops", "float"} <= set(cell["seconds"]) for cell in data["cells"])
    (table,) = documented_tables.tables(data)
    assert len(table.splitlines()) == 2 + 4


def test_models_are_fitted_to_counted_cells_alone() -> None:
    report = growth_report()
    assert set(cost_model.models(report)) == {"avg", "dX"}
    for cell in report["swept"]:
        cell["work"] = None if cell["operation"] == "dX" else cell["work"]
    (operation,) = cost_model.models(report)
    assert operation == "avg"
