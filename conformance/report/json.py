"""{"backend", "summary": {outcome: count}, "cases": [{"id", "outcome", "max_error", "allowed", "message"}]}."""

from __future__ import annotations

import json

from conformance.report.run import Run


def render(run: Run) -> str:
    """A run as JSON. `max_error` and `allowed` are of the element that uses most of what it is allowed; else null."""
    cases = [
        {
            "id": result.case.id,
            "outcome": result.outcome.value,
            "max_error": result.worst.error if result.worst else None,
            "allowed": result.worst.allowed if result.worst else None,
            "message": result.message,
        }
        for result in run.results
    ]
    summary = {outcome.value: count for outcome, count in run.summary.items()}
    return json.dumps({"backend": run.backend, "summary": summary, "cases": cases}, indent=1, allow_nan=False) + "\n"
