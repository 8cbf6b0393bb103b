"""``python -m conformance explain``: one case as a picture."""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase
from pathlib import Path

import click

from conformance import backends
from conformance.case import Case
from conformance.explain import explain, page, tables
from conformance.isolate import asking
from conformance.outcome import Result
from conformance.report import terminal
from conformance.run import Answer
from conformance.vectors import collect

_MOST_NAMED = 8


@click.command("explain")
@click.argument("case_id", metavar="CASE")
@click.option(
    "--backend",
    "backend_name",
    metavar="B",
    help=f"Show what it answers, too: {', '.join(backends.NAMES)}, or module[:Class] with ONNX's backend interface.",
)
@click.option(
    "--roi", type=click.IntRange(min=0), metavar="R", help="Number of the RoI, by default the worst one, or the first."
)
@click.option(
    "--out",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.html",
    help="Write the picture to this page.",
)
def explain_command(case_id: str, backend_name: str | None, roi: int | None, file: Path | None) -> None:
    """Show where the samples of one CASE fall, by each convention: an id, or a pattern that one id matches.

    The terminal has the coordinates and the values; a page, where one is asked for, the pictures.
    """
    case = _case(case_id)
    if file is not None and not file.parent.is_dir():
        raise click.BadParameter(f"{file.parent} is no folder", param_hint="--out")
    answer, result = (None, None) if backend_name is None else _asked(backend_name, case)
    try:
        explanation = explain(case, roi, answer, result, backend_name or "")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--roi") from error
    tables.write(explanation, terminal.console())
    if file is not None:
        file.write_text(page.render(explanation), "utf-8")
        click.echo(f"wrote {file}")


def _case(wanted: str) -> Case:
    """The case of this id, or the one that matches."""
    cases = {case.id: case for case in collect()}
    if wanted in cases:
        return cases[wanted]
    matching = [case for name, case in cases.items() if fnmatchcase(name, wanted)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        named = _listed([case.id for case in matching])
        raise click.BadParameter(f"{wanted!r} matches {len(matching)} cases:{named}", param_hint="CASE")
    close = difflib.get_close_matches(wanted, cases, n=_MOST_NAMED, cutoff=0.5)
    close = close or [name for name in cases if wanted in name][:_MOST_NAMED]
    hint = f" Close to it are:{_listed(close)}" if close else ""
    raise click.BadParameter(f"there is no case {wanted!r}.{hint}", param_hint="CASE")


def _listed(names: list[str]) -> str:
    more = [f"and {len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return "".join(f"\n  {line}" for line in (*names[:_MOST_NAMED], *more))


def _asked(name: str, case: Case) -> tuple[Answer, Result]:
    """What a backend makes of the case, in a child process where that is known to end it, and what the judge says."""
    try:
        with asking(name) as examiner:
            answer = examiner.asker(case)
            return answer, examiner.judged(case, answer)
    except backends.MissingBackendError as error:
        raise click.BadParameter(str(error), param_hint="--backend") from error
