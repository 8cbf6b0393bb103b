"""{"backend", "summary": {outcome: count}, "cases": [{"id", "outcome", "max_error", "allowed", "message"}]}.

A case that did not pass although there was an answer has "outputs", too: by name, as `tensors.py` stores them.
"""

from __future__ import annotations

import json
from typing import Any

from conformance.outcome import Result
from conformance.report import tensors
from conformance.report.run import Run


def render(run: Run) -> str:
    """A run as JSON. `max_error` and `allowed` are of the element that uses most of what it is allowed; else null."""
    summary = {outcome.value: count for outcome, count in run.summary.items()}
    cases = [_case(result) for result in run.results]
    return json.dumps({"backend": run.backend, "summary": summary, "cases": cases}, indent=1, allow_nan=False) + "\n"


def _case(result: Result) -> dict[str, Any]:
    entry = {
        "id": result.case.id,
        "outcome": result.outcome.value,
        "max_error": result.worst.error if result.worst else None,
        "allowed": result.worst.allowed if result.worst else None,
        "message": result.message,
    }
    outputs = tensors.encode(result.outputs)
    return {**entry, "outputs": outputs} if outputs else entry
