"""The command line: ``python -m ortops warmup``."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import click

import ortops
from ortops.operators import BY_NAME
from ortops.precompile import FLOAT_TYPES


@click.group()
def main() -> None:
    """Operators for ONNX Runtime."""


@main.command()
@click.argument("operators", nargs=-1, type=click.Choice(list(BY_NAME)))
@click.option(
    "--type",
    "types",
    multiple=True,
    default=FLOAT_TYPES,
    type=click.Choice(FLOAT_TYPES),
    help="Element types. [default: all]",
)
def warmup(operators: Sequence[str], types: Sequence[str]) -> None:
    """Compile OPERATORS, or all, and keep the machine code on disk: the element types at once, each in a process."""
    chosen = [BY_NAME[name] for name in operators or BY_NAME]
    having = {
        kind: [one.name for one in chosen if any(kind in kinds for kinds in one.types.values())]
        for kind in dict.fromkeys(types)
    }
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        done = [pool.submit(ortops.warmup, names, [kind]) for kind, names in having.items() if names]
        for one in done:
            one.result()


if __name__ == "__main__":
    main(prog_name="python -m ortops")
