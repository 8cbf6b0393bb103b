"""The command line: ``python -m tests.soak``, from the root of the repository."""

from __future__ import annotations

import itertools
import math

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from . import report
from .cases import middling, small
from .memory import Sample
from .pool import Problem, WrongAnswerError, make_pool, with_wrong_answer
from .soak import Plan, Report, soak

SMALL_TO_ONE_MIDDLING = 10
"""Small cases for each middling one, as long as there are such."""


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="End after this time.")
@click.option("--calls", type=click.IntRange(min=1), help="End after this many calls.")
@click.option("--threads", type=click.IntRange(1, 256), default=4, show_default=True, help="That call at once.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the problems, and of the calls."
)
@click.option(
    "--problems", type=click.IntRange(min=1), default=300, show_default=True, help="Small ones; more are made of each."
)
@click.option("--wrong", is_flag=True, help="Expect a wrong answer to one problem, to see that the soak notices.")
def main(minutes: float | None, calls: int | None, threads: int, seed: int, problems: int, wrong: bool) -> None:
    """Call all operators in all ways from several threads, check every answer bit by bit, and watch memory.

    Without --minutes and --calls it goes on until it is interrupted, which always ends it with the report.

    The exit status is 0, or 1 when an answer was wrong, a refusal was missing or had other words, an error came that is none
    of the operators' rules, a call did not end, or memory is not flat.
    """
    console = Console()
    try:
        pool = _pool(seed, problems)
    except WrongAnswerError as error:
        raise click.ClickException(str(error)) from error
    if wrong:
        pool = with_wrong_answer(pool)
    seconds = None if minutes is None else 60 * minutes
    result = _run(Plan(pool, threads, seed, seconds, calls))
    report.write(result, console)
    if not result.is_good:
        raise click.exceptions.Exit(1)


def _pool(seed: int, count: int) -> list[Problem]:
    cases = [*small(seed, count), *itertools.islice(middling(seed), math.ceil(count / SMALL_TO_ONE_MIDDLING))]
    with _progress("answers") as progress:
        task = progress.add_task("", total=len(cases), text="")
        return make_pool(cases, lambda: progress.advance(task))


def _run(plan: Plan) -> Report:
    with _progress("soak") as progress:
        task = progress.add_task("", total=plan.seconds or plan.calls, text="")

        def show(sample: Sample) -> None:
            text = f"{sample.calls} calls, {sample.resident >> 20} MiB resident"
            progress.update(task, completed=sample.seconds if plan.seconds else sample.calls, text=text)

        return soak(plan, show)


def _progress(title: str) -> Progress:
    console = Console(stderr=True)
    columns = TextColumn(title), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[text]}")
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


if __name__ == "__main__":
    main(prog_name="python -m tests.soak")
