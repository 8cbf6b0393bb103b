"""``python -m tests.interrupted campaign``: run many processes with several interpreters, and print a table of outcomes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import get_args

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .process import Ended, Job, run
from .programs import PROGRAMS
from .subject import Class, Engine, Subject

OFTEN = 6
"""The number of processes of the program with one interrupt for each process of another program."""


@click.command("campaign")
@click.option(
    "--processes", type=click.IntRange(min=1), default=500, show_default=True, help="Most processes to start."
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="Time after which none starts.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Processes that run at once.")
@click.option("--seconds", type=click.FloatRange(min=0), default=2.0, show_default=True, help="Duration of a storm.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the first process.")
@click.option(
    "--python",
    "pythons",
    multiple=True,
    default=[sys.executable],
    metavar="PATH",
    help="A Python interpreter; may be repeated. [default: this one]",
)
@click.option("--engine", "engines", multiple=True, default=get_args(Engine), type=click.Choice(get_args(Engine)))
@click.option("--session", "sessions", multiple=True, default=get_args(Class), type=click.Choice(get_args(Class)))
@click.option("--program", "programs", multiple=True, default=list(PROGRAMS), type=click.Choice(list(PROGRAMS)))
def campaign_command(
    processes: int,
    minutes: float,
    jobs: int,
    seconds: float,
    seed: int,
    pythons: Sequence[str],
    engines: Sequence[Engine],
    sessions: Sequence[Class],
    programs: Sequence[str],
) -> None:
    """Run programs in many processes. --engine, --session and --program may be repeated; the default is all of them.

    A process must give the right output or raise the exception of the signal's handler. A plain session may also raise ONNX
    Runtime's error with the word "interrupted", or return NaN with the Python operators. Anything else is a fault, such as a
    crash, a hang, a wrong or missing output, a lost signal. Each fault is printed with the command that reproduces it.

    The exit status is 0; 1 if there was a fault; or 2 for a wrong call.
    """
    versions = {python: _version(python) for python in dict.fromkeys(pythons)}
    subjects = [Subject(engine, session) for engine, session in itertools.product(engines, sessions)]
    planned = itertools.islice(_jobs(list(versions), subjects, programs, seed, seconds), processes)
    ended = []
    for one in _with_progress(_run(planned, jobs, time.monotonic() + 60 * minutes), processes):
        ended.append(one)
        if one.faults:
            click.echo(one.complaint)
    Console().print(_table(ended, versions))
    failed = sum(bool(one.faults) for one in ended)
    click.echo(f"{len(ended)} processes, {failed} with faults")
    if failed:
        raise click.exceptions.Exit(1)


def _version(python: str) -> str:
    try:
        command = [python, "-c", "import platform; print(platform.python_version())"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise click.BadParameter(
            f"{python!r}: must be a Python interpreter ({error})", param_hint="--python"
        ) from error


def _jobs(
    pythons: Sequence[str], subjects: Sequence[Subject], programs: Sequence[str], seed: int, seconds: float
) -> Iterator[Job]:
    """Yield jobs endlessly: the programs in turn, each with all subjects and interpreters before the next program."""
    turns = [name for program in programs for name in [program] * (OFTEN if program == "one-interrupt" else 1)]
    for number, program in enumerate(itertools.cycle(turns)):
        for subject, python in itertools.product(subjects, pythons):
            yield Job(program, subject, seed + number, seconds, python)


def _run(jobs: Iterable[Job], count: int, deadline: float) -> Iterator[Ended]:
    """Run jobs, `count` at a time, until a monotonic time after which none starts; yield each when it has ended."""
    running = set[Future[Ended]]()
    with ThreadPoolExecutor(count) as pool:
        for job in itertools.takewhile(lambda _: time.monotonic() < deadline, jobs):
            running.add(pool.submit(run, job))
            if len(running) == count:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        yield from (one.result() for one in running)


def _with_progress(ended: Iterator[Ended], processes: int) -> Iterator[Ended]:
    console = Console(stderr=True)
    columns = TextColumn("campaign"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(ended, processes)


def _table(ended: Sequence[Ended], versions: Mapping[str, str]) -> Table:
    rows = defaultdict[tuple[str, ...], list[Ended]](list)
    for one in ended:
        subject = one.job.subject
        rows[versions[one.job.python], subject.engine, subject.session, one.job.program].append(one)
    table = Table("Python", "engine", "session", "program", "processes", "outcomes", "latest exception", "faults")
    for key, members in sorted(rows.items()):
        outcomes = sum((one.outcomes for one in members), Counter[str]())
        delays = [one.delay for one in members if one.delay is not None]
        table.add_row(
            *key,
            str(len(members)),
            ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()),
            f"after {max(delays):.2f} s" if delays else "",
            str(sum(bool(one.faults) for one in members)),
        )
    return table
