"""The expected values of cases: their own, or those of the float64 reference, computed on first use and cached.

Generated cases store no expected values, so that listing them is quick and a new case needs no new file.
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

_cache: dict[tuple[object, ...], list[Floats | None]] = {}


def reference(
    operator: Operator, attributes: Mapping[str, object], inputs: Mapping[str, Array], outputs: Sequence[str]
) -> dict[str, Floats]:
    """The named outputs of `operator` by the float64 reference, unrounded. The cache shares them: do not write to them.

    Raises:
        TypeError: an attribute is unknown or has a wrong type.
        ValueError: the operator refuses the value of an attribute, or the data.
    """
    arguments = operator.check_attributes(attributes)
    widened = [_widened(inputs[tensor.name]) if tensor.name in inputs else None for tensor in operator.inputs]
    wanted = tuple(tensor.name in outputs for tensor in operator.outputs)
    # Without the operator's name, so that its versions and element types share results.
    stored = tuple(None if a is None else (a.dtype.str, a.shape, a.tobytes()) for a in widened)
    key = (operator.function, tuple(sorted(arguments.items())), stored, wanted)
    if key not in _cache:
        _cache[key] = evaluate(operator, widened, attributes, wanted)
    return {t.name: y for t, y in zip(operator.outputs, _cache[key], strict=True) if y is not None}


def clear_cache() -> None:
    """Free the results of `reference`, as endless runs of cases must."""
    _cache.clear()


def expected_outputs(case: Case) -> dict[str, Floats]:
    """The expected outputs by name, in float64: the case's own, or else those of the reference."""
    if case.expected is None:
        return reference(case.definition, case.attributes, case.inputs, case.outputs)
    return {name: value.astype(np.float64) for name, value in case.expected.items()}


def _widened(array: Array) -> Array:
    exact: type[Any] = np.int64 if array.dtype.kind in "iu" else np.float64
    return array if array.dtype == exact else array.astype(exact)
