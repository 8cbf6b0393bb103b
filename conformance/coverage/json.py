"""The report as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from conformance.coverage.summary import Summary, has_vectors


def render(summary: Summary) -> str:
    """All that was measured: of each fault also the ids of the cases that catch it."""
    return json.dumps(
        {
            "cases": len(summary.cases),
            "values": {
                name: [{**asdict(line), "is_gap": line.is_gap} for line in lines]
                for name, lines in summary.values.items()
            },
            "faults": [
                {
                    "name": catch.fault.name,
                    "family": catch.fault.family.value,
                    "description": catch.fault.description,
                    "caught_by": list(catch.ids),
                    "caught_by_onnx": catch.fault in summary.caught_by_onnx if has_vectors(catch.fault) else None,
                }
                for catch in summary.catches
            ],
            "facts": {
                "needed": {fact: [fault.name for fault in faults] for fact, faults in summary.needed.items()},
                "reasons": {fact: r.words for fact, r in summary.account.reasons.items() if r is not None},
                "unexplained": summary.account.unexplained,
                "unused_reasons": [reason.words for reason in summary.account.unused],
            },
        },
        indent=1,
    )
