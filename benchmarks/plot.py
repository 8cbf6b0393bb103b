"""Draw the sweeps: a row of panels for each operation, a column for each sweep. Needs the extra `bench`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from benchmarks.measure import FLOOR, OURS, Cell
from benchmarks.report import Run
from benchmarks.sweeps import BASE, Point

FORMATS = tuple(FigureCanvasAgg.get_supported_filetypes())

_STYLES: dict[str, dict[str, Any]] = {
    OURS: {"color": "C0", "linewidth": 2.0},
    FLOOR: {"color": "0.6", "linestyle": ":"},
}
_COLOURS = tuple(f"C{number}" for number in range(1, 10))


def draw(run: Run, file: Path) -> None:
    """Write the plot. The numbers at a peer's points are multiples of our time."""
    operations = list(dict.fromkeys(cell.operation for _, _, cell in run.swept))
    sweeps = list(dict.fromkeys(sweep for sweep, _, _ in run.swept))
    figure = Figure(figsize=(3.6 * len(sweeps), 0.8 + 2.8 * len(operations)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(operations), len(sweeps), squeeze=False)
    for i, operation in enumerate(operations):
        for j, sweep in enumerate(sweeps):
            chosen = [(point, cell) for s, point, cell in run.swept if s == sweep and cell.operation == operation]
            _panel(axes[i][j], chosen, run.peers)
            axes[i][j].set_xlabel(sweep.name)
        axes[i][0].set_ylabel(f"{operation}, ms")
    handles = {str(line.get_label()): line for panel in figure.axes for line in panel.lines}
    figure.legend(handles.values(), handles.keys(), loc="outside upper right", ncols=len(handles))
    figure.suptitle(f"{_base()}\n{run.machine['cpu']}, {run.machine['cpus']} CPUs", x=0.01, ha="left", fontsize=9)
    figure.savefig(file)


def _base() -> str:
    facts = ", ".join(f"{name} {value}" for name, value in BASE.facts.items())
    return f"{facts}; one of them varied"


def _panel(axes: Any, points: Sequence[tuple[Point, Cell]], peers: Sequence[str]) -> None:
    for name in (FLOOR, *peers, OURS):
        measured = [(point.value, cell) for point, cell in points if name in cell.times]
        if not measured:
            continue
        style = _STYLES.get(name) or {"color": _COLOURS[peers.index(name)]}
        values, times = zip(*((value, cell.median(name) * 1e3) for value, cell in measured), strict=True)
        axes.plot(values, times, marker="o", markersize=3, label=name, **style)
        if name in peers:
            # Peers often have similar times, so their numbers are above and below the line in turn.
            offset = 4 if peers.index(name) % 2 else -10
            look = {"color": style["color"], "fontsize": 7}
            for (value, cell), height in zip(measured, times, strict=True):
                text = f"{cell.ratio(name, OURS):.1f}"
                axes.annotate(text, (value, height), (0, offset), textcoords="offset points", ha="center", **look)
    axes.set(xscale="log", yscale="log")
    ticks = [point.value for point, _ in points]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(tick) for tick in ticks])
    axes.margins(y=0.2)
