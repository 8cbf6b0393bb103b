"""Pictures in the two themes of GitHub. Needs the extra `bench`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.measure import OURS
from ortops.spec import ELEMENT_DTYPES

INCH = 72
"""The points of an inch; a point has 4/3 pixels."""

WIDTH = 600
"""The width of a picture in points: the 800 pixels of a README on GitHub."""


@dataclass(frozen=True)
class Theme:
    """Colours that are legible on the background of one of GitHub's themes.

    bars: of few and of many threads. limits: of what limits a call, in the order of `cost_model.LIMITS`.
    """

    text: str
    muted: str
    lines: str
    bars: tuple[str, str]
    limits: tuple[str, ...]


THEMES = {
    "light": Theme(
        "#1f2328", "#59636e", "#d1d9e0", ("#0969da", "#66b3ff"), ("#8250df", "#bf8700", "#1a7f37", "#0969da")
    ),
    "dark": Theme(
        "#f0f6fc", "#9198a1", "#3d444d", ("#58a6ff", "#2a66b8"), ("#be8fff", "#e3b341", "#56d364", "#58a6ff")
    ),
}


def save(figure: Callable[[Theme], Figure], title: str, file: Path) -> list[Path]:
    """Write a figure as FILE-light.svg and FILE-dark.svg, and return their paths.

    The same figure gives the same bytes with the same version of matplotlib.
    """
    files = []
    # One name of a font, since every text has all of them; a fixed salt gives every element the same id each time.
    with (
        mpl.rc_context({"font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"]}),
        mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ortops"}),
    ):
        for name, theme in THEMES.items():
            files.append(file.with_name(f"{file.stem}-{name}{file.suffix}"))
            metadata = {"Title": title, "Date": None, "Creator": None}
            figure(theme).savefig(files[-1], format="svg", transparent=True, metadata=metadata)
    return files


def caption(report: Mapping[str, Any], peers: Sequence[str], element_type: str) -> str:
    """Return the machine and the versions of ours, of peers and of the packages that matter."""
    machine, packages = report["machine"], report["packages"]
    versions = ", ".join(f"{name} {packages[name]}" for name in (OURS, *peers, "numba", "numpy") if name in packages)
    calls = "single calls" if report.get("single") else "calls"
    dtype = np.dtype(ELEMENT_DTYPES[element_type]).name
    return f"Medians of {calls} in {dtype} on {machine['cpu']}, {machine['cpus']} CPUs.\n{versions}."
