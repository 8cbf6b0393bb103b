"""The oracle: what each operator computes, as plain float64 loops.

A family of operators is a module here. Each of its functions takes the inputs by position, None for an absent one, and
the attributes by name. A function with one result returns it; one with several takes `outputs`, the names in lower case
of those that are wanted, and returns a tuple with None for the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from ortops.shapes import output_shapes
from ortops.spec import ELEMENT_DTYPES, Operator

__all__ = ["evaluate"]


def evaluate(
    operator: Operator,
    inputs: Sequence[npt.ArrayLike | None],
    attributes: Mapping[str, object],
    wanted: Sequence[bool] | None = None,
) -> list[npt.NDArray[np.float64] | None]:
    """The outputs of `operator`, unrounded, after every check that the operator makes.

    Args:
        operator: the definition.
        inputs: in the operator's order; None, or nothing at the end, for an optional input that is absent.
        attributes: those given; the others have their defaults.
        wanted: one bool an output; all of them by default.

    Returns:
        One array an output, float64 whatever the inputs' type, in the operator's order; None where it is not wanted.

    Raises:
        TypeError: an attribute is unknown or has a wrong type; an input has an element type that the operator does not
            allow or that is not the one of the inputs it must agree with.
        ValueError: a value, a shape or the data break a rule, or no output is wanted.
    """
    arguments = operator.check_attributes(attributes)
    names = _wanted_names(operator, wanted)
    arrays = _by_name(operator, inputs)
    _check_types(operator, arrays)
    shapes = {name: array.shape for name, array in arrays.items()}
    lengths = {t.name: arrays[t.name].ravel().tolist() for t in operator.inputs if t.element_axes and t.name in arrays}
    output_shapes(operator, shapes, lengths, arguments)

    function = getattr(importlib.import_module(f"{__name__}.{operator.family}"), operator.function)
    given = [_widened(arrays.get(tensor.name)) for tensor in operator.inputs]
    if len(operator.outputs) == 1:
        return [function(*given, **arguments)]
    outputs = tuple(name.lower() for name in names)
    return cast("list[npt.NDArray[np.float64] | None]", list(function(*given, **arguments, outputs=outputs)))


def _wanted_names(operator: Operator, wanted: Sequence[bool] | None) -> list[str]:
    flags = [True] * len(operator.outputs) if wanted is None else list(wanted)
    if len(flags) != len(operator.outputs):
        raise ValueError(f"wanted = {flags}: must have {len(operator.outputs)} entries, one an output")
    if not any(flags):
        raise ValueError(f"wanted = {flags}: {operator.name} needs at least one output")
    return [tensor.name for tensor, flag in zip(operator.outputs, flags, strict=True) if flag]


def _by_name(operator: Operator, inputs: Sequence[npt.ArrayLike | None]) -> dict[str, npt.NDArray[np.generic]]:
    if len(inputs) > len(operator.inputs):
        raise ValueError(f"{len(inputs)} inputs: {operator.name} has {len(operator.inputs)}")
    named = zip(operator.inputs, inputs, strict=False)
    return {tensor.name: np.asarray(value) for tensor, value in named if value is not None}


def _check_types(operator: Operator, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
    """Tensors of one type variable share one element type, and it is one of those allowed."""
    first: dict[str, str] = {}
    for tensor in operator.inputs:
        if tensor.name not in arrays:
            continue
        found = arrays[tensor.name].dtype
        allowed = operator.element_types(tensor)
        if found not in [ELEMENT_DTYPES[element] for element in allowed]:
            raise TypeError(f"{tensor.name} has type {found}: must be one of {', '.join(allowed)}")
        agreed = first.setdefault(tensor.type, tensor.name)
        if found != arrays[agreed].dtype:
            raise TypeError(f"{tensor.name} has type {found}: must be {arrays[agreed].dtype}, as {agreed}")


def _widened(array: npt.NDArray[np.generic] | None) -> npt.NDArray[np.generic] | None:
    if array is None or array.dtype.kind in "iu":
        return array
    return array.astype(np.float64)
