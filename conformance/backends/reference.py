"""The float64 reference, its results rounded once to the tensor's type."""

from __future__ import annotations

from conformance.case import Array, Case
from conformance.expect import reference
from conformance.expected_failures import ExpectedFailure


class Reference:
    """Answers with `ortops.reference`."""

    expected_failures: tuple[ExpectedFailure, ...] = ()

    def run(self, case: Case) -> dict[str, Array]:
        """See `Backend`."""
        results = reference(case.definition, case.attributes, case.inputs, case.outputs)
        return {name: value.astype(case.dtype) for name, value in results.items()}


def load() -> Reference:
    """The backend."""
    return Reference()
