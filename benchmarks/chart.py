"""A bar chart of the tables: how many times longer ONNX Runtime's own RoiAlign takes. Needs the extra `bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from benchmarks import themes
from benchmarks.measure import OURS
from benchmarks.operations import IN_MODEL
from benchmarks.themes import INCH, WIDTH, Theme
from benchmarks.workloads import PYRAMIDS

PEER = "onnxruntime"

ELEMENT_TYPE = "float"

PANELS = {"avg": "Average", "max": "Maximum", IN_MODEL.name: "Average, inside a model"}
"""Headings of the panels, by operation."""

TITLE = "How many times longer ONNX Runtime's own RoiAlign takes than ortops"

_PYRAMID_NAMES = {pyramid.name for pyramid in PYRAMIDS}

# In points.
_HEADING_HEIGHT, _ROW_HEIGHT, _CAPTION_HEIGHT, _LABEL_WIDTH, _MARGIN = 62, 30, 34, 148, 6


def draw(report: Mapping[str, Any], file: Path) -> list[Path]:
    """Write the chart as FILE-light.svg and FILE-dark.svg, for GitHub's two themes, and return their paths.

    The same report gives the same bytes with the same version of matplotlib.

    Args:
        report: what `benchmarks.report.to_json` writes, as parsed JSON.
        file: a path that ends in .svg; "-light" and "-dark" are inserted before the suffix.

    Raises:
        ValueError: the report has no times of `PEER` for an operation of `PANELS`, or is not such a report.
    """
    try:
        cells = [cell for cell in report["cells"] if _is_shown(cell)]
        caption = themes.caption(report, [PEER], ELEMENT_TYPE)
    except (KeyError, TypeError) as error:
        raise ValueError(f"must be one that `python -m benchmarks --json` wrote ({error!r})") from error
    if not cells:
        raise ValueError(f"must have times of {PEER} for {', '.join(PANELS)} in {ELEMENT_TYPE}")
    return themes.save(lambda theme: _figure(cells, caption, theme), TITLE, file)


def _is_shown(cell: Mapping[str, Any]) -> bool:
    if cell["operation"] not in PANELS or cell["element_type"] != ELEMENT_TYPE or PEER not in cell["seconds"]:
        return False
    # The levels of a pyramid are parts of its sum.
    return cell["operation"] != IN_MODEL.name or cell["workload"] in _PYRAMID_NAMES


def _figure(cells: Sequence[Mapping[str, Any]], caption: str, theme: Theme) -> Figure:
    workloads = {cell["workload"]: cell["facts"] for cell in cells}
    operations = [name for name in PANELS if any(cell["operation"] == name for cell in cells)]
    threads = sorted({cell["threads"] for cell in cells})
    # With more than two thread counts, only the fewest and the most are drawn.
    colours = dict(zip(dict.fromkeys((threads[0], threads[-1])), theme.bars, strict=False))
    height = _HEADING_HEIGHT + _ROW_HEIGHT * len(workloads) + _CAPTION_HEIGHT
    figure = Figure(figsize=(WIDTH / INCH, height / INCH))
    FigureCanvasSVG(figure)
    bottom, top = _CAPTION_HEIGHT / height, 1 - _HEADING_HEIGHT / height
    box = {"left": _LABEL_WIDTH / WIDTH, "right": 0.985, "bottom": bottom, "top": top}
    panels = figure.subplots(1, len(operations), sharex=True, sharey=True, squeeze=False, gridspec_kw=box)[0]
    for axes, operation in zip(panels, operations, strict=True):
        axes.set_title(PANELS[operation], fontsize=9, color=theme.text, loc="left", pad=6)
        _bars(axes, [cell for cell in cells if cell["operation"] == operation], list(workloads), colours, theme)
    _row_labels(panels[0], workloads, theme)
    # The numbers at the ends of the bars need room on the right.
    panels[0].set(ylim=(len(workloads) - 0.5, -0.5), xlim=(0, panels[0].get_xlim()[1] * 1.15))
    _heading(figure, height, colours, theme)
    x, y = _MARGIN / WIDTH, _MARGIN / height
    figure.text(x, y, caption, va="bottom", fontsize=7, linespacing=1.3, color=theme.muted)
    return figure


def _heading(figure: Figure, height: float, colours: Mapping[int, str], theme: Theme) -> None:
    """Write the title and the legend above the panels."""
    place: dict[str, Any] = {"va": "top", "fontsize": 9}
    figure.text(_MARGIN / WIDTH, 1 - 8 / height, TITLE, va="top", fontsize=11, color=theme.text, weight="bold")
    legend = [("■", colour, f"{count} {_plural('thread', count)}") for count, colour in colours.items()]
    for i, (symbol, colour, meaning) in enumerate([*legend, ("┊", theme.muted, "as long as ortops")]):
        x, y = _MARGIN + 72 * i, 1 - 27 / height
        figure.text(x / WIDTH, y, symbol, color=colour, **place)
        figure.text((x + 11) / WIDTH, y, meaning, color=theme.text, **place)


def _row_labels(axes: Any, workloads: Mapping[str, Mapping[str, str]], theme: Theme) -> None:
    """Write the names and sizes of the workloads to the left of the first panel."""
    place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "right"}
    for row, (name, facts) in enumerate(workloads.items()):
        sizes = f"{facts['RoIs']} {_plural('RoI', int(facts['RoIs']))} on {facts['X']}"
        axes.annotate(name, (0, row), (-6, 2), va="bottom", fontsize=9, color=theme.text, **place)
        axes.annotate(sizes, (0, row), (-6, -1), va="top", fontsize=7, color=theme.muted, **place)


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _bars(
    axes: Any,
    cells: Sequence[Mapping[str, Any]],
    workloads: Sequence[str],
    colours: Mapping[int, str],
    theme: Theme,
) -> None:
    """Draw a row of bars for each workload, one bar for each thread count in `colours`."""
    thickness = 0.72 / len(colours)
    place = {"textcoords": "offset points", "va": "center_baseline"}
    for i, (threads, colour) in enumerate(colours.items()):
        for cell in cells:
            if cell["threads"] == threads:
                ratio = cell["seconds"][PEER]["median"] / cell["seconds"][OURS]["median"]
                y = workloads.index(cell["workload"]) + (i - (len(colours) - 1) / 2) * thickness
                axes.barh(y, ratio, thickness * 0.92, color=colour)
                axes.annotate(f"{ratio:.1f}", (ratio, y), (3, 0), fontsize=7.5, color=theme.text, **place)
    axes.axvline(1, color=theme.muted, linewidth=0.8, linestyle=(0, (2, 2)))
    axes.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
    for name, spine in axes.spines.items():
        spine.set(visible=name == "left", color=theme.lines)
