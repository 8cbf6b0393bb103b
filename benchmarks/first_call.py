"""What the first call of an operator costs in a fresh process, where compiled code is on disk and where none is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from tempfile import TemporaryDirectory

NAME = "first-call"

RUNS = 3
"""How many there are where nobody says: each compiles for some seconds."""


@dataclass(frozen=True)
class FirstCall:
    """A case of `fresh_process` in runs of two processes, which share a folder for compiled code that was empty.

    times: by column, the processor seconds in each run: `imports` alone; the imports and the first call of the first
        process, which has `nothing cached`, and of the second, for which all is `cached`; and of the first process alone
        its calls after that, with `one RoI` and with `other bins`.
    """

    case: str
    times: Mapping[str, list[float]]

    def median(self, column: str) -> float:
        """The median seconds."""
        return median(self.times[column])


def measure(case: str, runs: int | None = None) -> FirstCall:
    """Measure a case."""
    measured = [_run(case) for _ in range(runs or RUNS)]
    return FirstCall(case, {column: [run[column] for run in measured] for column in measured[0]})


def _run(case: str) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        first, second = _process(case, folder), _process(case, folder)
    return {
        "imports": second["imports"],
        "nothing cached": first["imports"] + first["first"],
        "cached": second["imports"] + second["first"],
        "one RoI": first["one RoI"],
        "other bins": first["other bins"],
    }


def _process(case: str, folder: str) -> dict[str, float]:
    answer = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", "benchmarks.fresh_process", case],
        env={**os.environ, "NUMBA_CACHE_DIR": folder},
        stdout=subprocess.PIPE,
        check=True,
    )
    seconds: dict[str, float] = json.loads(answer.stdout)
    return seconds
