# SPDX-License-Identifier: MIT
"""What tests of the suite share: runs of its command line in this process, and a small case of any operator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner, Result

from conformance.__main__ import main
from conformance.case import Case, Source
from conformance.child import Child
from ortops.operators.asked import BY_NAME

INSIDE = "roi_align/edge/half_pixel_inside/v16/float"
"""The id of a small case."""


def run(*arguments: object) -> Result:
    """The result of a command. An argument may be several words."""
    return CliRunner().invoke(main, " ".join(map(str, arguments)).split())


def words(result: Result) -> str:
    """The output without frames and ends of lines."""
    return " ".join(result.output.replace("│", " ").split())


def report(folder: Path, *arguments: object) -> tuple[Result, dict[str, Any]]:
    """The result of a run and its report, without times."""
    result = run(*arguments, "--json", folder / "report.json")
    data = json.loads((folder / "report.json").read_text("utf-8"))
    return result, {**data, "date": "", "seconds": 0, "cases": [{**case, "seconds": 0} for case in data["cases"]]}


def outcomes(data: dict[str, Any]) -> dict[str, str]:
    """The outcome of each case of a report."""
    return {case["id"]: case["outcome"] for case in data["cases"]}


def stored(file: Path, backend: str, outcomes: dict[str, str], **rest: object) -> Path:
    """A report file with these outcomes, of which `listed` is an unexpected pass; what did not pass has a message."""
    cases = [
        {"id": case_id, "outcome": outcome, "message": "" if outcome == "passed" else f"{outcome}: [red]why[/]"}
        if outcome != "listed"
        else {"id": case_id, "outcome": "failed", "message": "passed, but is listed", "reason": "listed"}
        for case_id, outcome in outcomes.items()
    ]
    file.write_text(json.dumps({"backend": backend, **rest, "cases": cases}), "utf-8")
    return file


def call_here(child: Child, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], _: float = 0) -> Any:
    """`Child.calls` in this process, for tests that are not of processes: a child takes seconds to start."""
    child.start()
    return (function(*args) for args in arguments)


def start_here(child: Child) -> Any:
    """`Child.start` in this process."""
    begin, args = child._begin  # noqa: SLF001
    child.greeting = begin(*args)
    return child.greeting


def small_case(operator: str, outputs: tuple[str, ...] | None, attributes: dict[str, Any], *inputs: Any) -> Case:
    """A case with inputs in the operator's order, None to leave one out; without `outputs`, its first one is wanted."""
    definition = BY_NAME[operator]
    tensors = {t.name: np.asarray(a) for t, a in zip(definition.inputs, inputs, strict=False) if a is not None}
    wanted = outputs or (definition.outputs[0].name,)
    return Case("a/small/case", Source("a test", "1", "none"), operator, attributes, tensors, wanted, "a test")
