"""The command line: ``python -m ortops warmup``."""

from __future__ import annotations

from collections.abc import Sequence

import click

import ortops
from ortops.help_text import keep_names_whole
from ortops.kernels.jit.kernel import Source  # noqa: TID251 - the command compiles them
from ortops.operators import BY_NAME
from ortops.parallel_warmup import in_processes, needed
from ortops.precompile import FLOAT_TYPES
from ortops.progress import with_progress

keep_names_whole()


@click.group()
@click.version_option(ortops.__version__, prog_name="ortops", message="%(prog)s %(version)s")
def main() -> None:
    """ONNX Runtime custom operators."""


@main.command(
    help="Compile OPERATORS (all by default) and store the machine code on disk, in as many processes as there are CPUs.\n\n"
    f"An operator is one of {', '.join(BY_NAME)}."
)
@click.argument("operators", nargs=-1, type=click.Choice(list(BY_NAME)), metavar="[OPERATORS]...")
@click.option(
    "--type",
    "types",
    multiple=True,
    default=FLOAT_TYPES,
    type=click.Choice(FLOAT_TYPES),
    help="Element types. [default: all]",
)
def warmup(operators: Sequence[str], types: Sequence[str]) -> None:
    """Compile operators in several processes, and show the progress of all of them."""
    sources = needed(operators or BY_NAME, dict.fromkeys(types))
    for _ in with_progress(in_processes(sources, Source.code), "compiling", len(sources), unit="kernels"):
        pass


if __name__ == "__main__":
    main(prog_name="python -m ortops")
