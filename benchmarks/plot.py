"""Draw the sweeps: a row of panels for each operation, a column for each sweep. Needs the extra `bench`.

Each panel has the measured times, the floor of copying, and the line of the model that is fitted to all panels of a row
(`cost_model`). The colour of a point says what limits that call by the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from benchmarks import cost_model, themes
from benchmarks.cost_model import LIMITS, Model, Work
from benchmarks.measure import FLOOR, OURS
from benchmarks.sweeps import BASE, sweeps
from benchmarks.themes import INCH, WIDTH, Theme

FORMATS = tuple(FigureCanvasAgg.get_supported_filetypes())

TITLE = "How the time of a call grows"

_NAMES = {"avg": "average", "max": "maximum"}
"""Operations whose names are not words."""

_MARKERS = "s^DvPX"
"""The markers of peers."""

_PANEL_HEIGHT, _HEADING_HEIGHT, _CAPTION_HEIGHT = 118, 54, 62

_BASE_VALUES = {
    sweep.name: next(one.value for one in sweep.points if replace(one.workload, name=BASE.name) == BASE)
    for sweep in sweeps()
}
"""The value of each sweep that the base has."""

_Cells = Sequence[Mapping[str, Any]]


def draw(report: Mapping[str, Any], file: Path) -> None:
    """Draw what `benchmarks.report.to_data` returns, in any format of matplotlib, on white."""
    _figure(report, themes.THEMES["light"]).savefig(file, dpi=150)


def draw_themes(report: Mapping[str, Any], file: Path) -> list[Path]:
    """Draw a report as FILE-light.svg and FILE-dark.svg, for GitHub's two themes, and return their paths.

    Args:
        report: what `benchmarks.report.to_json` writes, as parsed JSON.
        file: a path that ends in .svg; "-light" and "-dark" are inserted before the suffix.

    Raises:
        ValueError: the report has no sweeps, or is not such a report.
    """
    try:
        if not report["swept"]:
            raise ValueError("must have sweeps, as `python -m benchmarks growth --json` writes them")
        return themes.save(lambda theme: _figure(report, theme), TITLE, file)
    except (KeyError, TypeError) as error:
        raise ValueError(f"must be one that `python -m benchmarks growth --json` wrote ({error!r})") from error


def _figure(report: Mapping[str, Any], theme: Theme) -> Figure:
    swept, models = report["swept"], cost_model.models(report)
    operations = list(dict.fromkeys(cell["operation"] for cell in swept))
    names = list(dict.fromkeys(cell["sweep"] for cell in swept))
    peers = list(dict.fromkeys(peer for cell in swept for peer in cell["differences"] if peer in cell["seconds"]))
    height = _HEADING_HEIGHT + _PANEL_HEIGHT * len(operations) + _CAPTION_HEIGHT
    figure = Figure(figsize=(WIDTH / INCH, height / INCH))
    FigureCanvasAgg(figure)
    box = {"left": 0.07, "right": 0.99, "bottom": _CAPTION_HEIGHT / height, "top": 1 - _HEADING_HEIGHT / height}
    panels = figure.subplots(
        len(operations),
        len(names),
        squeeze=False,
        sharex="col",
        sharey=True,
        gridspec_kw={"wspace": 0.12, "hspace": 0.1, **box},
    )
    for row, operation in zip(panels, operations, strict=True):
        for axes, sweep in zip(row, names, strict=True):
            cells = [cell for cell in swept if (cell["operation"], cell["sweep"]) == (operation, sweep)]
            _panel(axes, cells, peers, models.get(operation), report["machine"]["cpus"], theme)
        row[0].set_ylabel(f"{_NAMES.get(operation, operation)}, ms", fontsize=7.5, color=theme.text)
    for axes, sweep in zip(panels[-1], names, strict=True):
        axes.set_xlabel(sweep, fontsize=7.5, color=theme.text, labelpad=2)
    figure.text(6 / WIDTH, 1 - 8 / height, TITLE, va="top", fontsize=11, color=theme.text, weight="bold")
    handles = _legend(peers, bool(models), theme)
    look: dict[str, Any] = {"frameon": False, "fontsize": 7, "labelcolor": theme.text, "labelspacing": 0.3}
    look |= {"bbox_to_anchor": (0, 1 - 20 / height), "ncols": 5, "handlelength": 1.4, "columnspacing": 1.2}
    figure.legend(handles=handles, loc="upper left", **look)
    text = "\n".join([_base(swept), *_errors(models), themes.caption(report, peers, swept[0]["element_type"])])
    figure.text(6 / WIDTH, 4 / height, text, va="bottom", fontsize=6.5, linespacing=1.3, color=theme.muted)
    return figure


def _base(cells: _Cells) -> str:
    facts = [f"{name} {value}" for name, value in BASE.facts.items()]
    facts += sorted({f"threads {cell['threads']}" for cell in cells if cell["sweep"] != "threads"})
    return f"One size is varied at a time; the others are: {', '.join(facts)}. RoIs cover the same share of any map."


def _errors(models: Mapping[str, Model]) -> list[str]:
    """Return how well the models fit, in a line."""
    errors = [
        f"{model.median_error:.0%} for {_NAMES.get(operation, operation)}, {model.largest_error:.0%} at most"
        for operation, model in models.items()
    ]
    return [f"Median error of the model: {'; '.join(errors)}."] if errors else []


def _legend(peers: Sequence[str], has_models: bool, theme: Theme) -> list[Line2D]:
    def entry(label: str, **style: Any) -> Line2D:
        return Line2D([], [], label=label, **style)

    dots: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 4}
    handles = [
        *(entry(peer, **_peer_style(n, theme)) for n, peer in enumerate(peers)),
        entry("copying", **_floor_style(theme)),
    ]
    if not has_models:
        return [entry(OURS, color=theme.bars[0], **dots), *handles]
    return [
        *(
            entry(f"{OURS}, limited by {limit}", color=colour, **dots)
            for limit, colour in zip(LIMITS, theme.limits, strict=True)
        ),
        entry("model", **_model_style(theme)),
        entry("model, if each thread had a core", **_model_style(theme, "--")),
        *handles,
    ]


def _floor_style(theme: Theme) -> dict[str, Any]:
    return {"color": theme.muted, "linestyle": ":", "linewidth": 1}


def _model_style(theme: Theme, linestyle: str = "-") -> dict[str, Any]:
    return {"color": theme.text, "linestyle": linestyle, "linewidth": 0.8}


def _peer_style(number: int, theme: Theme) -> dict[str, Any]:
    marker = {"marker": _MARKERS[number % len(_MARKERS)], "markersize": 2.5, "markerfacecolor": "none"}
    return {"color": theme.muted, "linewidth": 0.6, "markeredgewidth": 0.6, **marker}


def _panel(axes: Any, cells: _Cells, peers: Sequence[str], model: Model | None, cores: int, theme: Theme) -> None:
    places = _places([cell["value"] for cell in cells])
    for number, name in enumerate([*peers, FLOOR]):
        measured = [(places[cell["value"]], cell) for cell in cells if name in cell["seconds"]]
        style = _floor_style(theme) if name == FLOOR else _peer_style(number, theme)
        axes.plot([x for x, _ in measured], [_ms(cell, name) for _, cell in measured], **style)
    if model is not None:
        _model_lines(axes, cells, places, model, theme)
    points: dict[str, list[tuple[float, float]]] = {}
    for cell in cells:
        limit = model.limit(Work(**cell["work"]), cell["threads"]) if model is not None and cell["work"] else ""
        colour = dict(zip(LIMITS, theme.limits, strict=True)).get(limit, theme.bars[0])
        points.setdefault(colour, []).append((places[cell["value"]], _ms(cell, OURS)))
    for colour, some in points.items():
        axes.plot(*zip(*some, strict=True), "o", markersize=3, markeredgewidth=0, color=colour)
    if cells[0]["sweep"] == "threads":
        axes.axvline(cores, color=theme.lines, linewidth=0.8)
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 6, "va": "top"}
        axes.annotate(f"{cores} cores", (cores, 1), (2, -2), color=theme.muted, **place)
    axes.set(xscale="log", yscale="log")
    _ticks(axes, places, cells[0]["sweep"], theme)


def _model_lines(axes: Any, cells: _Cells, places: Mapping[int, float], model: Model, theme: Theme) -> None:
    """Draw the model on this machine and, beyond its cores, on one with a core for each thread."""
    counted = [(places[cell["value"]], Work(**cell["work"]), cell["threads"]) for cell in cells if cell["work"]]
    for is_larger in (False, True):
        shown = [(x, work, n) for x, work, n in counted if not is_larger or n >= model.cores]
        if not is_larger or len(shown) > 1:
            times = [model.seconds(work, n, max(n, model.cores) if is_larger else None) * 1e3 for _, work, n in shown]
            axes.plot([x for x, _, _ in shown], times, **_model_style(theme, "--" if is_larger else "-"))


def _places(values: Sequence[int]) -> dict[int, float]:
    """Return where the points are; 0, which is a choice by size, is behind the others."""
    return {value: value or 2.0 * max(values) for value in values}


def _ticks(axes: Any, places: Mapping[int, float], sweep: str, theme: Theme) -> None:
    """Label the first point, that of the base and the last, and one in the middle where they are far apart."""
    values = sorted(places, key=lambda value: places[value])
    positions = np.log([places[value] for value in values])
    shown = sorted({0, len(values) - 1, *(n for n, value in enumerate(values) if value == _BASE_VALUES.get(sweep))})
    for begin, end in pairwise(shown):
        if positions[end] - positions[begin] > 0.6 * np.ptp(positions):
            shown.append(int(np.abs(positions - (positions[begin] + positions[end]) / 2).argmin()))
    axes.xaxis.set_major_locator(FixedLocator([places[values[n]] for n in shown]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(values[n]) if values[n] else "size" for n in shown])
    axes.yaxis.set_major_locator(LogLocator(numticks=12))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.tick_params(labelsize=6.5, colors=theme.muted, left=False, bottom=False, pad=2)
    axes.grid(axis="y", color=theme.lines, linewidth=0.4)
    for name, spine in axes.spines.items():
        spine.set(visible=name in ("left", "bottom"), color=theme.lines)


def _ms(cell: Mapping[str, Any], name: str) -> float:
    median: float = cell["seconds"][name]["median"]
    return median * 1e3
