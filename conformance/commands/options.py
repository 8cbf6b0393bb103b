# SPDX-License-Identifier: MIT OR Apache-2.0
"""Options of several commands, and the errors for wrong calls."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from conformance import schedule
from conformance.case import DTYPES, OLD_LEVELS, Case, Level
from conformance.cases import collect
from ortops import atomic_file

SELECT = click.option("--select", "glob", default="*", metavar="GLOB", help="Run only the cases whose id matches.")
JOBS = click.option(
    *("--jobs", "-j"),
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    metavar="N",
    help="Number of processes, by default one for each CPU.",
)
TIME_LIMIT = click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True, max=86400),
    metavar="SECONDS",
    default=schedule.TIME_LIMIT,
    show_default=True,
    help="Time limit of each case. What a runtime does only at its first call, such as compiling, does not count.",
)
LEVELS = click.Choice([level.value for level in Level])
LEVEL = click.option(
    "--level",
    type=LEVELS,
    help="Whose rules count: the operator's text (core), also published vectors and the results of ONNX's reference "
    "evaluator (standard), or also this suite's own (strict). Cases of other rules depart and do not fail. [default: that "
    "of the list of expected failures, or standard]",
)
STRICT = click.option(
    "--strict",
    type=click.Choice(list(OLD_LEVELS)),
    hidden=True,
    deprecated="Use --level core, standard or strict.",
)
IN_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


def out_file(option: str, text: str, metavar: str = "F", *, required: bool = False) -> Callable[[Any], Any]:
    """An option for an output file, which is checked before the command begins; the command gets `--html` as `html_file`."""

    def checked(_context: click.Context, _option: click.Parameter, file: Path | None) -> Path | None:
        if file is not None:
            if not file.parent.is_dir():
                raise click.BadParameter(f"{file.parent}: must be a folder")
            try:
                atomic_file.check(file)
            except (OSError, ValueError) as error:
                raise click.BadParameter(f"{file}: cannot be written: {getattr(error, 'strerror', error)}") from error
        return file

    path = click.Path(dir_okay=False, path_type=Path)
    name = f"{option.removeprefix('--').replace('-', '_')}_file"
    return click.option(option, name, type=path, callback=checked, metavar=metavar, help=text, required=required)


def selected_cases(glob: str, option: str = "--select") -> list[Case]:
    """The cases whose id matches the pattern.

    Raises:
        click.BadParameter: no id matches; the message suggests similar ones.
    """
    cases = [case for case in collect() if fnmatchcase(case.id, glob)]
    if not cases:
        near = f"; did you mean {' or '.join(globs)}?" if (globs := _near(glob)) else ""
        raise click.BadParameter(f"{glob!r} selects no case{near}", param_hint=option)
    return cases


MAX_NAMED = 4
"""How many ids a message suggests."""


def _near(glob: str) -> list[str]:
    """Globs that the user may have meant: with more parts, or with a known part or element type in place of a wrong one."""
    if longer := [case.id for case in collect() if fnmatchcase(case.id, f"{glob}/*")]:
        return longer if len(longer) <= MAX_NAMED else [f"{glob}/*"]
    ids, parts = [case.id.split("/") for case in collect()], glob.split("/")
    for place, part in enumerate(parts):
        known = dict.fromkeys(case_id[place] for case_id in ids if len(case_id) > place)
        ids = [case_id for case_id in ids if len(case_id) > place and fnmatchcase(case_id[place], part)]
        if not ids and (near := difflib.get_close_matches(part, known)):
            return ["/".join((*parts[:place], each)) for each in near]
    return ["/".join((*parts[:-1], each)) for each in difflib.get_close_matches(parts[-1], DTYPES)]


def how_to_install(extra: str) -> str:
    """The command that installs an extra, for messages about a missing package."""
    return f"in a clone of ortops, run pip install '.[{extra}]'"


@contextlib.contextmanager
def wrong_call(hint: str | None, *errors: type[Exception]) -> Iterator[None]:
    """Report these errors, if the block raises them, as a wrong value of the option or argument `hint`."""
    try:
        yield
    except errors as error:
        raise click.BadParameter(str(error), param_hint=hint) from error
