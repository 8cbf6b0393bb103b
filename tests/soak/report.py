"""What a soak says at its end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from .memory import LEAST_CALLS, WINDOWS, Growth, Sample
from .soak import Report

_MIB = 1 << 20


def write(report: Report, console: Console) -> None:
    """Write the report: calls and memory over time, what was wrong, and whether memory is flat."""
    console.print(_over_time(report))
    tally = report.tally
    console.print(
        f"{tally.calls} calls, of which {tally.refusals} were rightly refused and {tally.sessions} made sessions"
    )
    faults = ", ".join(f"{count} x {kind}" for kind, count in tally.faults.most_common())
    console.print(faults or "no wrong answer, missing refusal or unexpected error")
    for fault in tally.noted.values():
        console.print(f"  {fault.kind}: {fault.problem}: {fault.words}", markup=False)
    for growth in report.growths:
        console.print(_on_memory(growth))
    if not report.growths:
        console.print(f"of memory nothing can be said after fewer than {LEAST_CALLS} calls")


def _over_time(report: Report) -> Table:
    columns = ("seconds", "calls", "refusals", "sessions made", "MiB resident", "MiB handed out")
    table = Table(*columns, title="Since the start, and medians of memory between sessions")
    for part in np.array_split(np.array(report.samples, object), min(WINDOWS, len(report.samples))):
        last: Sample = part[-1]
        held = [sample.held for sample in part if sample.held is not None]
        counts = map(str, (last.calls, last.refusals, last.sessions))
        table.add_row(f"{last.seconds:.0f}", *counts, _mib([sample.resident for sample in part]), _mib(held))
    return table


def _mib(sizes: Sequence[int]) -> str:
    return f"{np.median(sizes) / _MIB:.1f}" if sizes else "unknown"


def _on_memory(growth: Growth) -> str:
    verdict = "is flat" if growth.is_flat else "is NOT flat"
    return (
        f"{growth.name} {verdict}: {growth.slope:+.0f} bytes for 1000 calls over the second half; the median of its "
        f"last quarter is {growth.rise / _MIB:+.2f} MiB above that of the one before, where {growth.most / _MIB:.2f} are "
        f"allowed, or {growth.noticeable:.0f} bytes for 1000 calls"
    )
