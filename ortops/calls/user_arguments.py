"""What the parameters of users' compiled functions get."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple


class Argument(NamedTuple):
    """What a parameter of the function gets.

    kind: an array that is an "input", of which nothing can be changed, or an "output"; None for an "absent" input; an "int"
        or a "float"; a list of them as an array, "ints" or "floats"; or the constant "text".
    row: the number of the tensor in a call, or of the attribute in a node.
    dtype: the NumPy type of an array's elements.
    number: this type in ONNX's TensorProto; 0 for an absent input; the number of a text among the attribute's choices.
    rank: the number of an array's dimensions.
    text: the constant.
    is_cut: whether tasks get parts of the array, along its first axis.
    """

    kind: Literal["input", "output", "absent", "int", "float", "ints", "floats", "text"]
    row: int
    dtype: Any = None
    number: int = 0
    rank: int = 0
    text: str = ""
    is_cut: bool = False

    @property
    def is_checked(self) -> bool:
        """Whether a call may have another one than the code is compiled for."""
        return self.kind in ("input", "output", "absent", "text")


class CompileError(TypeError):
    """numba cannot compile a function."""
