"""The command ``python -m onnx_models check-gradients``."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from onnx_models.gradient_check import ours
from onnx_models.gradient_check.cases import cases
from onnx_models.gradient_check.checker import Differentiate, Verdict
from onnx_models.gradient_check.onnx_ad import installed, onnx_ad
from onnx_models.gradient_check.workers import check_in_processes

_WIDTH = 160
"""Columns of a table that is not printed to a terminal."""

_WORST_FIRST = ("wrong", "refused", "not testable", "agree")


@click.command("check-gradients")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default=True, help="Number of processes."
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

    Each test is differentiated with respect to each of its floating-point inputs. If the package onnx-ad is installed, the
    table also shows its results. The exit status is 1 if a gradient of onnx_models is wrong.
    """
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    asked = cases(select, operators)
    if not asked:
        raise click.UsageError(f"--select {select!r}, --operator {', '.join(operators)!r}: no such node test")
    methods: dict[str, Differentiate] = {"onnx_models": ours}
    if installed():
        methods["onnx_ad"] = onnx_ad
    found: dict[str, list[Verdict]] = {name: [] for name in methods}
    checked = check_in_processes(asked, list(methods.values()), min(jobs, len(asked)))
    for of_case in track(checked, "node tests", total=len(asked), console=console, transient=True):
        for name, some in zip(methods, of_case, strict=True):
            found[name] += some
    if json_file is not None:
        document = {name: [asdict(verdict) for verdict in verdicts] for name, verdicts in found.items()}
        try:
            json_file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"--json {json_file}: {error}") from error
    console.print(_table(found))
    for verdict in found["onnx_models"]:
        if verdict.verdict == "wrong":
            console.print(_described(verdict), highlight=False, soft_wrap=True, markup=False)
    for name, verdicts in found.items():
        console.print(f"{name}: {_summary(verdicts)}", highlight=False, soft_wrap=True)
    if any(verdict.verdict == "wrong" for verdict in found["onnx_models"]):
        raise SystemExit(1)


def _table(found: dict[str, list[Verdict]]) -> Table:
    ours_found, *others = found.values()
    table = Table("operator", "agree", "refused", "wrong", "not testable")
    table.add_column("first reason", no_wrap=True, overflow="ellipsis")
    for name in list(found)[1:]:
        table.add_column(f"{name}: agree / wrong / refused", justify="right")
    for operator in sorted({verdict.operator for verdict in ours_found}):
        its = [verdict for verdict in ours_found if verdict.operator == operator]
        counts = Counter(verdict.verdict for verdict in its)
        worst = min(its, key=lambda verdict: _WORST_FIRST.index(verdict.verdict))
        beside = []
        for other in others:
            theirs = Counter(verdict.verdict for verdict in other if verdict.operator == operator)
            beside.append(f"{theirs['agree']} / {theirs['wrong']} / {theirs['refused']}")
        numbers = [str(counts[name] or "") for name in ("agree", "refused", "wrong", "not testable")]
        table.add_row(operator, *numbers, Text(worst.reason), *beside)
    return table


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
