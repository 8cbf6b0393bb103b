"""The tables of measurements, in Markdown, as docs/performance.md has them, and all measurements as JSON."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata, util
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bench import FLOAT, FLOOR, OURS, Cell
from benchmarks.workloads import IN_MODEL, WITH_CONVERSIONS
from ortops.jit.runners import available_cpus

PACKAGES = (OURS, "onnxruntime", "onnxruntime-extensions", "numba", "numpy", "openvino", "torch", "torchvision")

LEGEND = (
    "Milliseconds, medians of calls in turn, each twice in a row and the second timed; in brackets, multiples of ours.",
    "the floor: copying inputs and writing outputs once, with the same threads. RoIs may leave much of a map unread.",
    "RoiAlign, with conversions: its node in the runtime's profile of a model that computes X by convolution, and with what",
    "the runtime converts for it: the layout of X in onnxruntime, that of Y and the type of batch_indices in openvino.",
    "openvino: a compiled model that computes in float32; its calls copy neither inputs nor outputs.",
    "loops: plain loops over the samples of a RoI and then its channels, compiled by numba.",
    "torchvision, torch: for dX, only autograd's backward pass.",
)

_FACTS = ("X", "RoIs", "bins", "samples")
_TEXT = {"workload", "X", "model", "X of RoiAlign", "operation", "network"}
"""The headings of columns of words."""

_PEERS = ("onnxruntime", "openvino", "torchvision", "torch", "loops", "bodies")
_HEADINGS = {"openvino": "OpenVINO"}
_ROI_ALIGN = {"avg": "average", "max": "max", "dX": "dX", "drois": "drois"}
_IN_MODEL = {IN_MODEL: "RoiAlign", WITH_CONVERSIONS: "with conversions"}

_OPERATION = ("operation", "workload", "threads")

_Column = tuple[str, list[str]]


def machine() -> dict[str, Any]:
    """Return the processor, the number of CPUs of this process, the system, its present load, and versions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cpus": available_cpus(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "packages": {name: metadata.version(name) for name in PACKAGES if util.find_spec(name.replace("-", "_"))},
    }


def to_json(where: Mapping[str, Any], cells: Iterable[Cell]) -> str:
    """Return all measurements: {"machine", "cells": [{..., "seconds": {call: [each]}, "refused"}]}."""
    made = [
        {
            "operation": cell.operation,
            "workload": cell.workload.name,
            "facts": cell.workload.facts,
            "element_type": cell.element_type,
            "threads": cell.threads,
            "seconds": cell.times,
            "refused": cell.refused,
        }
        for cell in cells
    ]
    return json.dumps({"machine": where, "cells": made}, indent=1) + "\n"


def tables(measured: Sequence[Cell]) -> list[str]:
    """Return the tables for which there are cells: RoiAlign, other types, inside a model, and other operators."""
    in_float = [cell for cell in measured if cell.element_type == FLOAT]
    made = [
        _by_workload("workload", "X", in_float, _ROI_ALIGN),
        _by_type([cell for cell in measured if cell.element_type != FLOAT]),
        _by_workload("model", "X of RoiAlign", in_float, _IN_MODEL),
        _by_operation([cell for cell in in_float if cell.operation not in {**_ROI_ALIGN, **_IN_MODEL}]),
    ]
    return [table for table in made if table]


def replaced(document: str, made: Iterable[str]) -> str:
    """Return a document with tables in place of those whose headings begin in the same way.

    Raises:
        ValueError: the document does not have exactly one such table.
    """
    for table in made:
        # The peers' columns follow.
        heading = "|".join(table.split("|")[: 5 if table.startswith("| operation") else 3])
        old = re.findall(rf"^{re.escape(heading)}\|.*\n\|[ |:-]*\n(?:\|.*\n)*", document, re.MULTILINE)
        if len(old) != 1:
            raise ValueError(f"must have one table with the headings {heading}|, not {len(old)}")
        document = document.replace(old[0], f"{table}\n")
    return document


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    rules = ["---" if heading in _TEXT else "---:" for heading in headings]
    return "\n".join(
        "|" + "|".join(f" {text} " if text else " " for text in line) + "|" for line in (headings, rules, *rows)
    )


def _by_workload(first: str, x: str, cells: Sequence[Cell], operations: Mapping[str, str]) -> str:
    """Return a table with a row for each workload and number of threads, and columns for each operation."""
    found: dict[tuple[str, ...], dict[str, Cell]] = {}
    for name, cell in ((name, cell) for name in operations for cell in cells if cell.operation == name):
        facts = (cell.workload.facts[fact] for fact in _FACTS)
        found.setdefault((cell.workload.name, *facts, str(cell.threads)), {})[name] = cell
    columns = []
    for name, heading in operations.items():
        if any(name in own for own in found.values()):
            columns += _columns(heading, [own.get(name) for own in found.values()], with_floor=name == "avg")
    return _table([first, x, *_FACTS[1:], "threads"], list(found), columns)


def _by_operation(cells: Sequence[Cell]) -> str:
    """Return a table with a row for each operation, workload and number of threads."""
    cells = _grouped(cells)
    return _table(_OPERATION, [_label(cell) for cell in cells], _columns(OURS, cells))


def _by_type(cells: Sequence[Cell]) -> str:
    """Return a table of our times in float and in other types, each measured in turn with float."""
    found: dict[tuple[str, ...], dict[str, Cell]] = {}
    for cell in _grouped(cells):
        found.setdefault(_label(cell), {})[cell.element_type] = cell
    in_float = [_short(median(cell.median(FLOAT) for cell in own.values()) * 1e3) for own in found.values()]
    others = [
        (kind, [_with_ratio(own[kind], OURS, FLOAT) if kind in own else "" for own in found.values()])
        for kind in dict.fromkeys(cell.element_type for cell in cells)
    ]
    return _table(_OPERATION, list(found), [(FLOAT, in_float), *others])


def _grouped(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells by operation, in the order of the first of each."""
    operations = list(dict.fromkeys(cell.operation for cell in cells))
    return sorted(cells, key=lambda cell: operations.index(cell.operation))


def _label(cell: Cell) -> tuple[str, ...]:
    return (_ROI_ALIGN.get(cell.operation, cell.operation), cell.workload.name, str(cell.threads))


def _table(headings: Sequence[str], labels: Sequence[tuple[str, ...]], columns: Sequence[_Column]) -> str:
    """Return a table in Markdown, or "" without rows. Labels are not repeated but for their last part."""
    before = [(), *(label[:-1] for label in labels)]
    rows = [
        [*(label if label[:-1] != last else ["" for _ in last] + [label[-1]]), *texts]
        for label, last, *texts in zip(labels, before, *(texts for _, texts in columns), strict=False)
    ]
    return markdown([*headings, *(heading for heading, _ in columns)], rows) if rows else ""


def _columns(heading: str, cells: Sequence[Cell | None], *, with_floor: bool = False) -> list[_Column]:
    """Return the headings and texts of our times and of the peers that have any."""
    columns = [(heading, ["" if cell is None else _short(cell.median(OURS) * 1e3) for cell in cells])]
    if with_floor:
        floor = ["" if cell is None else _short(cell.median(OURS) / cell.median(FLOOR)) for cell in cells]
        columns.append(("times the floor", floor))
    for peer in _PEERS:
        texts = ["" if cell is None or peer not in cell.times else _with_ratio(cell, peer, OURS) for cell in cells]
        if any(texts):
            columns.append((_HEADINGS.get(peer, peer), texts))
    return columns


def _with_ratio(cell: Cell, name: str, base: str) -> str:
    """Return a time, and as a multiple of another one."""
    ratio = cell.median(name) / cell.median(base)
    return f"{_short(cell.median(name) * 1e3)} ({ratio:.{2 if ratio < 0.995 else 1}f})"


def _short(value: float) -> str:
    """Return a number with two digits, or with those before its point."""
    return f"{value:.{2 if value < 0.995 else 1 if value < 9.95 else 0}f}"
