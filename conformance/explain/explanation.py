"""The explanation of one case."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from conformance.case import DTYPES, Array, Case
from conformance.expected_values import Floats, expected_outputs, reference
from conformance.explain.parts import Comparison, Explanation, differences
from conformance.families import family_of
from conformance.outcome import Result
from conformance.run import Answer


def explain(
    case: Case, roi: int | None = None, answer: Answer | None = None, result: Result | None = None, backend: str = ""
) -> Explanation:
    """Explain a case.

    Args:
        case: the case.
        roi: the number of the RoI to draw. None draws the RoI of the worst element, or the first one without a backend.
        answer: the answer of a backend, or None.
        result: the verdict on this answer.
        backend: the name of the backend.

    Raises:
        ValueError: the case has no RoI of this number.
    """
    facts, got = _facts(case, backend, result), _numbers(answer)
    if case.expects_error:
        if roi is not None:
            raise ValueError(f"roi = {roi}: a case that expects an error has no RoI to draw")
        return Explanation(case, facts, tables=Comparison({}, got).tables(), notes=(_refusal(case),))
    if case.formula is not None:
        return Explanation(case, facts, notes=("The tensors are too large to list and to draw.",))
    expected = expected_outputs(case)
    got = {name: y for name, y in got.items() if name in expected and y.shape == expected[name].shape}
    compared = Comparison(expected, got, _worst(expected, got, result))
    return family_of(case.definition).explanation(case, facts, compared, roi)


def _facts(case: Case, backend: str, result: Result | None) -> dict[str, str]:
    attributes = ", ".join(f"{name} = {value}" for name, value in case.attributes.items())
    facts = {
        "note": case.note,
        "source": str(case.source),
        "operator": f"{case.operator}, tensors of {case.element_type}",
        "attributes": attributes or "none, all by default",
        "inputs": ", ".join(f"{name} {list(one.shape)}" for name, one in case.types.items()),
    }
    if result is not None:
        said = f"{result.outcome.value.replace('_', ' ')}{': ' if result.message else ''}{result.message}"
        facts[f"backend {backend}"] = said
        if result.worst is not None and result.message != str(result.worst):
            facts["worst element"] = str(result.worst)
    return facts


def _refusal(case: Case) -> str:
    """A sentence that says why an error is expected, with the message of the reference."""
    due = f"An error is expected: its {case.expects_error} is wrong."
    try:
        reference(case.definition, case.attributes, case.inputs, case.outputs)
    except (TypeError, ValueError) as error:
        return f"{due} The reference says: {error}"
    return due


def _numbers(answer: Answer | None) -> dict[str, Floats]:
    """The backend's outputs in float64. Outputs of an element type that no operator has are left out."""
    outputs: Mapping[str, Array] = (answer.outputs if answer else None) or {}
    known = set(DTYPES.values())
    return {name: values.astype(np.float64) for name, values in outputs.items() if values.dtype in known}


def _worst(
    expected: Mapping[str, Floats], got: Mapping[str, Floats], result: Result | None
) -> tuple[str, tuple[int, ...]] | None:
    """The worst element that the verdict names, or else the element with the largest difference of the first output."""
    named = result.worst if result else None
    if named is not None and named.index is not None and named.output in got:
        return named.output, named.index
    for name, due in expected.items():
        if name in got and due.size:
            apart = np.abs(differences(got[name], due))
            at = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), apart.shape)
            return name, tuple(int(i) for i in at)
    return None
