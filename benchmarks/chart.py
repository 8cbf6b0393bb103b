"""A bar chart of the tables: how many times longer ONNX Runtime's own RoiAlign takes. Needs the extra `bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from benchmarks.bench import FLOAT, OURS, Cell
from benchmarks.workloads import IN_MODEL, PYRAMIDS

INCH = 72
"""The points of an inch; a point has 4/3 pixels."""

WIDTH = 600
"""The width of a picture in points: the 800 pixels of a README on GitHub."""


@dataclass(frozen=True)
class Theme:
    """Colours that are legible on the background of one of GitHub's themes. `bars`: of few and of many threads."""

    text: str
    muted: str
    lines: str
    bars: tuple[str, str]


THEMES = {
    "light": Theme("#1f2328", "#59636e", "#d1d9e0", ("#0969da", "#66b3ff")),
    "dark": Theme("#f0f6fc", "#9198a1", "#3d444d", ("#58a6ff", "#2a66b8")),
}

PEER = "onnxruntime"

PANELS = {"avg": "Average", "max": "Maximum", IN_MODEL: "Average, inside a model"}
"""Headings of the panels, by operation."""

TITLE = "How many times longer ONNX Runtime's own RoiAlign takes than ortops"

_PYRAMID_NAMES = {pyramid.name for pyramid in PYRAMIDS}

# In points.
_HEADING_HEIGHT, _ROW_HEIGHT, _CAPTION_HEIGHT, _LABEL_WIDTH, _MARGIN = 62, 30, 34, 148, 6


def draw(where: Mapping[str, Any], measured: Sequence[Cell], file: Path) -> list[Path]:
    """Write the chart as FILE-light.svg and FILE-dark.svg, for GitHub's two themes, and return their paths.

    The same measurements give the same bytes with the same version of matplotlib.

    Args:
        where: the machine and the versions (`benchmarks.report.machine`).
        measured: cells; those of other operations and peers are not shown.
        file: a path that ends in .svg; "-light" and "-dark" are inserted before the suffix.

    Raises:
        ValueError: there are no times of `PEER` for an operation of `PANELS`.
    """
    cells = [cell for cell in measured if _is_shown(cell)]
    if not cells:
        raise ValueError(f"the chart shows {', '.join(PANELS)} in {FLOAT} and of {PEER}, but none was measured")
    versions = ", ".join(f"{name} {where['packages'][name]}" for name in (OURS, PEER, "numba", "numpy"))
    caption = f"Medians of calls in float32 on {where['cpu']}, {where['cpus']} CPUs.\n{versions}."
    files = []
    # One name of a font, since every text has all of them; a fixed salt gives every element the same id each time.
    fixed: Any = {"font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"]}
    fixed |= {"svg.fonttype": "none", "svg.hashsalt": "ortops"}
    with mpl.rc_context(fixed):
        for name, theme in THEMES.items():
            files.append(file.with_name(f"{file.stem}-{name}{file.suffix}"))
            metadata = {"Title": TITLE, "Date": None, "Creator": None}
            _figure(cells, caption, theme).savefig(files[-1], format="svg", transparent=True, metadata=metadata)
    return files


def _is_shown(cell: Cell) -> bool:
    if cell.operation not in PANELS or cell.element_type != FLOAT or PEER not in cell.times:
        return False
    # The levels of a pyramid are parts of its sum.
    return cell.operation != IN_MODEL or cell.workload.name in _PYRAMID_NAMES


def _figure(cells: Sequence[Cell], caption: str, theme: Theme) -> Figure:
    workloads = {cell.workload.name: cell.workload.facts for cell in cells}
    operations = [name for name in PANELS if any(cell.operation == name for cell in cells)]
    threads = sorted({cell.threads for cell in cells})
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
        _bars(axes, [cell for cell in cells if cell.operation == operation], list(workloads), colours, theme)
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
    cells: Sequence[Cell],
    workloads: Sequence[str],
    colours: Mapping[int, str],
    theme: Theme,
) -> None:
    """Draw a row of bars for each workload, one bar for each thread count in `colours`."""
    thickness = 0.72 / len(colours)
    place = {"textcoords": "offset points", "va": "center_baseline"}
    for i, (threads, colour) in enumerate(colours.items()):
        for cell in cells:
            if cell.threads == threads:
                ratio = cell.median(PEER) / cell.median(OURS)
                y = workloads.index(cell.workload.name) + (i - (len(colours) - 1) / 2) * thickness
                axes.barh(y, ratio, thickness * 0.92, color=colour)
                axes.annotate(f"{ratio:.1f}", (ratio, y), (3, 0), fontsize=7.5, color=theme.text, **place)
    axes.axvline(1, color=theme.muted, linewidth=0.8, linestyle=(0, (2, 2)))
    axes.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
    for name, spine in axes.spines.items():
        spine.set(visible=name == "left", color=theme.lines)
