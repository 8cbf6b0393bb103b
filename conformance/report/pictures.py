"""Pictures of causes of failures: what `conformance.explain` draws for one of the cases."""

from __future__ import annotations

import base64

from conformance.explain import explain
from conformance.explain.drawing import picture
from conformance.outcome import Result
from conformance.report.causes import Cause
from conformance.run import Answer

MAX_BYTES = 150_000
"""The size of the largest picture."""

MAX_TRIED = 3
"""How many cases of a cause are drawn to find a picture that is small enough."""


def address_of(cause: Cause) -> str:
    """A picture as a data URL with an SVG file; empty if the smallest cases have no small picture."""
    drawable = [result for result in cause.results if not result.case.expects_error]
    for result in sorted(drawable, key=_size)[:MAX_TRIED]:
        answer = Answer("outputs", result.outputs) if result.outputs else None
        explained = explain(result.case, None, answer, result)
        if explained.drawing is not None:
            drawn = picture(result.case.id, explained.heading, [explained.drawing]).encode()
            if len(drawn) <= MAX_BYTES:
                return f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode('ascii')}"
    return ""


def _size(result: Result) -> tuple[bool, int]:
    """A sort key: small inputs first, and gradients last, because their drawings show no pixels."""
    return result.case.definition.is_gradient, result.case.nbytes
