# SPDX-License-Identifier: MIT OR Apache-2.0
"""``python -m conformance explain``: the tables of one case, and a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from conformance import backends, schedule
from conformance.commands.options import MAX_NAMED, TIME_LIMIT, out_file, selected_cases, wrong_call
from conformance.expected_failures import find
from conformance.explain import Explanation, explain
from conformance.explain.drawing import picture
from conformance.report.terminal import console, line, table
from ortops import atomic_file


@click.command("explain", epilog="Example: python -m conformance explain roi_align/edge/half_pixel_inside/v16/float")
@click.argument("case_id", metavar="CASE")
@click.option(
    "--backend",
    "backend_name",
    metavar="B",
    help="Also run this backend, and compare its outputs; as for `run --backend`.",
)
@TIME_LIMIT
@out_file("--svg", "Draw the samples on the map, and write the picture to this file.", "FILE.svg")
def explain_command(case_id: str, backend_name: str | None, time_limit: float, svg_file: Path | None) -> None:
    """Show where the samples of one CASE lie.

    CASE is an id, or a pattern that matches exactly one id. The terminal shows coordinates and values, and --svg draws
    a picture.
    """
    case, *others = selected_cases(case_id, "CASE")
    if others:
        some = f"{1 + len(others)}, such as {', '.join(each.id for each in (case, *others)[:MAX_NAMED])}"
        raise click.BadParameter(f"{case_id!r} must match one case, not {some}", param_hint="CASE")
    answer = result = listed = None
    if backend_name is not None:
        setting = schedule.Setting(backend_name, known=(), time_limit=time_limit)
        click.echo(f"waiting for {backend_name}, at most {time_limit:g} s", err=True)
        with wrong_call("--backend", backends.MissingBackendError), schedule.BackendChild(setting) as child:
            declared, answer = child.declaration(), child.answer(case)
            result = schedule.runner_of(setting, declared, child.answer).result_of(case, answer)
            listed = find(declared.expected_failures, case.id)
    explanation = explain(case, answer, result, backend_name or "")
    if listed is not None:
        explanation = replace(explanation, facts={**explanation.facts, "expected failure": listed.reason})
    _write(explanation)
    if svg_file is not None:
        if explanation.drawing is None:
            raise click.BadParameter("the case has nothing to draw", param_hint="--svg")
        atomic_file.write(svg_file, picture(case.id, explanation.heading, [explanation.drawing]))
        click.echo(f"wrote {svg_file}")


def _write(explanation: Explanation) -> None:
    import rich.text

    out = console()
    line(out, explanation.case.id, "bold")
    for heading, fact in explanation.facts.items():
        line(out, f"{heading}: {fact}")
    if explanation.heading:
        line(out, f"\n{explanation.heading}", "bold")
    for each in explanation.tables:
        line(out, f"\n{each.title}", "italic")
        drawn = table(((column, "") for column in each.columns[1:]), each.columns[0])
        for k in each.shown:
            drawn.add_row(*map(rich.text.Text, each.rows[k]), style="bold red" if k == each.marked else None)
        out.print(drawn)
        if len(each.shown) < len(each.rows):
            line(out, f"  and {len(each.rows) - len(each.shown)} more", "dim")
    for note in explanation.notes:
        line(out, note, "dim")
