# SPDX-License-Identifier: MIT
"""Operators' definitions for compiled code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ortops.native import types
from ortops.native.constants import Constant, Several
from ortops.spec import (
    ANY_SHAPE,
    ELEMENT_TYPES,
    RANK,
    Attribute,
    AttributeValue,
    Operator,
    Quotient,
    Rule,
    Tensor,
    is_ascending,
)

_INT64 = np.iinfo(np.int64)

_KINDS: Mapping[Callable[[Sequence[Any]], bool], int] = {is_ascending: types.ASCENDING, any: types.ONE_GIVEN}


@functools.cache
def definition_of(operator: Operator) -> Constant:
    """An operator's definition (`types.Definition`).

    Raises:
        ValueError: a definition cannot tell what the operator's is.
    """
    tensors = (*operator.inputs, *operator.outputs)
    has_shapes = operator.shapes is not None and operator.output_memory == types.BUFFERS_FOR_NONE
    if has_shapes or any(tensor.shape == ANY_SHAPE or tensor.variadic for tensor in tensors):
        raise ValueError(f"{operator.label}: compiled code cannot infer its outputs' shapes")
    if len(tensors) > types.MAX_TENSORS or len(_axis_names(operator)) > types.MAX_AXES:
        raise ValueError(f"{operator.label} has more tensors or axes than compiled code has room for")
    if any(rule.holds not in _KINDS for rule in operator.rules):
        raise ValueError(f"{operator.label} has a rule that compiled code does not know")
    if any(tensor.ranks[-1] > types.MAX_DIMS for tensor in tensors):
        raise ValueError(f"{operator.label} has a tensor with more axes than compiled code has room for")
    return _Parts(operator).definition()


def attribute_value(attribute: Attribute, value: AttributeValue) -> Constant:
    """A checked attribute's value (`types.Attribute`): a number, a choice, or a tuple of numbers."""
    values = value if isinstance(value, tuple) else (value,)
    numbers = [attribute.choices.index(value) if isinstance(value, str) else value for value in values]
    is_float = attribute.type.startswith("FLOAT")
    if attribute.any_length and values:
        return Constant(
            types.Attribute,
            count=len(values),
            values=Constant(types.Values, elsewhere=Several("float64" if is_float else "int64", numbers)),
        )
    kept = Constant(types.Values, floats=numbers) if is_float else Constant(types.Values, ints=numbers)
    return Constant(types.Attribute, count=len(values), values=kept)


class _Parts:
    """The parts of a definition."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._tensors = (*operator.inputs, *operator.outputs)
        self._attributes = {attribute.name: number for number, attribute in enumerate(operator.attributes)}
        self._types = list(dict.fromkeys([*operator.types, *(tensor.type for tensor in self._tensors)]))
        self._axes = {name: number for number, name in enumerate(_axis_names(operator))}

    def definition(self) -> Constant:
        """The whole definition."""
        operator = self._operator
        return Constant(
            types.Definition,
            name=operator.name,
            is_gradient=operator.is_gradient,
            output_names=" and ".join(tensor.name for tensor in operator.outputs),
            rank_axis=self._axes.get(RANK, types.NONE),
            output_memory=operator.output_memory,
            attribute_count=len(operator.attributes),
            attributes=[self._attribute(attribute) for attribute in operator.attributes],
            rule_count=len(operator.rules),
            rules=[self._rule(rule) for rule in operator.rules],
            input_count=len(operator.inputs),
            output_count=len(operator.outputs),
            tensors=[self._tensor(tensor) for tensor in self._tensors],
            types=[self._type(name) for name in self._types],
            axis_count=len(self._axes),
            axes=[self._axis(name) for name in self._axes],
            equation_count=len(operator.equations),
            equations=[self._equation(equation) for equation in operator.equations],
            constant_count=len(operator.constants),
            constants=sorted(operator.constants),
        )

    def _attribute(self, attribute: Attribute) -> Constant:
        # Rounded, as a node's value.
        default = None if attribute.default is None else attribute.check(attribute.default)
        return Constant(
            types.AttributeDefinition,
            name=attribute.name,
            type=types.ATTRIBUTE_TYPES[attribute.type],
            type_name=attribute.type,
            minimum=_INT64.min if attribute.minimum is None else attribute.minimum,
            maximum=_INT64.max if attribute.maximum is None else attribute.maximum,
            is_positive=attribute.positive,
            is_finite=attribute.finite,
            rule=attribute.rule,
            choice_count=len(attribute.choices),
            choices=attribute.choices,
            is_per_axis=attribute.is_per_axis,
            is_any_length=attribute.any_length,
            axis_count=len(attribute.axes),
            axes=", ".join(attribute.axes),
            has_default=default is not None,
            default=attribute_value(attribute, () if default is None else default),
        )

    def _rule(self, rule: Rule) -> Constant:
        numbers = [self._attributes[name] for name in rule.attributes]
        return Constant(types.AttributeRule, kind=_KINDS[rule.holds], count=len(numbers), attributes=numbers)

    def _tensor(self, tensor: Tensor) -> Constant:
        operator = self._operator
        derived = operator.derived_axes.get(str(tensor.shape[0])) if tensor.has_variable_rank else None
        inputs, outputs = ([tensor.name for tensor in tensors] for tensors in (operator.inputs, operator.outputs))
        needed = [len(inputs) + outputs.index(name) for name in tensor.required_for]
        unless, exempt = types.NONE, 0
        if tensor.required_unless:
            unless = self._attributes[tensor.required_unless[0]]
            exempt = operator.attributes[unless].choices.index(tensor.required_unless[1])
        axes = tensor.axes(types.MAX_RANK if tensor.has_variable_rank else len(tensor.shape))
        elements = tensor.axes_of_elements(types.MAX_RANK)
        ranks, shape = " or ".join(map(str, tensor.ranks)), ", ".join(map(str, tensor.shape))
        return Constant(
            types.TensorDefinition,
            name=tensor.name,
            is_optional=tensor.optional,
            type_variable=self._types.index(tensor.type),
            is_variable_rank=tensor.has_variable_rank,
            least_rank=tensor.ranks[0],
            largest_rank=tensor.ranks[-1],
            rank_rule=f"must have rank {ranks}, [{shape}]",
            leading_from=inputs.index(tensor.leading_from) if tensor.leading_from else types.NONE,
            derived_from=self._axes[f"{derived.of}0"] if derived else types.NONE,
            sizes=self._attributes[derived.sizes] if derived else types.NONE,
            scales=self._attributes[derived.scales] if derived else types.NONE,
            required_unless=unless,
            exempt_value=exempt,
            output_count=len(needed),
            outputs=needed,
            element_count=len(elements),
            element_axes=[self._number(axis) for axis in elements],
            axes=[] if derived else [self._number(axis) for axis in axes],
        )

    def _number(self, axis: int | str) -> int:
        return -1 - axis if isinstance(axis, int) else self._axes[axis]

    def _type(self, name: str) -> Constant:
        kinds = self._operator.types.get(name, (name,))
        return Constant(types.TypeVariable, count=len(kinds), types=[ELEMENT_TYPES[kind] for kind in kinds])

    def _axis(self, name: str) -> Constant:
        for number, attribute in enumerate(self._operator.attributes):
            if attribute.name == name:
                return Constant(types.Axis, name=name, attribute=number, value=0, source="the attribute")
            if name in attribute.axes:
                value = attribute.axes.index(name)
                return Constant(types.Axis, name=name, attribute=number, value=value, source=attribute.name)
        return Constant(types.Axis, name=name, attribute=types.NONE, value=0, source="")

    def _equation(self, equation: Quotient) -> Constant:
        divisors = [self._axes[name] for name in equation.by]
        return Constant(
            types.Equation,
            part=self._axes[equation.axis],
            whole=self._axes[equation.of],
            product=" * ".join(equation.by),
            source=f"the equation {equation}",
            divisor_count=len(divisors),
            divisors=divisors,
        )


def _axis_names(operator: Operator) -> dict[str, None]:
    """The axis names in shapes, inputs' elements and equations."""
    axes: list[int | str] = []
    for tensor in (*operator.inputs, *operator.outputs):
        if not tensor.has_variable_rank or str(tensor.shape[0]) not in operator.derived_axes:
            axes += tensor.axes(types.MAX_RANK if tensor.has_variable_rank else len(tensor.shape))
        axes += tensor.axes_of_elements(types.MAX_RANK)
        axes += [RANK] if tensor.has_variable_rank else []
    for equation in operator.equations:
        axes += [equation.axis, equation.of, *equation.by]
    return dict.fromkeys(axis for axis in axes if isinstance(axis, str))
