# SPDX-License-Identifier: MIT
"""What the parameters of users' compiled functions get."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple


class Argument(NamedTuple):
    """What a parameter of the function gets.

    kind: an array that is an "input", of which nothing can be changed, or an "output"; None for an "absent" input; an "int"
        or a "float"; a list of them as an array, "ints" or "floats"; the constant "text"; or the "shape" of an input.
    row: the number of the tensor in a call, or of the attribute in a node.
    dtype: the NumPy type of an array's elements.
    number: this type in ONNX's TensorProto; 0 for an absent input; the number of a text among the attribute's choices.
    rank: the number of an array's dimensions, or of a shape's lengths.
    text: the constant.
    is_cut: whether tasks get parts of the array, along its first axis.
    starts_as_zeros: whether an output's elements are set to 0 first, since the function may leave some as they are.
    """

    kind: Literal["input", "output", "absent", "int", "float", "ints", "floats", "text", "shape"]
    row: int
    dtype: Any = None
    number: int = 0
    rank: int = 0
    text: str = ""
    is_cut: bool = False
    starts_as_zeros: bool = False

    @property
    def is_checked(self) -> bool:
        """Whether a call may have another one than the code is compiled for."""
        return self.kind in ("input", "output", "absent", "text", "shape")


class Returned(NamedTuple):
    """What a function returns.

    length_count: the number of lengths. None are returned by a function that fills outputs of known shapes.
    places: each axis of an output that a length is for: the number of the output among all tensors of a call, that of the
        axis, that of the length, or for a function of shapes of the first length that must be the same, and the size of an
        element of the output.
    ranks: for a function of shapes, the number of lengths for each output.
    are_upper_bounds: for a function of shapes, whether the function of the operator returns the final lengths.
    """

    length_count: int = 0
    places: Sequence[tuple[int, int, int, int]] = ()
    ranks: tuple[int, ...] | None = None
    are_upper_bounds: bool = False


class UserCode(NamedTuple):
    """What there is to compile.

    function: the function.
    variants: what each of its parameters gets; a call takes the variant whose types, absent inputs and texts it has.
    options: numba's, besides those that all such functions have.
    returned: what the function returns.
    operator: the name and domain of the operator.
    """

    function: Callable[..., Any]
    variants: Sequence[Sequence[Argument]]
    options: Mapping[str, bool]
    returned: Returned
    operator: str

    @property
    def types(self) -> tuple[str, ...]:
        """All that decides the code but the function, as text."""
        return (*map(repr, self.variants), repr(sorted(self.options.items())), repr(self.returned))


class CompileError(TypeError):
    """numba cannot compile a function."""
