"""The tables of docs/performance.md, made from reports, so that nobody edits figures by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.measure import FLOOR, OURS
from benchmarks.operations import IN_MODEL, WITH_CONVERSIONS

Report = Mapping[str, Any]
Cell = Mapping[str, Any]
Cells = dict[tuple[str, str, int], Cell]
Rows = list[list[str]]

PEERS = ("onnxruntime", "openvino")

# The headings of the tables.
_FACTS = ("RoIs", "bins", "samples", "threads")
_AVERAGE = ("average", "times the floor", "onnxruntime", "OpenVINO")
_ROI_ALIGN = ("workload", "X", *_FACTS, *_AVERAGE, "max", "onnxruntime", "dX", "drois")
_ALONE, _CONVERTED = ("RoiAlign", "onnxruntime", "OpenVINO"), ("with conversions", "onnxruntime", "OpenVINO")
_IN_MODEL = ("model", "X of RoiAlign", *_FACTS, *_ALONE, *_CONVERTED)
_OTHERS = ("operation", "workload", "threads", "ortops", "onnxruntime", "OpenVINO", "loops")
_TYPES = ("operation", "workload", "threads", "float", "float16", "bfloat16", "double")

_TEXT = {"workload", "X", "model", "X of RoiAlign", "operation"}
"""The headings of columns of words."""

_NAMES = {"avg": "average"}
_IN_ROI_ALIGN = ("avg", "max", "dX", "drois")


def tables(report: Report) -> list[str]:
    """Return the tables for which a report has times, in Markdown.

    Args:
        report: what `benchmarks.report.to_json` writes, as parsed JSON.

    Raises:
        ValueError: it has none of them, or is not such a report.
    """
    makers: tuple[tuple[tuple[str, ...], Callable[[Report], Rows]], ...] = (
        (_ROI_ALIGN, _roi_align),
        (_TYPES, _types),
        (_IN_MODEL, _in_model),
        (_OTHERS, _others),
    )
    try:
        made = [_markdown(headings, rows) for headings, make in makers if (rows := make(report))]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"must be one that `python -m benchmarks --json` wrote ({error!r})") from error
    if not made:
        raise ValueError("has no times for a table")
    return made


def replaced(document: str, made: Iterable[str]) -> str:
    """Return a document with tables in place of those that have the same headings.

    Raises:
        ValueError: the document does not have exactly one table with the headings of a table.
    """
    for table in made:
        heading = table.partition("\n")[0]
        old = re.findall(rf"^{re.escape(heading)}\n(?:\|.*\n)*", document, re.MULTILINE)
        if len(old) != 1:
            raise ValueError(f"must have one table with the headings {heading}, not {len(old)}")
        document = document.replace(old[0], f"{table}\n")
    return document


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rules = ["---" if heading in _TEXT else "---:" for heading in headings]
    return "\n".join(
        "|" + "|".join(f" {text} " if text else " " for text in line) + "|" for line in (headings, rules, *rows)
    )


def _cells(report: Report, element_type: str) -> Cells:
    return {
        (cell["operation"], cell["workload"], cell["threads"]): cell
        for cell in report["cells"]
        if cell["element_type"] == element_type
    }


def _order(cells: Cells, operations: Sequence[str]) -> list[tuple[str, str, int]]:
    """Return the keys of the cells of operations: by operation, then by workload, then by threads."""
    workloads = list(dict.fromkeys(workload for operation, workload, _ in cells if operation in operations))
    return sorted(
        (key for key in cells if key[0] in operations),
        key=lambda key: (operations.index(key[0]), workloads.index(key[1]), key[2]),
    )


def _roi_align(report: Report) -> Rows:
    cells, rows, before = _cells(report, "float"), [], ""
    for key in _order(cells, ["avg"]):
        average, highest, dx, drois = (cells.get((name, *key[1:])) for name in _IN_ROI_ALIGN)
        times = [_ours(average), _over_floor(average), *(_peer(average, peer) for peer in PEERS)]
        times += [_ours(highest), _peer(highest, "onnxruntime"), _ours(dx), _ours(drois)]
        rows.append([*_facts(key, cells[key], before), *times])
        before = key[1]
    return rows


def _in_model(report: Report) -> Rows:
    cells, rows, before = _cells(report, "float"), [], ""
    for key in _order(cells, [IN_MODEL.name]):
        both = (cells[key], cells.get((WITH_CONVERSIONS.name, *key[1:])))
        times = [text for cell in both for text in (_ours(cell), *(_peer(cell, peer) for peer in PEERS))]
        rows.append([*_facts(key, cells[key], before), *times])
        before = key[1]
    return rows


def _others(report: Report) -> Rows:
    cells, rows, before = _cells(report, "float"), [], ("", "")
    elsewhere = {*_IN_ROI_ALIGN, IN_MODEL.name, WITH_CONVERSIONS.name}
    for key in _order(cells, [name for name in dict.fromkeys(key[0] for key in cells) if name not in elsewhere]):
        times = [_ours(cells[key]), *(_peer(cells[key], peer) for peer in (*PEERS, "loops"))]
        rows.append([*(key[:2] if key[:2] != before else ("", "")), str(key[2]), *times])
        before = key[:2]
    return rows


def _types(report: Report) -> Rows:
    by_type = [_cells(report, name) for name in _TYPES[4:]]
    cells: Cells = {key: cell for some in by_type for key, cell in some.items()}
    rows, before = [], ("", "")
    for key in _order(cells, _IN_ROI_ALIGN):
        operation, workload, threads = key
        # Each type was measured in turn with float.
        measured = [_median(some[key], "float") for some in by_type if key in some]
        labels = [
            _NAMES.get(operation, operation) if operation != before[0] else "",
            workload if key[:2] != before else "",
        ]
        times = [_short(median(measured) * 1e3), *(_ours(some.get(key), "float") for some in by_type)]
        rows.append([*labels, str(threads), *times])
        before = key[:2]
    return rows


def _facts(key: tuple[str, str, int], cell: Cell, before: str) -> list[str]:
    """Return the first columns; a workload is described once."""
    _, workload, threads = key
    described = [workload, *(cell["facts"][name] for name in ("X", *_FACTS[:-1]))]
    return [*(described if workload != before else [""] * len(described)), str(threads)]


def _ours(cell: Cell | None, beside: str | None = None) -> str:
    """Return our time, and as a multiple of another one."""
    if cell is None:
        return ""
    ratio = "" if beside is None else f" ({_multiple(_median(cell, OURS) / _median(cell, beside))})"
    return _ms(cell, OURS) + ratio


def _over_floor(cell: Cell | None) -> str:
    return "" if cell is None else _short(_median(cell, OURS) / _median(cell, FLOOR))


def _peer(cell: Cell | None, peer: str) -> str:
    """Return the time of a peer, and as a multiple of ours."""
    if cell is None or peer not in cell["seconds"]:
        return ""
    return f"{_ms(cell, peer)} ({_multiple(_median(cell, peer) / _median(cell, OURS))})"


def _median(cell: Cell, name: str) -> float:
    seconds: float = cell["seconds"][name]["median"]
    return seconds


def _ms(cell: Cell, name: str) -> str:
    return _short(_median(cell, name) * 1e3)


def _multiple(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 0.995 else f"{ratio:.1f}"


def _short(value: float) -> str:
    """Return a number with two digits, or with those before its point."""
    return f"{value:.2f}" if value < 0.995 else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
