# SPDX-License-Identifier: MIT
"""The README's picture: how many times longer ONNX Runtime's own RoiAlign takes. Needs the extra `bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.measure import Cell

PEER = "onnxruntime"
PANELS = {
    ("roi-align", "average"): "Average",
    ("roi-align", "max"): "Maximum",
    ("in-model", "RoiAlign"): "Average, inside a model",
}
"""The titles of the panels by comparison and operation."""

GREY = "#808890"
"""The colour of the texts, which is legible on light and on dark pages."""


def draw(machine: Mapping[str, Any], cells: Sequence[Cell], file: Path) -> None:
    """Write the picture of cells of `PANELS` with times of `PEER`; machine: `benchmarks.report.machine`."""
    versions = ", ".join(f"{name} {machine['packages'][name]}" for name in ("ortops", PEER, "numba"))
    colours = dict.fromkeys(("text.color", "axes.edgecolor", "xtick.color", "ytick.color"), GREY)
    with mpl.rc_context({**colours, "font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "ortops"}):
        figure = Figure((8.3, 4), layout="constrained")
        figure.suptitle("How many times longer ONNX Runtime's own RoiAlign takes than ortops", weight="bold")
        figure.supxlabel(f"{machine['cpu']}, {machine['cpus']} CPUs; {versions}", fontsize=7)
        panels = figure.subplots(1, len(PANELS), sharex=True)
        for (panel, title), axes in zip(PANELS.items(), panels, strict=True):
            measured = [cell for cell in cells if (cell.comparison, cell.operation) == panel and PEER in cell.times]
            names = list(dict.fromkeys(cell.workload for cell in measured))
            for i, threads in enumerate(sorted({cell.threads for cell in measured})):
                shown = [cell for cell in measured if cell.threads == threads]
                places = [names.index(cell.workload) + 0.4 * i for cell in shown]
                bars = axes.barh(places, [cell.ratio(PEER) for cell in shown], 0.36, label=f"threads: {threads}")
                axes.bar_label(bars, fmt="%.1f", padding=2)
            axes.set_title(title, loc="left")
            axes.set_yticks([place + 0.2 for place in range(len(names))], names)
            axes.tick_params(bottom=False, labelbottom=False, left=False)
            axes.spines[["top", "right", "bottom"]].set_visible(False)
            axes.axvline(1, color=GREY, linewidth=0.6, linestyle=":")
            axes.margins(x=0.2)
            axes.invert_yaxis()
        panels[0].legend(frameon=False, loc="lower right")
        figure.savefig(file, metadata={"Date": None, "Creator": None}, transparent=True)
