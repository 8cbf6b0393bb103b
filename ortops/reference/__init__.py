# SPDX-License-Identifier: MIT
"""The reference implementation of each operator: plain float64 loops, written from the specification.

Each family of operators has a module. A function takes the inputs by position, None for an absent input, and the attributes
by name. If the operator has several outputs, the function also takes `outputs`, the lower-case names of the wanted outputs,
and returns a tuple with None for the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ortops.shapes import output_shapes
from ortops.spec import ELEMENT_DTYPES, AttributeValue, Operator

__all__ = ["evaluate"]


def evaluate(
    operator: Operator,
    inputs: Sequence[npt.ArrayLike | None],
    attributes: Mapping[str, object],
    wanted: Sequence[bool] | None = None,
) -> list[npt.NDArray[np.float64] | None]:
    """Compute an operator's outputs in float64, not rounded to its type, with the same checks as the operator.

    Args:
        operator: the definition.
        inputs: the inputs in the operator's order, None for an absent input; absent inputs at the end may be omitted.
        attributes: the node's attributes; others have their defaults.
        wanted: a bool for each output; by default all are wanted.

    Returns:
        A float64 array for each output in the operator's order, None for an output that is not wanted.

    Raises:
        TypeError: an attribute is unknown or has a wrong type, an input has an element type that the operator does not
            allow, or two inputs with the same type variable have different types.
        ValueError: a value, a shape or the data breaks a rule, no output is wanted, or an output needs an absent input.
    """
    arguments = arguments_of(operator, attributes)
    flags = [True] * len(operator.outputs) if wanted is None else list(wanted)
    if len(flags) != len(operator.outputs):
        raise ValueError(f"wanted = {flags}: must have {len(operator.outputs)} entries, one for each output")
    if not any(flags):
        raise ValueError(f"wanted = {flags}: {operator.name} needs at least one output")
    if len(inputs) > len(operator.inputs):
        raise ValueError(f"{len(inputs)} inputs: {operator.name} has {len(operator.inputs)}")
    named = zip(operator.inputs, inputs, strict=False)
    arrays = {tensor.name: np.asarray(value) for tensor, value in named if value is not None}
    check_types(operator, arrays)
    shapes = {name: array.shape for name, array in arrays.items()}
    lengths = {t.name: arrays[t.name].ravel().tolist() for t in operator.inputs if t.element_axes and t.name in arrays}
    output_shapes(operator, shapes, lengths, arguments)
    names = [tensor.name for tensor, flag in zip(operator.outputs, flags, strict=True) if flag]
    for tensor in operator.inputs:
        if tensor.name not in arrays and (reason := operator.why_required(tensor, arguments, names)):
            raise ValueError(f"{tensor.name} is missing: {reason} requires it")
    given = {name: array if array.dtype.kind in "iu" else array.astype(np.float64) for name, array in arrays.items()}
    positional = [given.get(tensor.name) for tensor in operator.inputs]
    function = function_of(operator)
    if len(operator.outputs) == 1:
        return [function(*positional, **arguments)]
    return list(function(*positional, **arguments, outputs=[name.lower() for name in names]))


def arguments_of(operator: Operator, attributes: Mapping[str, object]) -> dict[str, AttributeValue]:
    """All attributes' values, checked; attributes that the node leaves out have their defaults."""
    return operator.check_attributes(attributes)


def function_of(operator: Operator) -> Callable[..., Any]:
    """This package's function for an operator."""
    return cast(
        "Callable[..., Any]",
        getattr(importlib.import_module(f"ortops.reference.{operator.family}"), operator.function),
    )


def check_types(operator: Operator, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
    """Check that element types are allowed, and that tensors with the same type variable have the same type."""
    first: dict[str, str] = {}
    for tensor in operator.inputs:
        if tensor.name not in arrays:
            continue
        dtype = arrays[tensor.name].dtype
        allowed = operator.element_types(tensor)
        if dtype not in [ELEMENT_DTYPES[element] for element in allowed]:
            raise TypeError(f"{tensor.name} has type {dtype}: must be one of {', '.join(allowed)}")
        agreed = first.setdefault(tensor.type, tensor.name)
        if dtype != arrays[agreed].dtype:
            raise TypeError(f"{tensor.name} has type {dtype}: must be {arrays[agreed].dtype}, as {agreed}")
