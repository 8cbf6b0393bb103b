# SPDX-License-Identifier: MIT
"""Operators of users as definitions with a kernel in Python, which `ortops.custom` makes of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from ortops.shapes import Axes
from ortops.spec import (
    ANY_SHAPE,
    ELEMENT_DTYPES,
    AttributeValue,
    Bind,
    Compute,
    Constructor,
    Length,
    Operator,
    Tensor,
    check_combinations,
)

if TYPE_CHECKING:
    import onnx

_T = TypeVar("_T")

OTHER_DOMAIN = (
    "An operator of your own needs another domain, such as 'custom': set node.domain = 'custom' in the nodes of the model, "
    "and import it with model.opset_import.append(onnx.helper.make_opsetid('custom', 1))"
)
"""The remedy for an operator in a domain where users can have none."""

_STRINGS = "OUST"
"""The kinds of NumPy's types of strings: objects, str, bytes and variable-width strings."""


class OperatorError(RuntimeError):
    """A custom operator raised an exception, which is the cause of this one, or returned what its definition forbids."""


class ShapesError(OperatorError):
    """A function of shapes returned something else."""


_MIN_INPUTS = {
    **dict.fromkeys(("Add", "Conv", "ConvTranspose", "Div", "Gather", "Gemm", "Mul", "Sub"), 2),
    "Where": 3,
}
"""By name, how many inputs an operator must have: ONNX Runtime 1.32 reads as many without a look at the domain."""


@dataclass(frozen=True, eq=False, repr=False)
class CustomOperator(Operator):
    """An operator whose kernel is a Python function, or a class with one object for each session; `operator` makes it.

    It can be called as the function or the class.

    call: the function or the class.
    as_lists: the names of the attributes that the function takes as lists, and not as tuples.
    body: the same in standard operators, or None.
    """

    call: Callable[..., Any] = print
    as_lists: frozenset[str] = frozenset()
    body: onnx.FunctionProto | None = None

    max_rank: ClassVar[int] = 17
    # An array over ONNX Runtime's memory that outlived the call, in a cache or a traceback, would be read after it is freed.
    keeps_inputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check what the engines take for granted.

        Raises:
            ValueError: a rule of definitions is broken.
        """
        super().__post_init__()
        for kind, tensors in (("input", self.inputs), ("output", self.outputs)):
            for tensor in tensors[:-1]:
                if tensor.variadic:
                    raise ValueError(f"{self.label}: {tensor.name} is variadic: only the last {kind} can be")
        least = _MIN_INPUTS.get(self.name, 0)
        if sum(not tensor.optional for tensor in self.inputs) < least and not any(x.variadic for x in self.inputs):
            raise ValueError(
                f"{self.label}: must have another name, or {least} inputs: ONNX Runtime takes it for ONNX's {self.name}, in "
                "any domain, and ends the process where it has fewer"
            )
        read = {tensor.type for tensor in self.inputs}
        for variable in self.types:
            if variable not in read:
                raise ValueError(f"{self.label}: no input has the type {variable}: must have one")
        if not self.outputs:
            raise ValueError(f"{self.label} has no output: must have one")
        check_combinations(self.label, "its outputs have", self.types_of_outputs)
        self.__dict__.update(
            {name: getattr(self.call, name, None) for name in ("__module__", "__name__", "__qualname__", "__doc__")}
        )

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function, or make an object of the class."""
        return self.call(*arguments, **keywords)

    def __repr__(self) -> str:
        return f"<ortops.operator {self.label}>"

    def __reduce__(self) -> str:
        return self.call.__qualname__  # by name, as functions are pickled

    @property
    def constructor(self) -> Constructor | None:
        """Makes an object of the class."""
        return self._construct if isinstance(self.call, type) else None

    def _construct(self) -> tuple[Bind, Callable[[], object]]:
        try:
            instance = self.call()
            return functools.partial(self._bind, instance), getattr(instance, "close", lambda: None)
        except RecursionError:
            raise
        except Exception as error:
            raise OperatorError(f"its constructor: {describe(error)}") from error

    def check_node(self, shapes: Mapping[str, Any], attributes: Mapping[str, AttributeValue]) -> None:
        """Check that the function of shapes returns shapes for a node. Its exceptions are for calls to raise.

        Raises:
            OperatorError: it returns something else.
        """
        try:
            if self.shapes is not None:
                self.shapes(shapes, attributes)
        except ShapesError:
            raise
        except OperatorError:
            pass

    def bind(self, operator: Operator, attributes: dict[str, AttributeValue], kinds: Sequence[str]) -> Compute:
        """Make the function that computes a node: it calls `call` and copies what that returns.

        Args:
            operator: the operator itself.
            attributes: the checked attributes.
            kinds: the element types of the node's outputs.
        """
        return self._bind(self.call, operator, attributes, kinds)

    def _bind(
        self, call: Callable[..., Any], _: Operator, attributes: dict[str, AttributeValue], kinds: Sequence[str]
    ) -> Compute:
        """As `bind`, with a function, or an object of the class, to call."""
        names = [tensor.name for tensor in self.inputs]
        required = {i for i, tensor in enumerate(self.inputs) if not tensor.optional}
        lists = [name for name in self.as_lists if attributes[name] is not None]
        is_variadic = bool(self.inputs) and self.inputs[-1].variadic
        tensors = [*self.outputs, *self.outputs[-1:] * (len(kinds) - len(self.outputs))]
        shaped = (*self.inputs, *self.outputs)
        has_shapes = self.shapes is not None or any(tensor.shape != ANY_SHAPE for tensor in shaped)

        def compute(inputs: Sequence[Any], allocate: Callable[..., Any], _: object) -> None:
            for i, array in enumerate(inputs):
                if array is None and i in required:
                    raise ValueError(f"{names[i]} is missing: {self.label} requires it")
                if array is not None and array.ndim >= self.max_rank:
                    raise ValueError(
                        f"an input has {self.max_rank} axes or more: must have at most {self.max_rank - 1}"
                    )
            shapes = self._output_shapes(inputs, attributes) if has_shapes else [None] * len(self.outputs)
            given = {**attributes, **{name: list(attributes[name]) for name in lists}}
            if is_variadic:
                results = self._results(_called(call, inputs, given), len(kinds))
            else:
                results = self._results(
                    _called(call, (), {**dict(zip(names, inputs, strict=True)), **given}), len(kinds)
                )
            for i, (tensor, kind, result) in enumerate(zip(tensors, kinds, results, strict=False)):
                if result is None and tensor.optional:
                    array, out = np.empty(0), allocate(i, (0,))
                    if out is not None:
                        raise OperatorError(f"it returned None for {tensor.name}, which the node has")
                else:
                    array = _checked(tensor, kind, result, shapes[min(i, len(shapes) - 1)])
                    out = allocate(i, array.shape)
                if out is not None:
                    out[...] = array

        return compute

    def _results(self, returned: Any, count: int) -> Sequence[Any]:
        """What the function returned as a list with an element for each of the `count` outputs of a node."""
        *before, last = self.outputs
        if not before and not last.variadic:
            return [returned]
        several = (list, tuple)
        parts: list[Any] = [returned]
        if before:
            if not isinstance(returned, several) or len(returned) != len(self.outputs):
                given = f"{len(returned)} values" if isinstance(returned, several) else f"a {type(returned).__name__}"
                names = ", ".join(tensor.name for tensor in self.outputs)
                raise OperatorError(f"it returned {given}: must return a tuple of {len(self.outputs)}, {names}")
            parts = list(returned)
        if not last.variadic:
            return parts
        repeated, due = parts.pop(), count - len(before)
        if not isinstance(repeated, several) or len(repeated) != due:
            given = f"{len(repeated)} arrays" if isinstance(repeated, several) else f"a {type(repeated).__name__}"
            raise OperatorError(f"it returned {given} for {last.name}: must return a list of {due}, as the node has")
        return [*parts, *repeated]

    def _output_shapes(
        self, inputs: Sequence[Any], attributes: Mapping[str, AttributeValue]
    ) -> list[tuple[Length, ...] | None]:
        """The shapes that the outputs must have, after a check of those of the inputs."""
        axes = Axes(self, attributes)
        for i, array in enumerate(inputs):
            if array is not None:
                tensor = self.inputs[min(i, len(self.inputs) - 1)]
                axes.bind_shape(tensor, array.shape)
                if tensor.element_axes:
                    axes.bind_values(tensor, array.ravel().tolist())
        return [axes.shape_of(tensor) for tensor in self.outputs]


def as_operators(operators: Operator | Iterable[_T]) -> tuple[_T, ...]:
    """The elements of an argument `operators`, which may also be a single operator.

    Raises:
        TypeError: the argument is neither an operator nor iterable.
    """
    if isinstance(operators, Operator):
        return (operators,)  # type: ignore[return-value]
    if not isinstance(operators, Iterable):
        raise TypeError(f"operators = {operators!r}: must be operators made by ortops.operator, in a list")
    return tuple(operators)


def _called(call: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    try:
        return call(*arguments, **keywords)
    except RecursionError:
        raise
    except Exception as error:
        raise OperatorError(describe(error)) from error


def describe(error: BaseException) -> str:
    """The name and the message of an exception."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _checked(tensor: Tensor, kind: str, result: Any, shape: tuple[Length, ...] | None) -> np.ndarray[Any, Any]:
    """A result as an array that its output can hold.

    Raises:
        OperatorError: it is no array, or has another element type or another shape than the output.
    """
    if not isinstance(result, np.ndarray | np.generic):
        raise OperatorError(f"it returned a {type(result).__name__} for {tensor.name}: must return an array")
    array = np.asarray(result)
    if kind == "string":
        is_text = array.dtype.kind in _STRINGS
        wrong = (
            [type(text).__name__ for text in array.flat if not isinstance(text, str | bytes)]
            if is_text
            else [array.dtype]
        )
        if wrong:
            raise OperatorError(f"it returned {wrong[0]} in {tensor.name}: must return strings")
    elif array.dtype != ELEMENT_DTYPES[kind]:
        raise OperatorError(f"it returned {array.dtype} for {tensor.name}: must return {ELEMENT_DTYPES[kind]}")
    if shape is not None:
        fits = len(shape) == array.ndim and all(
            length == actual or not isinstance(length, int) for length, actual in zip(shape, array.shape, strict=True)
        )
        if not fits:
            lengths = ", ".join("?" if length is None else str(length) for length in shape)
            raise OperatorError(f"it returned shape {list(array.shape)} for {tensor.name}: must return [{lengths}]")
    return array


def check_domain(domain: str) -> None:
    """Check that a domain of operators is a name, at most that of this project.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(domain, str) or not domain or not domain.isascii() or not domain.isprintable() or ":" in domain:
        raise ValueError(f"domain = {domain!r}: must be a name, such as 'com.example'")
    if domain == "ai.onnx":
        raise ValueError("domain = 'ai.onnx': is ONNX's own: must be another name, such as 'com.example'")
