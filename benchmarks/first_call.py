"""Measure the first call of an operator in a fresh process, with and without compiled code on disk."""

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
"""The default number of runs. Each compiles for some seconds."""


@dataclass(frozen=True)
class FirstCall:
    """A case of `fresh_process`, in runs of two processes that share an initially empty folder for compiled code.

    times: by column, the processor seconds in each run: `imports` alone; imports and the first call in the first process,
        with `nothing cached`, and in the second one, with all `cached`; and later calls in the first process, with
        `one RoI` and with `other bins`.
    """

    case: str
    times: Mapping[str, list[float]]

    def median(self, column: str) -> float:
        """Return the median seconds of a column."""
        return median(self.times[column])


def measure(case: str, runs: int | None = None) -> FirstCall:
    """Measure a case, `RUNS` times by default."""
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
