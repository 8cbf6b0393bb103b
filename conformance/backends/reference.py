"""The float64 reference, with its results rounded once to the tensor's type."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from conformance.backends.base import Backend, Session
from conformance.case import Array, Case
from conformance.expected_values import evaluated, reference


class Reference(Backend):
    """Evaluates `ortops.reference`."""

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            compute = reference if case.formula is None else evaluated
            results = compute(case.definition, case.attributes, inputs, case.outputs)
            with np.errstate(over="ignore"):
                return {name: value.astype(case.dtype) for name, value in results.items()}

        return run
