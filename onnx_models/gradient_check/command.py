"""The command ``python -m onnx_models check-gradients``."""

from __future__ import annotations

import contextlib
import json
import os
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from onnx_models.commands.common import show_table, with_progress
from onnx_models.gradient_check import ours
from onnx_models.gradient_check.cases import cases
from onnx_models.gradient_check.checker import Verdict
from onnx_models.gradient_check.workers import check_in_processes
from ortops import atomic_file
from ortops.worker_process import LocalExecutor

_REASON = 80
"""Characters of a reason that the table shows."""

_WORST_FIRST = ("wrong", "refused", "not testable", "agree")


@click.command("check-gradients")
@click.option(
    *("--jobs", "-j"),
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    show_default=True,
    help="Number of processes.",
)
@click.option("--select", default="*", help="Pattern of names of node tests, with * and ?.")
@click.option(
    "--operator", "operators", multiple=True, help="Name of an operator to test; may be repeated. Default: all."
)
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write all verdicts to this file."
)
def check_gradients_command(jobs: int, select: str, operators: tuple[str, ...], json_file: Path | None) -> None:
    """Check gradients on the node tests of the installed onnx, against finite differences.

    Each test is differentiated with respect to each of its floating-point inputs. The exit status is 1 if a gradient is
    wrong.
    """
    if json_file is not None:
        with _writing(json_file):
            atomic_file.check(json_file)
    asked = cases(select, operators)
    if not asked:
        raise click.UsageError(f"--select {select!r}, --operator {', '.join(operators)!r}: no such node test")
    with LocalExecutor(min(jobs, len(asked))) as executor:
        checked = with_progress(check_in_processes(executor, asked, ours), "node tests", len(asked))
        found = [verdict for verdicts in checked for verdict in verdicts]
    if json_file is not None:
        document = {"onnx_models": [asdict(verdict) for verdict in found]}
        with _writing(json_file):
            atomic_file.write(json_file, json.dumps(document, indent=2) + "\n")
    _show(found)
    wrong = [verdict for verdict in found if verdict.verdict == "wrong"]
    for verdict in wrong:
        click.echo(_described(verdict))
    click.echo(f"onnx_models: {_summary(found)}")
    if wrong:
        raise SystemExit(1)


@contextlib.contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"--json {file}: {error}") from error


def _show(found: Sequence[Verdict]) -> None:
    """Print a row for each operator."""
    rows = []
    for operator in sorted({verdict.operator for verdict in found}):
        its = [verdict for verdict in found if verdict.operator == operator]
        counts = Counter(verdict.verdict for verdict in its)
        worst = min(its, key=lambda verdict: _WORST_FIRST.index(verdict.verdict))
        numbers = [str(counts[name] or "") for name in ("agree", "refused", "wrong", "not testable")]
        rows.append((operator, *numbers, textwrap.shorten(worst.reason, _REASON, placeholder="...")))
    show_table(("operator", "agree", "refused", "wrong", "not testable", "first reason"), rows)


def _described(verdict: Verdict) -> str:
    where = f"{verdict.case}, input {verdict.number} ({verdict.input}), {verdict.element_type}: {verdict.reason}"
    if verdict.gradient is None:
        return f"wrong: {where}"
    return f"wrong: {where}: {verdict.gradient:.9g} along a direction, differences {verdict.difference:.9g}"


def _summary(verdicts: Sequence[Verdict]) -> str:
    parts = []
    for name in ("agree", "refused", "wrong", "not testable"):
        its = [verdict for verdict in verdicts if verdict.verdict == name]
        operators = {verdict.operator for verdict in its}
        number = f"{len(its)} inputs of {len(operators)} operators" if its else "0"
        parts.append(f"{number} {name if name == 'agree' else f'are {name}'}")
    return ", ".join(parts)
