"""The command line: ``python -m ortops warmup``."""

from __future__ import annotations

from collections.abc import Sequence

import click

import ortops
from ortops.help_text import keep_names_whole
from ortops.operators import BY_NAME
from ortops.parallel_warmup import in_processes
from ortops.precompile import FLOAT_TYPES, calls
from ortops.progress import with_progress

keep_names_whole()


@click.group()
@click.version_option(ortops.__version__, prog_name="ortops", message="%(prog)s %(version)s")
def main() -> None:
    """ONNX Runtime custom operators."""


@main.command(
    help="Compile OPERATORS (all by default) and store the machine code on disk, with one process for each element type.\n\n"
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
    chosen = [BY_NAME[name] for name in operators or BY_NAME]
    names_by_type = {
        kind: [one.name for one in chosen if any(kind in kinds for kinds in one.types.values())]
        for kind in dict.fromkeys(types)
    }
    planned = {kind: names for kind, names in names_by_type.items() if names}
    total = sum(len(calls(names, [kind])) for kind, names in planned.items())
    for _ in with_progress(in_processes(planned), "compiling", total, unit="calls", label=str):
        pass


if __name__ == "__main__":
    main(prog_name="python -m ortops")
