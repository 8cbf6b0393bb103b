"""Operators of users: a Python function on NumPy arrays that ONNX Runtime runs, with its definition."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np

from ortops.shapes import Axes
from ortops.signatures import check_function, check_keywords, signature_of
from ortops.spec import (
    ANY_SHAPE,
    DOMAIN,
    ELEMENT_DTYPES,
    Attribute,
    AttributeValue,
    Bind,
    Compute,
    Constructor,
    ElementType,
    Length,
    Operator,
    ShapeFunction,
    Tensor,
    check_combinations,
)

if TYPE_CHECKING:
    import onnx

_RESERVED = ("", "ai.onnx", DOMAIN)
"""Domains that ONNX Runtime or the library of onnxruntime-extensions has already."""

_STRINGS = "OUST"
"""The kinds of NumPy's types of strings: objects, str, bytes and variable-width strings."""


class OperatorError(RuntimeError):
    """A custom operator raised an exception, which is the cause of this one, or returned what its definition forbids."""


class _ShapesError(OperatorError):
    """A function of shapes returned something else."""


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
            made = self.call()
            return functools.partial(self._bind, made), getattr(made, "close", lambda: None)
        except RecursionError:
            raise
        except Exception as error:
            raise OperatorError(f"its constructor: {_said(error)}") from error

    def check_node(self, shapes: Mapping[str, Any], attributes: Mapping[str, AttributeValue]) -> None:
        """Check that the function of shapes returns shapes for a node. Its exceptions are for calls to raise.

        Raises:
            OperatorError: it returns something else.
        """
        try:
            if self.shapes is not None:
                self.shapes(shapes, attributes)
        except _ShapesError:
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
                found = f"{len(returned)} values" if isinstance(returned, several) else f"a {type(returned).__name__}"
                names = ", ".join(tensor.name for tensor in self.outputs)
                raise OperatorError(f"it returned {found}: must return a tuple of {len(self.outputs)}, {names}")
            parts = list(returned)
        if not last.variadic:
            return parts
        repeated, due = parts.pop(), count - len(before)
        if not isinstance(repeated, several) or len(repeated) != due:
            found = f"{len(repeated)} arrays" if isinstance(repeated, several) else f"a {type(repeated).__name__}"
            raise OperatorError(f"it returned {found} for {last.name}: must return a list of {due}, as the node has")
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


def _called(call: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    try:
        return call(*arguments, **keywords)
    except RecursionError:
        raise
    except Exception as error:
        raise OperatorError(_said(error)) from error


def _said(error: BaseException) -> str:
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
            length == found or not isinstance(length, int) for length, found in zip(shape, array.shape, strict=True)
        )
        if not fits:
            lengths = ", ".join("?" if length is None else str(length) for length in shape)
            raise OperatorError(f"it returned shape {list(array.shape)} for {tensor.name}: must return [{lengths}]")
    return array


@overload
def operator(function: Callable[..., Any], /) -> CustomOperator: ...


@overload
def operator(
    *,
    domain: str = ...,
    name: str | None = ...,
    doc: str | None = ...,
    inputs: Sequence[Tensor] | None = ...,
    outputs: Sequence[Tensor] | None = ...,
    attributes: Sequence[Attribute] = ...,
    types: Mapping[str, Sequence[ElementType]] | None = ...,
    shapes: Callable[..., Any] | None = ...,
    gradient: str | CustomOperator | None = ...,
    body: onnx.FunctionProto | None = ...,
) -> Callable[[Callable[..., Any]], CustomOperator]: ...


def operator(
    function: Callable[..., Any] | None = None,
    /,
    *,
    domain: str = "custom",
    name: str | None = None,
    doc: str | None = None,
    inputs: Sequence[Tensor] | None = None,
    outputs: Sequence[Tensor] | None = None,
    attributes: Sequence[Attribute] = (),
    types: Mapping[str, Sequence[ElementType]] | None = None,
    shapes: Callable[..., Any] | None = None,
    gradient: str | CustomOperator | None = None,
    body: onnx.FunctionProto | None = None,
) -> CustomOperator | Callable[[Callable[..., Any]], CustomOperator]:
    """Decorate a function on NumPy arrays, or a class, to make it an operator of ONNX Runtime that can still be called.

    Pass the result to `ortops.InferenceSession` or `ortops.register` as one of `operators`.

    The definition follows from the function's annotations. A parameter that is an array is an input: of
    ``numpy.typing.NDArray[np.float32]``, or of a `TypeVar` with several NumPy types, which is a type variable. ``| None =
    None`` makes it optional, ``*x`` variadic, and ``Annotated[..., ("n", 4)]`` gives its shape, in which axes of one name
    have one length. int, float, str, a Literal of strings, and lists of int, float or str are attributes, and so is an array
    behind ``*`` (of type TENSOR). The result is an array, a tuple of arrays, or a list of arrays, which is variadic.
    Arrays of strings are annotated by `np.str_`, and hold str objects; bytes that are not UTF-8 are surrogates in them.

    The function gets copies, which it may keep and change, and must return arrays of exactly the types of the outputs. An
    attribute that is an array is read-only. The function holds the interpreter's lock unless it releases it, as functions
    do that numba compiled with ``nogil=True``. It may run in several threads at once.

    A class is an operator with state: its ``__call__`` is the function. Each session with nodes of the operator has one
    object, which it makes without arguments when the session is made. When the session is gone, or the interpreter exits,
    the object's ``close()`` is called, if it has one.

    Args:
        function: the function or the class, where the decorator has no other argument.
        domain: the domain of its nodes, at version 1; not one of ONNX or of onnxruntime-extensions.
        name: the name of its nodes; the function's by default.
        doc: what it computes; the function's docstring by default.
        inputs: the inputs, and with `attributes` the whole of the parameters, in place of the annotations. Each is passed
            to the parameter of its name, a list of attributes as a tuple.
        outputs: the outputs, in place of the annotation of the result.
        attributes: the attributes, where `inputs` are given.
        types: the element types of each type variable, where `inputs` are given.
        shapes: gives the shapes of the outputs. It is called with the shape of each input in place of the array, and with
            the attributes, all by name. It returns a tuple of lengths, or several such tuples for several outputs. A length
            may be None for an unknown one, or a name, such as "n"; a shape is None if its rank is unknown.
        gradient: the operator that computes the gradient, or its name, for `onnx_models.gradient`. Its inputs have the
            names of the operator's inputs and outputs, and ``d`` before the name of an output for the gradient with respect
            to that output. Its outputs are the gradients with respect to the first inputs.
        body: the same in standard operators, for `onnx_models.portable.attach`, with the operator's name and domain.

    Raises:
        TypeError: an annotation does not say what a parameter is; the function or `shapes` is async or a generator; `shapes`
            does not take the inputs and attributes by name; a class has no ``__call__``, or its constructor needs arguments.
        ValueError: a name, a type or an axis breaks a rule of definitions, or the outputs have too many combinations of
            element types.
    """
    if function is None:
        return functools.partial(
            _made, domain=domain, name=name, doc=doc, inputs=inputs, outputs=outputs, attributes=attributes,
            types=types, shapes=shapes, gradient=gradient, body=body,
        )  # fmt: skip
    return _made(function, domain, name, doc, inputs, outputs, attributes, types, shapes, gradient, body)


def _made(
    function: Callable[..., Any],
    domain: str,
    name: str | None,
    doc: str | None,
    inputs: Sequence[Tensor] | None,
    outputs: Sequence[Tensor] | None,
    attributes: Sequence[Attribute],
    types: Mapping[str, Sequence[ElementType]] | None,
    shapes: Callable[..., Any] | None,
    gradient: str | CustomOperator | None,
    body: onnx.FunctionProto | None,
) -> CustomOperator:
    if not callable(function):
        raise TypeError(f"{function!r}: must be a function, or a class whose objects can be called")
    name = str(getattr(function, "__name__", "")) if name is None else name
    if not name.isidentifier():
        raise ValueError(f"name = {name!r}: must be a Python identifier")
    if domain in _RESERVED or not domain.isascii() or not domain.isprintable() or ":" in domain:
        raise ValueError(f"domain = {domain!r}: must be a name of your own, such as 'com.example'")
    if body is not None and (body.domain, body.name) != (domain, name):
        raise ValueError(f"body is of {body.domain}::{body.name}: must be of {domain}::{name}")
    check_function(function, f"{domain}::{name}")
    as_lists = frozenset[str]()
    if inputs is None:
        read = signature_of(function, f"{domain}::{name}", has_outputs=outputs is not None)
        inputs, attributes, types, as_lists = read.inputs, read.attributes, read.types, read.as_lists
        outputs = read.outputs if outputs is None else outputs
    elif outputs is None:
        raise TypeError(f"{domain}::{name}: outputs must be given where inputs are")
    return CustomOperator(
        name=name,
        family="",
        function="",
        doc=doc or getattr(function, "__doc__", None) or "",
        attributes=tuple(attributes),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        types={variable: tuple(kinds) for variable, kinds in (types or {}).items()},
        domain=domain,
        shapes=shapes
        and _shape_function(f"{domain}::{name}", shapes, tuple(inputs), tuple(outputs), tuple(attributes)),
        gradient=gradient.label if isinstance(gradient, CustomOperator) else gradient,
        call=function,
        as_lists=as_lists,
        body=body,
    )


def _shape_function(
    label: str,
    function: Callable[..., Any],
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    attributes: tuple[Attribute, ...],
) -> ShapeFunction:
    """The function of a user as `Operator.shapes`.

    Raises:
        TypeError: it cannot be called with the inputs and attributes, or is async or a generator.
        ValueError: the number of outputs is not fixed.
    """
    check_function(function, f"{label}: shapes")
    if any(tensor.variadic for tensor in outputs):
        raise ValueError(f"shapes: must not be given, since the output {outputs[-1].name} is variadic")

    check_keywords(function, [*(one.name for one in inputs), *(one.name for one in attributes)], f"{label}: shapes")
    names = {attribute.name for attribute in attributes}

    def shapes(
        known: Mapping[str, Any], values: Mapping[str, AttributeValue]
    ) -> Sequence[tuple[Length, ...] | None] | None:
        if not names <= set(values):
            return None  # an attribute of the function around a node, or a tensor, which sessions do not give here
        given = {tensor.name: known.get(tensor.name) for tensor in inputs}
        try:
            found = function(**given, **values)
        except Exception as error:
            if isinstance(error, TypeError) and not _is_known(given.values()):
                return None  # it computes with lengths that are not numbers
            raise OperatorError(f"shapes: {_said(error)}") from error
        several = [found] if len(outputs) == 1 else found
        if not isinstance(several, list | tuple) or len(several) != len(outputs) or not all(map(_is_shape, several)):
            rule = "a tuple of lengths" if len(outputs) == 1 else f"{len(outputs)} tuples of lengths"
            raise _ShapesError(f"shapes: it returned {found!r}: must return {rule}")
        return [None if one is None else tuple(one) for one in several]

    return shapes


def _is_known(shapes: Iterable[Any]) -> bool:
    """Whether all lengths are numbers, in shapes and lists of shapes."""
    return all(isinstance(one, int) or (isinstance(one, list | tuple) and _is_known(one)) for one in shapes)


def _is_shape(shape: Any) -> bool:
    return shape is None or (
        isinstance(shape, list | tuple)
        and all(
            length is None or isinstance(length, str) or (isinstance(length, int) and length >= 0) for length in shape
        )
    )
