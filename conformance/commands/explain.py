"""``python -m conformance explain``: where the samples of one case fall."""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase
from pathlib import Path

import click

from conformance import backends
from conformance.case import Case
from conformance.commands.options import out_file, wrong_call
from conformance.explain import explain, page, tables
from conformance.isolate import case_runner
from conformance.report import terminal
from conformance.vectors import collect

_MOST_NAMED = 8


@click.command("explain")
@click.argument("case_id", metavar="CASE")
@click.option(
    "--backend",
    "backend_name",
    metavar="B",
    help="Show the answer of this backend, too: a name that `run --backend` takes.",
)
@click.option(
    "--roi",
    type=click.IntRange(min=0),
    metavar="R",
    help="Number of the RoI, by default the one with the worst element, or else 0.",
)
@out_file("--out", "Write a page with drawings to FILE.html.", "FILE.html")
def explain_command(case_id: str, backend_name: str | None, roi: int | None, out_file: Path | None) -> None:
    """Show where the samples of one CASE fall, by each convention.

    CASE is an id, or a pattern that only one id matches. The terminal shows the coordinates and the values; the page of
    --out has drawings as well.
    """
    case, answer, result = _case(case_id), None, None
    if backend_name is not None:
        with wrong_call("--backend", backends.MissingBackendError), case_runner(backend_name) as runner:
            answer = runner.answer(case)
            result = runner.result_of(case, answer)
    with wrong_call("--roi", ValueError):
        explanation = explain(case, roi, answer, result, backend_name or "")
    tables.write(explanation, terminal.console())
    if out_file is not None:
        out_file.write_text(page.render(explanation), "utf-8")
        click.echo(f"wrote {out_file}")


def _case(wanted: str) -> Case:
    """The case with this id, or the only one that matches the pattern."""
    cases = {case.id: case for case in collect()}
    matching = [wanted] if wanted in cases else [name for name in cases if fnmatchcase(name, wanted)]
    if len(matching) == 1:
        return cases[matching[0]]
    named, text = matching, f"{wanted!r} matches {len(matching)} cases:"
    if not matching:
        close = difflib.get_close_matches(wanted, cases, n=_MOST_NAMED, cutoff=0.5)
        named = close or [name for name in cases if wanted in name][:_MOST_NAMED]
        text = f"there is no case {wanted!r}.{' Close to it are:' if named else ''}"
    more = [f"and {len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
    raise click.BadParameter("\n  ".join((text, *named[:_MOST_NAMED], *more)), param_hint="CASE")
