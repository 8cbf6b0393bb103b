# SPDX-License-Identifier: MIT
"""Shape inference: the shapes of an operator's outputs follow from the shapes of its inputs, by the names of their axes.

A length may be a number, a symbolic name or unknown. `ortops.native.node.shapes` does the same for calls, in compiled code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ortops.spec import ANY_SHAPE, RANK, VARIABLE_AXES, AttributeValue, Length, Operator, Tensor

Shape = tuple[int, ...]


class Axes:
    """The known lengths of an operator's named axes.

    Args:
        operator: the definition.
        attributes: the known attributes, checked. Integers give lengths; lists give the rank of tensors with variable rank.
    """

    def __init__(self, operator: Operator, attributes: Mapping[str, AttributeValue]) -> None:
        self._derived_axes = {name.removesuffix(VARIABLE_AXES): rule for name, rule in operator.derived_axes.items()}
        self._attributes = attributes
        self._known: dict[str, Length] = {name: value for name, value in attributes.items() if isinstance(value, int)}
        self._source = dict.fromkeys(self._known, "the attribute")
        self._leading: dict[str, int] = {}
        self._operator, self._shapes = operator, dict[str, Any]()
        for attribute in operator.attributes:
            value = attributes.get(attribute.name)
            if attribute.is_per_axis and value:
                self._known[RANK], self._source[RANK] = len(value), attribute.name
            elif attribute.axes and value:
                self._known |= dict(zip(attribute.axes, value, strict=True))
                self._source |= dict.fromkeys(attribute.axes, attribute.name)

    def bind_shape(self, tensor: Tensor, shape: Sequence[Length]) -> None:
        """Record the lengths of an input's axes.

        Raises:
            ValueError: the rank is wrong, or a length disagrees with a known length.
        """
        rank = len(shape)
        if tensor.variadic:
            self._shapes.setdefault(tensor.name, []).append(tuple(shape))
        else:
            self._shapes[tensor.name] = tuple(shape)
        if tensor.shape == ANY_SHAPE:
            return
        if rank not in tensor.ranks:
            axes = ", ".join(map(str, tensor.shape))
            ranks = " or ".join(map(str, tensor.ranks))
            raise ValueError(f"{tensor.name} has shape {list(shape)}: must have rank {ranks}, [{axes}]")
        if tensor.has_variable_rank and not self._agree(RANK, rank, tensor):
            raise ValueError(f"{tensor.name} has shape {list(shape)}: rank {self._rule(RANK)}")
        self._leading[tensor.name] = rank - len(tensor.shape)
        for i, axis in enumerate(tensor.axes(rank)):
            if not self._agree(axis, shape[i], tensor):
                raise ValueError(f"{tensor.name} has shape {list(shape)}: shape[{i}] {self._rule(axis)}")
        self._solve(f"{tensor.name} has shape {list(shape)}")

    def bind_values(self, tensor: Tensor, values: Sequence[Length]) -> None:
        """Record the lengths in an input's elements (`Tensor.element_axes`); `values` may be empty.

        Raises:
            ValueError: a length is negative or disagrees with a known length.
        """
        for i, (axis, length) in enumerate(zip(tensor.axes_of_elements(len(values)), values, strict=False)):
            if isinstance(length, int) and length < 0:
                raise ValueError(f"{tensor.name} is {list(values)}: {tensor.name}[{i}] must be >= 0")
            if not self._agree(axis, length, tensor):
                raise ValueError(f"{tensor.name} is {list(values)}: {tensor.name}[{i}] {self._rule(axis)}")
        self._solve(f"{tensor.name} is {list(values)}")

    def shape_of(self, tensor: Tensor) -> tuple[Length, ...] | None:
        """An output's shape, with None for an unknown length; None if the rank is unknown.

        Raises:
            ValueError: a length that follows from others breaks a rule.
        """
        if self._operator.shapes is not None:
            shapes = self._operator.shapes(self._shapes, self._attributes)
            if shapes is not None:
                return shapes[self._operator.outputs.index(tensor)]
        if tensor.shape == ANY_SHAPE or (tensor.leading_from and tensor.leading_from not in self._leading):
            return None
        if not tensor.has_variable_rank:
            return tuple(map(self._length, tensor.axes(len(tensor.shape) + self._leading.get(tensor.leading_from, 0))))
        rank = self._known.get(RANK)
        if not isinstance(rank, int):
            return None
        name = str(tensor.shape[0]).removesuffix(VARIABLE_AXES)
        if name not in self._derived_axes:
            return tuple(map(self._length, tensor.axes(rank)))
        rule = self._derived_axes[name]
        return tuple(rule.length(self._known.get(f"{rule.of}{i}"), i, self._attributes) for i in range(rank))

    def _length(self, axis: int | str) -> Length:
        if isinstance(axis, str) and self._known.get(axis) is None:  # a product that equations have not solved
            products = [equation.by for equation in self._operator.equations if equation.of == axis]
            return 0 if any(self._known.get(name) == 0 for names in products for name in names) else None
        return axis if isinstance(axis, int) else self._known[axis]

    def _agree(self, axis: int | str, length: Length, tensor: Tensor) -> bool:
        if isinstance(axis, int):
            return length == axis or not isinstance(length, int)
        known = self._known.get(axis)
        if isinstance(known, int):
            return length == known or not isinstance(length, int)
        # A number replaces a symbolic name, and a name replaces an unknown length.
        if known is None or isinstance(length, int):
            self._known[axis], self._source[axis] = length, tensor.name
        return True

    def _solve(self, given: str) -> None:
        """Add the lengths that follow from the operator's equations; errors name `given`, an input with its value."""
        for equation in self._operator.equations:
            for axis, length in equation.solved(self._known, given).items():
                if self._known.get(axis) != length:
                    self._known[axis], self._source[axis] = length, f"the equation {equation}"

    def _rule(self, axis: int | str) -> str:
        if isinstance(axis, int):
            return f"must be {axis}"
        return f"must be {self._known[axis]} ({axis} of {self._source[axis]})"


def output_shapes(
    operator: Operator,
    shapes: Mapping[str, Shape],
    values: Mapping[str, Sequence[int]],
    attributes: Mapping[str, AttributeValue],
) -> list[Shape]:
    """The shapes of all outputs.

    Args:
        operator: the definition.
        shapes: the shape of each input that is present, by name.
        values: the elements of each input whose elements are lengths (`Tensor.element_axes`), by name.
        attributes: the checked attributes.

    Raises:
        ValueError: a required input is missing, a rank is wrong, two inputs disagree on an axis, or a length is negative.
    """
    axes = Axes(operator, attributes)
    for tensor in operator.inputs:
        if tensor.name in shapes:
            axes.bind_shape(tensor, shapes[tensor.name])
            axes.bind_values(tensor, values.get(tensor.name, ()))
        elif not tensor.optional:
            raise ValueError(f"{tensor.name} is missing: {operator.name} requires it")
    return [_all_known(axes.shape_of(tensor)) for tensor in operator.outputs]


def _all_known(shape: tuple[Length, ...] | None) -> Shape:
    return tuple(length for length in shape or () if isinstance(length, int))
