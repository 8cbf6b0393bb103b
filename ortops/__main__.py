# SPDX-License-Identifier: MIT
"""The command line: ``python -m ortops warmup`` and ``python -m ortops library``."""

from __future__ import annotations

import importlib
import logging
import operator
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

import ortops
from ortops.custom.operator import describe
from ortops.help_text import keep_names_whole
from ortops.library.targets import FLOAT_TYPES, STANDARD_OPSETS, TARGETS, this_machine
from ortops.operators import BY_NAME
from ortops.spec import DOMAIN

keep_names_whole()


@click.group()
@click.version_option(ortops.__version__, prog_name="ortops", message="%(prog)s %(version)s")
def main() -> None:
    """ONNX Runtime custom operators."""


@main.command(hidden=True, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1)
def warmup(arguments: Sequence[str]) -> None:  # noqa: ARG001 - those of earlier releases
    """Do nothing, and say so."""
    click.echo("ortops warmup does nothing any more: no kernel is compiled at run time", err=True)


def _names(choices: Iterable[str]) -> Callable[[click.Context, click.Parameter, str | None], list[str] | None]:
    """The callback for an option whose value is a list of names, separated by commas."""
    choice = click.Choice(list(choices))
    return lambda context, option, value: (
        None if value is None else [choice.convert(name, option, context) for name in value.split(",")]
    )


def _operators(context: click.Context, option: click.Parameter, values: Sequence[str]) -> list[Any] | None:
    """The operators of an option whose values are names and, for those of users, module:attribute, with commas."""
    ours = click.Choice([*BY_NAME, "MODULE:NAME"])
    return [
        _imported(name, context, option) if ":" in name else ours.convert(name, option, context)
        for value in values
        for name in value.split(",")
    ] or None


def _imported(name: str, context: click.Context, option: click.Parameter) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return operator.attrgetter(attribute)(importlib.import_module(module))
    except Exception as error:  # a module may raise anything
        raise click.BadParameter(f"{name!r} cannot be imported: {describe(error)}", context, option) from error


@main.command(
    epilog="Example: python -m ortops library --out libortops.so --operators RoiAlign_22 --types float",
    help="Write a shared library of operators, which ONNX Runtime loads without Python: see docs/library.md.\n\n"
    f"An operator is one of {', '.join(BY_NAME)}, or module:attribute of one that ortops.operator made with compiled.",
)
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The file to write.")
@click.option(
    "--operators",
    callback=_operators,
    multiple=True,
    metavar="A,B",
    help="Only these operators; may be repeated. [default: all]",
)
@click.option("--types", callback=_names(FLOAT_TYPES), metavar="T,U", help="Only these element types. [default: all]")
@click.option("--target", type=click.Choice(list(TARGETS)), help="The platform. [default: this machine's]")
@click.option("--cpu", metavar="NAME", help="Compile only for this processor, by LLVM's name, such as znver5.")
@click.option(
    "--standard",
    type=click.Choice(STANDARD_OPSETS),
    help="Also run ONNX's own nodes, by the definitions of this opset.",
)
@click.option("--domain", default=DOMAIN, show_default=True, metavar="NAME", help="The name of this project's domain.")
@click.option(
    "--verbose", "-v", is_flag=True, help="Say why the code of an operator of your own cannot be kept on disk."
)
def library(out: Path, *, verbose: bool, **options: Any) -> None:
    """Build a library and show the progress."""
    platform = TARGETS[options["target"] or this_machine()]
    if out.suffix != platform.ending and out.suffix in {target.ending for target in TARGETS.values()}:
        raise click.BadParameter(f"{out} must end in {platform.ending} on the platform of --target", param_hint="--out")
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        functions = ortops.build_library(out, **options)
    except OSError as error:
        raise click.ClickException(f"{out} cannot be written: {error.strerror or error}") from error
    except (ImportError, TypeError, ValueError, RuntimeError) as error:
        raise click.ClickException(str(error)) from error
    number = len(options["operators"] or BY_NAME)
    click.echo(
        f"{out}: {number} operator{'s' * (number != 1)} in {', '.join(options['types'] or ['all their types'])}, "
        f"{out.stat().st_size // 1000} kB, to register with {' or '.join(functions)}"
    )


if __name__ == "__main__":
    main(prog_name="python -m ortops")
