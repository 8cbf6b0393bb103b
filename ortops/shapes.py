"""Named axes: from the shapes of an operator's inputs to those of its outputs, with errors that say what disagrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ortops.spec import Operator, Tensor

Shape = tuple[int, ...]


def bind_axes(
    operator: Operator,
    shapes: Mapping[str, Shape],
    values: Mapping[str, Sequence[int]],
    attributes: Mapping[str, object],
) -> dict[str, int]:
    """The length of every named axis.

    Args:
        shapes: by input name, the shape of each input that is present.
        values: by input name, the elements of the inputs that give lengths (`Tensor.values`), where known.
        attributes: the checked attributes.

    Raises:
        ValueError: a required input is missing, a rank is wrong, two inputs disagree on an axis, a length is negative.
    """
    bound = {name: value for name, value in attributes.items() if isinstance(value, int)}
    source = dict.fromkeys(bound, "the attribute")

    def bind(tensor: Tensor, axis: int | str, length: int, where: str) -> None:
        if isinstance(axis, str) and axis not in bound:
            bound[axis], source[axis] = length, tensor.name
        expected = axis if isinstance(axis, int) else bound[axis]
        if length != expected:
            says = "" if isinstance(axis, int) else f" ({axis} of {source[axis]})"
            raise ValueError(f"{where} is {length}: must be {expected}{says}")

    for tensor in operator.inputs:
        if tensor.name not in shapes:
            if not tensor.optional:
                raise ValueError(f"{tensor.name} is missing: {operator.name} requires it")
            continue
        shape = shapes[tensor.name]
        if len(shape) != len(tensor.shape):
            axes = ", ".join(map(str, tensor.shape))
            raise ValueError(f"{tensor.name} has shape {list(shape)}: must have rank {len(tensor.shape)}, [{axes}]")
        for i, (axis, length) in enumerate(zip(tensor.shape, shape, strict=True)):
            bind(tensor, axis, length, f"{tensor.name}: shape[{i}] of {list(shape)}")
        elements = values.get(tensor.name, ())
        for i, (axis, length) in enumerate(zip(tensor.values, elements, strict=False)):
            where = f"{tensor.name}[{i}] of {list(elements)}"
            if length < 0:
                raise ValueError(f"{where} is {length}: must be >= 0")
            bind(tensor, axis, length, where)
    return bound


def output_shape(tensor: Tensor, bound: Mapping[str, int]) -> Shape:
    """The shape of an output, from what `bind_axes` found."""
    return tuple(axis if isinstance(axis, int) else bound[axis] for axis in tensor.shape)
