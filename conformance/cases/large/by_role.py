# SPDX-License-Identifier: MIT OR Apache-2.0
"""Formulas whose tensors are named by the roles of `make.py`."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.case import Array
from conformance.cases.make import NAMES, ROTATED
from conformance.error_terms import ErrorTerms
from conformance.formula import Formula, TensorType
from ortops.operators import BY_NAME, OPERATORS
from ortops.spec import ELEMENT_DTYPES, AttributeValue, Operator


@dataclass(frozen=True)
class ByRole(Formula):
    """A formula for one operator.

    operator: the name of its definition.
    element_type: that of the tensors.
    wanted: the roles of the outputs, such as y for an operator, dx and drois for a gradient.
    """

    operator: str
    element_type: str
    wanted: tuple[str, ...]

    @property
    @abc.abstractmethod
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each tensor, by role."""

    @property
    @abc.abstractmethod
    def arguments(self) -> Mapping[str, AttributeValue]:
        """The attributes of the operator, or of the one whose gradient it is."""

    @property
    def definition(self) -> Operator:
        """The operator."""
        return BY_NAME[self.operator]

    @property
    def forward(self) -> str:
        """The function of the operator, or of the one whose gradient it is."""
        return self.definition.function.removesuffix("_grad")

    @property
    def wide_dtype(self) -> np.dtype[Any]:
        """The type of expected values: float32, which holds sums of 16 bits, or double for double."""
        return np.dtype(np.float64 if self.element_type == "double" else np.float32)

    @property
    def roles(self) -> Mapping[str, str]:
        """The role of each tensor, by name."""
        return {name: role for role, name in NAMES[self.forward].items()}

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        """Those of the node, all of them."""
        return {a.name: self.arguments.get(a.name, a.default) for a in self.definition.attributes}

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """See `Formula`. A gradient gets the map only if it needs it."""
        return _inputs(self)

    @property
    def outputs(self) -> Mapping[str, TensorType]:
        """See `Formula`."""
        dtype, roles = ELEMENT_DTYPES[self.element_type], self.roles
        return {name: TensorType(dtype, self.shapes[role]) for name, role in roles.items() if role in self.wanted}

    @property
    def in_float(self) -> ByRole:
        """See `Formula`. The numbers of float16 are those of float, but for turned RoIs."""
        first = next(operator for operator in OPERATORS if operator.function == self.definition.function)
        is_equal = self.element_type == "float16" and self.forward != ROTATED
        return replace(self, operator=first.name, element_type="float" if is_equal else self.element_type)


@functools.lru_cache(256)
def _inputs(formula: ByRole) -> Mapping[str, TensorType]:
    definition, attributes, roles, shapes = formula.definition, formula.attributes, formula.roles, formula.shapes
    wanted = list(formula.outputs)
    types = {
        tensor.name: definition.element_types(tensor)
        for tensor in definition.inputs
        if not tensor.optional or definition.why_required(tensor, attributes, wanted)
    }
    return {
        name: TensorType(
            ELEMENT_DTYPES[formula.element_type if formula.element_type in allowed else allowed[0]], shapes[roles[name]]
        )
        for name, allowed in types.items()
    }


def channels_of_bins(operator: Operator, bins: tuple[int, int]) -> int:
    """How many channels of the map a channel of the result reads: 1, or one for each bin if an equation says so."""
    return math.prod(bins) if operator.equations else 1


def of_own_bins(values: Array) -> Array:
    """A view of the values that are those of a channel's own bin, [..., C, PH, PW], of [..., C * PH * PW, PH, PW]."""
    *first, channels, height, width = values.shape
    parts = values.reshape(*first, channels // (height * width), height, width, height, width)
    return np.asarray(np.einsum("...cijij->...cij", parts))


def uniform(magnitude: float, terms: float, coordinate_error: float = 0.0) -> ErrorTerms:
    """The same terms of the error bound for all elements."""
    return ErrorTerms(np.array(magnitude), terms, np.array(coordinate_error), np.ones(()))
