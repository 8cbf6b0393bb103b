"""Named axes: from the shapes of an operator's inputs to those of its outputs, with errors that say what disagrees.

It serves running tensors, whose lengths are numbers, and graphs, where a length may be a name or unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ortops.spec import RANK, VARIABLE_AXES, AttributeValue, Length, Operator, Tensor

Shape = tuple[int, ...]


class Axes:
    """The lengths of an operator's named axes, as far as they are known.

    Args:
        operator: the definition.
        attributes: the checked attributes, as far as known; those that are integers give lengths, a list the open rank.
    """

    def __init__(self, operator: Operator, attributes: Mapping[str, AttributeValue]) -> None:
        self._derived = {name.removesuffix(VARIABLE_AXES): rule for name, rule in operator.derived_axes.items()}
        self._attributes = attributes
        self._known: dict[str, Length] = {name: value for name, value in attributes.items() if isinstance(value, int)}
        self._source = dict.fromkeys(self._known, "the attribute")
        self._leading: dict[str, int] = {}
        for attribute in operator.attributes:
            value = attributes.get(attribute.name)
            if attribute.is_per_axis and value:
                self._known[RANK], self._source[RANK] = len(value), attribute.name
            elif attribute.axes and value:
                self._known |= dict(zip(attribute.axes, value, strict=True))
                self._source |= dict.fromkeys(attribute.axes, attribute.name)

    def bind_shape(self, tensor: Tensor, shape: Sequence[Length]) -> None:
        """Learn the axes of an input from its shape.

        Raises:
            ValueError: the rank is wrong, or a length disagrees with one already known.
        """
        rank = len(shape)
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

    def bind_values(self, tensor: Tensor, values: Sequence[Length]) -> None:
        """Learn axes from the elements of an input that gives lengths; from none where there are no values.

        Raises:
            ValueError: a length is negative or disagrees with one already known.
        """
        for i, (axis, length) in enumerate(zip(tensor.axes_of_elements(len(values)), values, strict=False)):
            if isinstance(length, int) and length < 0:
                raise ValueError(f"{tensor.name} is {list(values)}: {tensor.name}[{i}] must be >= 0")
            if not self._agree(axis, length, tensor):
                raise ValueError(f"{tensor.name} is {list(values)}: {tensor.name}[{i}] {self._rule(axis)}")

    def shape_of(self, tensor: Tensor) -> tuple[Length, ...] | None:
        """The shape of an output, unknown lengths as None; None for an unknown rank.

        Raises:
            ValueError: a length that follows from others breaks a rule.
        """
        if not tensor.has_variable_rank:
            return tuple(map(self._length, tensor.axes(len(tensor.shape) + self._leading.get(tensor.leading_from, 0))))
        rank = self._known.get(RANK)
        if not isinstance(rank, int):
            return None
        name = str(tensor.shape[0]).removesuffix(VARIABLE_AXES)
        if name not in self._derived:
            return tuple(map(self._length, tensor.axes(rank)))
        source, derive = self._derived[name]
        return tuple(derive(self._known.get(f"{source}{i}"), i, self._attributes) for i in range(rank))

    def _length(self, axis: int | str) -> Length:
        return axis if isinstance(axis, int) else self._known.get(axis)

    def _agree(self, axis: int | str, length: Length, tensor: Tensor) -> bool:
        if isinstance(axis, int):
            return length == axis or not isinstance(length, int)
        known = self._known.get(axis)
        if isinstance(known, int):
            return length == known or not isinstance(length, int)
        # A number says more than a name, and a name more than nothing.
        if known is None or isinstance(length, int):
            self._known[axis], self._source[axis] = length, tensor.name
        return True

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
        shapes: by input name, the shape of each input that is present.
        values: by input name, the elements of the inputs that give lengths (`Tensor.element_axes`).
        attributes: the checked attributes.

    Raises:
        ValueError: a required input is missing, a rank is wrong, two inputs disagree on an axis, a length is negative.
    """
    axes = Axes(operator, attributes)
    for tensor in operator.inputs:
        if tensor.name in shapes:
            axes.bind_shape(tensor, shapes[tensor.name])
            axes.bind_values(tensor, values.get(tensor.name, ()))
        elif not tensor.optional:
            raise ValueError(f"{tensor.name} is missing: {operator.name} requires it")
    return [_known(axes.shape_of(tensor)) for tensor in operator.outputs]


def _known(shape: tuple[Length, ...] | None) -> Shape:
    return tuple(length for length in shape or () if isinstance(length, int))
