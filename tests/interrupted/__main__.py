"""The command line: ``python -m tests.interrupted``, from the root of the repository."""

from __future__ import annotations

import json
import os
import tempfile
import time
from typing import get_args

import click

from .campaign import campaign_command
from .programs import PROGRAMS
from .subject import Class, Engine, Subject


@click.group()
def main() -> None:
    """Interrupt ONNX Runtime's runs and the creation of sessions, in one program or in a campaign of processes."""


@main.command()
@click.argument("program", type=click.Choice(list(PROGRAMS)))
@click.argument("seed", type=click.IntRange(min=0))
@click.option("--engine", type=click.Choice(get_args(Engine)), default="direct", show_default=True)
@click.option(
    "--session",
    type=click.Choice(get_args(Class)),
    default="ours",
    show_default=True,
    help="ours: ortops.InferenceSession; plain: onnxruntime.InferenceSession.",
)
@click.option(
    "--seconds", type=click.FloatRange(min=0), default=1.0, show_default=True, help="Duration of a storm of signals."
)
def run(program: str, seed: int, engine: Engine, session: Class, seconds: float) -> None:
    """Run PROGRAM in this process with SEED, and print the counts of its outcomes and the monotonic time of its end as JSON.

    The exit status is 0 for any outcome; a campaign judges the outcomes.
    """
    with tempfile.TemporaryDirectory() as folder:
        if program == "cold-compile":
            os.environ["NUMBA_CACHE_DIR"] = folder
        found = PROGRAMS[program](Subject(engine, session), seed, seconds)
    click.echo(json.dumps({**found._asdict(), "end": time.monotonic()}))


main.add_command(campaign_command)

if __name__ == "__main__":
    main(prog_name="python -m tests.interrupted")
