"""The reference as the suite asks it: by name, and never twice for the same numbers.

The expected values of generated cases are computed when they are first compared, not stored: listing stays quick, and
no file has to be made again when a case is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.case import Array, Case
from ortops.reference import evaluate
from ortops.spec import Operator

Floats = npt.NDArray[np.float64]

_answers: dict[tuple[object, ...], list[Floats | None]] = {}


def reference(
    operator: Operator, attributes: Mapping[str, object], inputs: Mapping[str, Array], outputs: Sequence[str]
) -> dict[str, Floats]:
    """The named outputs of `operator` by the float64 reference, unrounded. They are shared: not to be written to.

    Raises:
        TypeError: an attribute is unknown or has a wrong type.
        ValueError: the operator refuses the value of an attribute, or the data.
    """
    arguments = operator.check_attributes(attributes)
    widened = [_widened(inputs[tensor.name]) if tensor.name in inputs else None for tensor in operator.inputs]
    wanted = tuple(tensor.name in outputs for tensor in operator.outputs)
    # Not the operator's name: versions and element types that mean the same share the answer.
    stored = tuple(None if a is None else (a.dtype.str, a.shape, a.tobytes()) for a in widened)
    question = (operator.function, tuple(sorted(arguments.items())), stored, wanted)
    if question not in _answers:
        _answers[question] = evaluate(operator, widened, attributes, wanted)
    return {t.name: y for t, y in zip(operator.outputs, _answers[question], strict=True) if y is not None}


def forget() -> None:
    """Forget all answers: for those who ask without end."""
    _answers.clear()


def expected_outputs(case: Case) -> dict[str, Floats]:
    """What the case expects, by name, in float64: its own values, or else those of the reference."""
    if case.expected is None:
        return reference(case.definition, case.attributes, case.inputs, case.outputs)
    return {name: value.astype(np.float64) for name, value in case.expected.items()}


def _widened(array: Array) -> Array:
    exact: type[Any] = np.int64 if array.dtype.kind in "iu" else np.float64
    return array if array.dtype == exact else array.astype(exact)
