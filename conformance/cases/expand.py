"""Make the cases of a scenario: one for each version of the operator that can express it and each element type."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.case import Array, Case, Source
from conformance.error_terms import unit_roundoff
from conformance.expected_values import by_reference
from ortops.operators import OPERATORS
from ortops.spec import ELEMENT_DTYPES, AttributeValue, Operator

FLOATS = ("float16", "bfloat16", "float", "double")


def expand(
    scenario: str,
    *,
    function: str,
    note: str,
    attributes: Mapping[str, AttributeValue],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    source: Source | None = None,
    types: Collection[str] = FLOATS,
    variant: str = "",
    write_defaults: bool = True,
    published_type: str | None = None,
    input_error: float = 0.0,
    **rest: Any,
) -> Iterator[Case]:
    """Make the cases of a scenario.

    Args:
        scenario: the part `family/scenario` of the ids.
        function: the function of the operators; every operator that computes it gets cases.
        note: a description of what the cases test.
        attributes: those of the function; an operator that fixes one to another value gets no case.
        inputs: by name, in float64 or integers. They are rounded to the element type; integers keep a type that the
            operator allows.
        outputs: the names of the outputs.
        source: the source of the expected values; None for the reference.
        types: element types; those that the operator lacks are left out.
        variant: further parts of the id, before the type.
        write_defaults: whether attributes that are left out are written on the node with their defaults.
        published_type: the element type in which the expected values were published; in other types, the rounding of
            the inputs is part of `input_error`.
        input_error: see `Case`.
        rest: further fields of `Case`.
    """
    for operator in OPERATORS:
        own = _own_attributes(operator, function, attributes)
        if own is None:
            continue
        if write_defaults:
            own = {a.name: own.get(a.name, a.default) for a in operator.attributes}
        version = [f"v{operator.standard[1]}"] if operator.standard else []
        for element_type in _types_of(operator, types):
            dtype = ELEMENT_DTYPES[element_type]
            yield Case(
                id="/".join([function, scenario, *version, *filter(None, [variant]), element_type]),
                source=source or by_reference(function),
                operator=operator.name,
                attributes=own,
                inputs={name: _rounded(operator, name, array, dtype) for name, array in inputs.items()},
                outputs=tuple(outputs),
                note=note,
                input_error=input_error + _rounding(inputs, element_type, published_type),
                **rest,
            )


def _own_attributes(
    operator: Operator, function: str, attributes: Mapping[str, AttributeValue]
) -> dict[str, AttributeValue] | None:
    """The attributes to write on a node of `operator`, or None if it fixes one of them to another value."""
    if operator.function != function:
        return None
    if any(attributes.get(name, value) != value for name, value in operator.constants.items()):
        return None
    return {a.name: attributes[a.name] for a in operator.attributes if a.name in attributes}


def _types_of(operator: Operator, types: Collection[str]) -> list[str]:
    """The members of `types` that the operator's floating-point tensors may have."""
    return [t for allowed in operator.types.values() for t in allowed if t in FLOATS and t in types]


def _rounded(operator: Operator, name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    tensor = next(tensor for tensor in operator.inputs if tensor.name == name)
    allowed = [ELEMENT_DTYPES[element_type] for element_type in operator.element_types(tensor)]
    if dtype in allowed:
        return array.astype(dtype)
    # Indices keep their type if the operator allows it; otherwise they get its first one.
    return array if array.dtype in allowed else array.astype(allowed[0])


def _rounding(inputs: Mapping[str, Array], element_type: str, published_type: str | None) -> float:
    if published_type is None or element_type in (published_type, "double"):
        return 0.0
    return unit_roundoff(ELEMENT_DTYPES[element_type]) * float(np.max(np.abs(inputs["X"])))
