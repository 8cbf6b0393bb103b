# SPDX-License-Identifier: MIT
"""What the gradient package knows about this project's operators. Its other files do not import `ortops`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ortops.operators import BY_NAME, OPERATORS
from ortops.operators.dml_resample import DML_RESAMPLE_GRAD
from ortops.spec import DOMAIN, DOMAIN_VERSION, AttributeValue, Operator

__all__ = [
    "BY_NAME",
    "DML_RESAMPLE_GRAD",
    "DOMAIN",
    "DOMAIN_VERSION",
    "OPERATORS",
    "REGIONS",
    "STANDARD",
    "WITH_ROIS",
    "AttributeValue",
    "Operator",
]

STANDARD = {operator.standard: operator for operator in OPERATORS if operator.standard}
"""This project's operators by the ONNX operator that they implement, and its opset."""


def _named(operators: Iterable[Operator]) -> Iterator[tuple[str, str, Operator]]:
    """Yield the domain and the name of operators, and of the ONNX operators that they implement."""
    for operator in operators:
        yield DOMAIN, operator.name, operator
        if operator.standard:
            yield "", operator.standard[0], operator


WITH_ROIS = {
    (domain, name)
    for domain, name, operator in _named(OPERATORS)
    if len((BY_NAME[operator.gradient] if operator.gradient else operator).outputs) > 1
}
"""Operators whose second input is RoIs, if the operator or its forward operator has a gradient for these."""

REGIONS = {
    (domain, name, i)
    for domain, name, operator in _named(OPERATORS)
    for i, tensor in enumerate(operator.inputs)
    if tensor.name in ("rois", "ROITensor")
}
"""The inputs that are regions of interest, by domain, operator and index."""
