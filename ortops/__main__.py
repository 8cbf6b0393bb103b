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
    """ONNX Runtime custom operators."""


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
    """Compile OPERATORS (all by default) and store the machine code on disk, with one process for each element type."""
    chosen = [BY_NAME[name] for name in operators or BY_NAME]
    names_by_type = {
        kind: [one.name for one in chosen if any(kind in kinds for kinds in one.types.values())]
        for kind in dict.fromkeys(types)
    }
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(ortops.warmup, names, [kind]) for kind, names in names_by_type.items() if names]
        for future in futures:
            future.result()


if __name__ == "__main__":
    main(prog_name="python -m ortops")
