"""``python -m conformance explain``: the drawings and tables of one case."""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import click

from conformance import backends, isolate
from conformance.case import Case
from conformance.commands.options import out_file, wrong_call
from conformance.explain import explain, page, picture, tables
from conformance.report import terminal
from conformance.vectors import collect
from ortops import atomic_file
from ortops.worker_process import LocalExecutor

_MOST_NAMED = 8


@click.command("explain")
@click.argument("case_id", metavar="CASE")
@click.option(
    "--backend",
    "backend_name",
    metavar="B",
    help=f"Compare the outputs of this backend, too: {', '.join(backends.NAMES)}, or module[:Class] with ONNX's backend "
    "interface.",
)
@click.option(
    "--roi",
    type=click.IntRange(min=0),
    metavar="R",
    help="Number of the RoI to draw, by default that of the worst element, or else 0.",
)
@out_file("--out", "Write all drawings and tables to this page.", "FILE.html")
@out_file("--svg", "Write drawings, side by side, to this picture.", "FILE.svg")
@click.option(
    "--drawing",
    "drawings",
    type=int,
    multiple=True,
    metavar="N",
    help="Number of a drawing in the SVG file, counted from 1 in the order of the page; may be given several times. By "
    "default all drawings of conventions, or of the outputs if there are none.",
)
@click.option(
    "--theme",
    type=click.Choice(get_args(picture.Theme)),
    default="light",
    help="Colours of the SVG file, by default light.",
)
def explain_command(
    case_id: str,
    backend_name: str | None,
    roi: int | None,
    out_file: Path | None,
    svg_file: Path | None,
    drawings: tuple[int, ...],
    theme: picture.Theme,
) -> None:
    """Show where the samples of one CASE fall, by each convention.

    CASE is an id, or a pattern that exactly one id matches. The terminal shows the coordinates and the values; --out
    and --svg write the pictures.
    """
    if svg_file is None and (drawings or theme != "light"):
        raise click.UsageError("--drawing and --theme are about the file of --svg, which is not given")
    case, answer, result = _case(case_id), None, None
    if backend_name is not None:
        setting = isolate.Setting(backend_name)
        with (
            wrong_call("--backend", backends.MissingBackendError),
            LocalExecutor(1),
            isolate.child_of(setting) as child,
        ):
            answer = child.answer(case)
            result = isolate.runner_of(setting, child.declaration(), child.answer).result_of(case, answer)
    with wrong_call("--roi", ValueError):
        explanation = explain(case, roi, answer, result, backend_name or "")
    tables.write(explanation, terminal.console())
    if out_file is not None:
        atomic_file.write(out_file, page.render(explanation))
        click.echo(f"wrote {out_file}")
    if svg_file is not None:
        with wrong_call("--drawing", ValueError):
            panels = picture.chosen(explanation, drawings)
        text = picture.render(case.id, explanation.roi, panels, explanation.hint * bool(explanation.conventions), theme)
        atomic_file.write(svg_file, text)
        click.echo(f"wrote {svg_file}")


def _case(wanted: str) -> Case:
    """The case of this id, or the only case whose id matches the pattern."""
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
