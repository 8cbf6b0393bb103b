"""Calling an operator on NumPy arrays: their types are checked and made alike, then it computes as in a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ortops.compute import compute, runner_for_threads
from ortops.shapes import Shape
from ortops.spec import ELEMENT_DTYPES, Operator

Array = np.ndarray[Any, Any]
_INT64 = np.iinfo(np.int64)


def gradients(outputs: Sequence[str]) -> tuple[bool, bool]:
    """Whether dx and drois are among the outputs asked for.

    Raises:
        ValueError: none is, or something else is.
    """
    if not outputs or not set(outputs) <= {"dx", "drois"}:
        raise ValueError(f"outputs = {outputs!r}: must be one or both of 'dx' and 'drois'")
    return "dx" in outputs, "drois" in outputs


def call(
    operator: Operator, inputs: Sequence[ArrayLike | None], attributes: Mapping[str, object], wanted: Sequence[bool]
) -> list[Any]:
    """The outputs of an operator, None where not wanted.

    Raises:
        TypeError, ValueError: an attribute, a type, a shape or the data breaks a rule.
    """
    checked = operator.check_attributes(attributes)
    arrays, types = _arrays(operator, inputs)
    outputs: list[Any] = [None] * len(wanted)

    def allocate(i: int, shape: Shape) -> Any:
        if wanted[i]:
            kind = operator.outputs[i].type
            outputs[i] = np.empty(shape, types.get(kind) or ELEMENT_DTYPES[kind])
        return outputs[i]

    compute(operator, arrays, checked, allocate, runner_for_threads())
    return outputs


def _arrays(
    operator: Operator, inputs: Sequence[ArrayLike | None]
) -> tuple[list[Array | None], dict[str, np.dtype[Any]]]:
    """The inputs as C-contiguous arrays, and the type that each type variable has.

    Integers of any width become int64; other arrays must have the operator's types, but lists take that of the first array.
    """
    arrays: list[Array | None] = []
    types: dict[str, np.dtype[Any]] = {}
    for tensor, value in zip(operator.inputs, inputs, strict=True):
        if value is None:
            arrays.append(None)
            continue
        allowed = [ELEMENT_DTYPES[name] for name in operator.element_types(tensor)]
        array = np.asarray(value)
        if np.dtype(np.int64) in allowed and (array.dtype.kind in "iu" or array.size == 0):
            array = (
                array.clip(max=_INT64.max).astype(np.int64)
                if array.dtype == np.uint64
                else array.astype(np.int64, copy=False)
            )
        elif not isinstance(value, np.ndarray | np.generic):
            array = array.astype(types.get(tensor.type, allowed[-1]), copy=False)
        expected = types.setdefault(tensor.type, array.dtype)
        if array.dtype not in allowed or array.dtype != expected:
            names = [str(dtype) for dtype in ([expected] if expected in allowed else allowed)]
            raise TypeError(f"{tensor.name} has type {array.dtype}: must be {' or '.join(names)}")
        arrays.append(np.asarray(array, order="C"))
    return arrays, types
