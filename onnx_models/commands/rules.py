"""``python -m onnx_models rules``."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import click

from onnx_models.commands.common import show_table
from onnx_models.gradient import coverage


@click.command("rules")
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects instead of a table.")
def rules_command(as_json: bool) -> None:
    """List how `gradient` differentiates each operator of ONNX, ai.onnx.ml, ONNX Runtime's optimizer and this project.

    An operator has a rule, is composed of other operators, or is expanded to its function in ONNX's specification. "zero"
    means that the derivative is 0 wherever it exists, "refused" that the operator cannot be differentiated, and "none" that
    it is unknown.
    """
    found = coverage()
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    rows = [(one.domain or "ai.onnx", one.operator, one.way, one.reason) for one in found]
    show_table(("domain", "operator", "gradient", "reason"), rows)
    click.echo(", ".join(f"{way} {number}" for way, number in Counter(one.way for one in found).most_common()))
