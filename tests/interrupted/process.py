"""Run a program in a process of its own and judge its outcome."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .outcome import RIGHT, allowed
from .subject import Subject

ROOT = Path(__file__).parents[2]

MAX_SECONDS = 120.0
"""The time limit of a process. The longest compiles a kernel several times, on a machine that is busy with others."""

MAX_EXIT_SECONDS = 30.0
"""The time limit from the end of a program to the end of its process."""


@dataclass(frozen=True, slots=True)
class Job:
    """A program with its subject, seed and interpreter."""

    program: str
    subject: Subject
    seed: int = 0
    seconds: float = 1.0
    python: str = sys.executable

    @property
    def command(self) -> list[str]:
        """The command line, to be run in the root of the repository."""
        chosen = ["--engine", self.subject.engine, "--session", self.subject.session, "--seconds", str(self.seconds)]
        return [self.python, "-m", "tests.interrupted", "run", self.program, str(self.seed), *chosen]


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that has ended.

    outcomes: the counts of its program's outcomes.
    delay: the seconds from a signal to its exception, or None if the program does not measure them.
    faults: a sentence for each fault.
    """

    job: Job
    outcomes: Counter[str] = field(default_factory=Counter)
    delay: float | None = None
    faults: tuple[str, ...] = ()

    @property
    def complaint(self) -> str:
        """The faults, and the command that reproduces them."""
        return f"{shlex.join(self.job.command)}\n" + "\n".join(f"  {fault}" for fault in self.faults)


def run(job: Job, limit: float = MAX_SECONDS) -> Ended:
    """Run a job in a process, for at most `limit` seconds, and judge it."""
    try:
        done = subprocess.run(  # noqa: S603
            job.command, capture_output=True, text=True, errors="replace", check=False, timeout=limit, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        return Ended(job, faults=(f"It hangs: it has not ended after {limit:.0f} s.",))
    return judge(job, done.returncode, done.stdout, done.stderr, time.monotonic())


def judge(job: Job, status: int, output: str, errors: str, end: float) -> Ended:
    """Judge a process that has ended.

    Args:
        job: the process's job.
        status: its exit status.
        output: its standard output.
        errors: its standard error.
        end: the monotonic time of its end.
    """
    last = " ".join(errors[-800:].split())
    if status != 0:
        return Ended(job, faults=(f"It ends with status {status}: {last}",))
    try:
        found = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        return Ended(job, faults=(f"It prints {output[-200:]!r}: {last}",))
    outcomes, right = Counter[str](found["outcomes"]), allowed(job.subject, job.program)
    faults = [f"{count} x {outcome}" for outcome, count in outcomes.items() if outcome not in right]
    if not outcomes[RIGHT]:
        faults.append("No run gives the right answer.")
    if end - found["end"] > MAX_EXIT_SECONDS:
        faults.append(f"It ends {end - found['end']:.0f} s after its program.")
    return Ended(job, outcomes, found["delay"], tuple(faults))
