# SPDX-License-Identifier: MIT OR Apache-2.0
"""``python -m conformance fuzz``: compare a backend with the reference on random cases."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from conformance import backends
from conformance.commands.options import FOLDER, IN_FILE, JOBS, how_to_install, wrong_call
from conformance.fuzz.check import Failure, read_case, write_failure
from conformance.schedule import WorkerPool
from ortops.operators.asked import BY_NAME
from ortops.progress import with_progress

if TYPE_CHECKING:
    from conformance.fuzz.campaign import Plan

SECONDS = 60.0
"""The length of a campaign if neither --seconds nor --cases is given."""


@click.command("fuzz", epilog="Example: python -m conformance fuzz --backend my_backend:answer --seconds 60")
@click.option(
    "--backend",
    "backend_name",
    default="ortops",
    show_default=True,
    metavar="B",
    help="The backend to check, as for `run --backend`.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="T",
    help="End after T seconds. [default: 60, unless --cases is given]",
)
@click.option("--cases", type=click.IntRange(min=1), metavar="N", help="End after N cases.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random cases.")
@click.option(
    "--operator",
    "operators",
    type=click.Choice(sorted(BY_NAME)),
    multiple=True,
    help="Draw only cases of this operator, such as RoiAlign_16 or RoiAlignGrad; may be repeated.",
)
@JOBS
@click.option(
    "--out", "folder", type=FOLDER, default="fuzz-failures", show_default=True, help="Folder for the failures."
)
@click.option("--replay", type=IN_FILE, metavar="FILE", help="Run only the case in this file.")
def fuzz_command(
    backend_name: str,
    seconds: float | None,
    cases: int | None,
    seed: int,
    operators: tuple[str, ...],
    jobs: int,
    folder: Path,
    replay: Path | None,
) -> None:
    """Compare a backend with the reference on random inputs.

    Inputs are valid or invalid. Each failure is reduced to a small case and written to a file, which --replay runs again.
    Expected failures count as failures. With one version of hypothesis, which draws and reduces the cases, the same --seed
    and --cases give the same failures.

    The exit status is 0 without a failure, 1 with one, 2 for a wrong call.
    """
    try:
        from conformance.fuzz.campaign import Plan
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{error}: {how_to_install('conformance')}") from error
    with wrong_call("--backend", backends.MissingBackendError):
        backends.load(backend_name)
    if replay is not None:
        has_failed = _replayed(backend_name, replay)
    else:
        limit = SECONDS if seconds is None and cases is None else seconds
        with WorkerPool(jobs) as pool:
            has_failed = _run(Plan(backend_name, seed, operators), pool, cases, limit, folder)
    if has_failed:
        raise click.exceptions.Exit(1)


def _replayed(backend_name: str, path: Path) -> bool:
    from conformance.fuzz.campaign import CheckingChild

    with wrong_call("--replay", ValueError):
        case = read_case(path)
    with CheckingChild(backend_name) as child:
        outcome = child.check(case)
    click.echo(outcome)
    return isinstance(outcome, Failure)


def _run(plan: Plan, pool: WorkerPool, cases: int | None, seconds: float | None, folder: Path) -> bool:
    """Whether a campaign finds a failure; prints each, and the counts."""
    from conformance.fuzz import campaign

    begun, counts, written = time.monotonic(), Counter[str](), 0
    name = re.sub(r"[^-\w]", "-", plan.backend)

    def examined() -> Iterator[str]:
        """The outcome of each case; counts it, and writes and prints the failures."""
        nonlocal written
        for report in campaign.run(plan, pool, cases, seconds):
            for outcome in report.counts.elements():
                counts[outcome] += 1
                yield outcome
            for failure in report.failures:
                kind, operator = failure.kind, failure.case.operator
                path = folder / f"{name}-{operator}-{kind}-{written}.json"
                folder.mkdir(parents=True, exist_ok=True)
                write_failure(path, failure, plan.backend)
                written += 1
                click.echo(f"{failure}\n  {path}")

    def rate() -> str:
        return f"{counts.total() / max(time.monotonic() - begun, 1e-9):.0f} cases a second"

    for _ in with_progress(examined(), "fuzz", cases, note=lambda: f"{rate()}, {counts['failed']} failed"):
        pass
    kinds = ("passed", "failed", "unsupported", "ill-posed")
    parts = ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind] or kind in kinds[:2])
    click.echo(f"seed {plan.seed}: {parts}; {rate()}, {written} different failures")
    return counts["failed"] > 0
