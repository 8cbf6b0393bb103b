# SPDX-License-Identifier: MIT
"""Operators of users: a Python function on NumPy arrays that ONNX Runtime runs, with its definition."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from ortops.custom import compiled as compiled_operator
from ortops.custom.operator import OTHER_DOMAIN, ShapesError, describe
from ortops.custom.operator import CustomOperator as CustomOperator  # noqa: PLC0414 - as `ortops` gives them
from ortops.custom.operator import OperatorError as OperatorError  # noqa: PLC0414
from ortops.custom.signatures import check_function, check_keywords, signature_of
from ortops.spec import DOMAIN, Attribute, AttributeValue, ElementType, Length, ShapeFunction, Tensor

if TYPE_CHECKING:
    import onnx


@overload
def operator(function: Callable[..., Any], /) -> CustomOperator: ...


@overload
def operator(
    *,
    domain: str = ...,
    name: str | None = ...,
    doc: str | None = ...,
    inputs: Sequence[Tensor] | None = ...,
    outputs: Sequence[Tensor] | Sequence[str] | None = ...,
    attributes: Sequence[Attribute] = ...,
    types: Mapping[str, Sequence[ElementType]] | None = ...,
    shapes: Callable[..., Any] | None = ...,
    gradient: str | CustomOperator | None = ...,
    body: onnx.FunctionProto | None = ...,
    compiled: bool | Mapping[str, bool] = ...,
    parallel: str = ...,
) -> Callable[[Callable[..., Any]], CustomOperator]: ...


def operator(
    function: Callable[..., Any] | None = None,
    /,
    *,
    domain: str = "custom",
    name: str | None = None,
    doc: str | None = None,
    inputs: Sequence[Tensor] | None = None,
    outputs: Sequence[Tensor] | Sequence[str] | None = None,
    attributes: Sequence[Attribute] = (),
    types: Mapping[str, Sequence[ElementType]] | None = None,
    shapes: Callable[..., Any] | None = None,
    gradient: str | CustomOperator | None = None,
    body: onnx.FunctionProto | None = None,
    compiled: bool | Mapping[str, bool] = False,
    parallel: str = "",
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
        domain: the domain of its nodes, at version 1; not that of onnxruntime-extensions, ai.onnx.contrib. For nodes without
            a domain it is "", if ONNX has no operator of this name at any opset.
        name: the name of its nodes; the function's by default.
        doc: what it computes; the function's docstring by default.
        inputs: the inputs, and with `attributes` the whole of the parameters, in place of the annotations. Each is passed
            to the parameter of its name, a list of attributes as a tuple.
        outputs: the outputs, in place of the annotation of the result; with `compiled`, the names of parameters.
        attributes: the attributes, where `inputs` are given.
        types: the element types of each type variable, where `inputs` are given.
        shapes: gives the shapes of the outputs. It is called with the shape of each input in place of the array, and with
            the attributes, all by name. It returns a tuple of lengths, or several such tuples for several outputs. A length
            may be None for an unknown one, or a name, such as "n"; a shape is None if its rank is unknown. With `compiled`
            numba compiles it, too: it takes those inputs and attributes that it needs, and returns tuples of int, in which
            it gives the axes that no input or attribute gives.
        gradient: the operator that computes the gradient, or its name, for `onnx_models.gradient`. Its inputs have the
            names of the operator's inputs and outputs, and ``d`` before the name of an output for the gradient with respect
            to that output. Its outputs are the gradients with respect to the first inputs.
        body: the same in standard operators, for `onnx_models.portable.attach`, with the operator's name and domain.
        compiled: whether numba compiles the function, so that sessions call it without the interpreter; or so, with options
            of numba: ``{"boundscheck": False, "fastmath": True}``. The function then fills the parameters that `outputs`
            names. All arrays have shapes. Where the data decides lengths, the function is annotated by ``-> int`` or a tuple
            of int, and returns the lengths of the axes that no input or attribute gives. `shapes` then gives the most.
        parallel: of a compiled function: an axis, the first one of all outputs, whose parts can be computed on their own.
            The function is called with parts of the arrays that have this axis, on the threads of the session. The parts
            follow from the shapes alone.

    Raises:
        TypeError: an annotation does not say what a parameter is; the function or `shapes` is async or a generator; `shapes`
            does not take the inputs and attributes by name; a class has no ``__call__``, or its constructor needs arguments.
        ValueError: a name, a type or an axis breaks a rule of definitions, or the outputs have too many combinations of
            element types.
    """
    if function is None:
        return functools.partial(
            operator, domain=domain, name=name, doc=doc, inputs=inputs, outputs=outputs, attributes=attributes,
            types=types, shapes=shapes, gradient=gradient, body=body, compiled=compiled, parallel=parallel,
        )  # fmt: skip
    if not callable(function):
        raise TypeError(f"{function!r}: must be a function, or a class whose objects can be called")
    name = str(getattr(function, "__name__", "")) if name is None else name
    if not name.isidentifier():
        raise ValueError(f"name = {name!r}: must be a Python identifier")
    _check_domain(domain, name)
    if body is not None and not domain:
        raise ValueError(
            f"{name} has a body and the domain '': must have another domain, since ONNX's has no functions"
        )
    if body is not None and (body.domain, body.name) != (domain, name):
        raise ValueError(f"body is of {body.domain}::{body.name}: must be of {domain}::{name}")
    label = f"{domain}::{name}"
    if not isinstance(gradient, str | CustomOperator | None):
        raise TypeError(
            f"{label}: gradient = {gradient!r}: must be made by ortops.operator, or the name of one that is"
        )
    check_function(function, label)
    as_lists = frozenset[str]()
    cls: type[CustomOperator] = CustomOperator
    settings: dict[str, Any] = {}
    if compiled is not False:
        names = compiled_operator.check_settings(label, inputs, outputs, shapes, compiled)
        read, returns = compiled_operator.read(function, label, names)
        inputs, outputs, attributes, types = read.inputs, read.outputs, read.attributes, read.types
        options = compiled if isinstance(compiled, Mapping) else {}
        cls = compiled_operator.CompiledOperator
        settings = {"options": options, "parallel": parallel, "lengths": shapes, "returns": returns}
        if shapes is not None:
            given = compiled_operator.shapes_in_models(label, shapes, read)
            shapes = None if returns else given  # in a model nobody knows what the data decides
    elif parallel:
        raise TypeError(f"{label}: parallel = {parallel!r}: must not be given to an operator that is not compiled")
    elif inputs is None:
        read = signature_of(function, label, has_outputs=outputs is not None)
        inputs, attributes, types, as_lists = read.inputs, read.attributes, read.types, read.as_lists
        outputs = read.outputs if outputs is None else outputs
    elif outputs is None:
        raise TypeError(f"{label}: outputs must be given where inputs are")
    tensors: tuple[Any, ...] = tuple(outputs)
    return cls(
        name=name,
        family="",
        function="",
        doc=doc or getattr(function, "__doc__", None) or "",
        attributes=tuple(attributes),
        inputs=tuple(inputs),
        outputs=tensors,
        types={variable: tuple(kinds) for variable, kinds in (types or {}).items()},
        domain=domain,
        shapes=shapes and _shape_function(label, shapes, tuple(inputs), tensors, tuple(attributes)),
        gradient=gradient.label if isinstance(gradient, CustomOperator) else gradient,
        call=function,
        as_lists=as_lists,
        body=body,
        **settings,
    )


def _check_domain(domain: str, name: str) -> None:
    """Check that ONNX Runtime lets a user have an operator of this name in a domain.

    Raises:
        ValueError: it does not.
    """
    if domain == DOMAIN:
        raise ValueError(
            f"domain = {domain!r}: only ortops and onnxruntime-extensions have operators there. {OTHER_DOMAIN}"
        )
    if domain == "ai.onnx":
        raise ValueError("domain = 'ai.onnx': is another name of the domain '': must be '' for nodes without a domain")
    if not domain and name in _onnx_names():
        raise ValueError(
            f"domain = '': ONNX has an operator {name}: must be another name, or a domain of your own, such as 'custom'"
        )
    if not domain.isascii() or not domain.isprintable() or ":" in domain:
        raise ValueError(f"domain = {domain!r}: must be a name of your own, such as 'com.example'")


def _onnx_names() -> frozenset[str]:
    from ortops.foreign.standard import onnx_names  # here, so that `import ortops` stays fast

    return onnx_names()


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

    check_keywords(
        function,
        [*(tensor.name for tensor in inputs), *(attribute.name for attribute in attributes)],
        f"{label}: shapes",
    )
    names = {attribute.name for attribute in attributes}

    def shapes(
        known: Mapping[str, Any], values: Mapping[str, AttributeValue]
    ) -> Sequence[tuple[Length, ...] | None] | None:
        if not names <= set(values):
            return None  # an attribute of the function around a node, or a tensor, which sessions do not give here
        given = {tensor.name: known.get(tensor.name) for tensor in inputs}
        try:
            returned = function(**given, **values)
        except Exception as error:
            if isinstance(error, TypeError) and not _is_known(given.values()):
                return None  # it computes with lengths that are not numbers
            raise OperatorError(f"shapes: {describe(error)}") from error
        several = [returned] if len(outputs) == 1 else returned
        if not isinstance(several, list | tuple) or len(several) != len(outputs) or not all(map(_is_shape, several)):
            rule = "a tuple of lengths" if len(outputs) == 1 else f"{len(outputs)} tuples of lengths"
            raise ShapesError(f"shapes: it returned {returned!r}: must return {rule}")
        return [None if shape is None else tuple(shape) for shape in several]

    return shapes


def _is_known(shapes: Iterable[Any]) -> bool:
    """Whether all lengths are numbers, in shapes and lists of shapes."""
    return all(isinstance(part, int) or (isinstance(part, list | tuple) and _is_known(part)) for part in shapes)


def _is_shape(shape: Any) -> bool:
    return shape is None or (
        isinstance(shape, list | tuple)
        and all(
            length is None or isinstance(length, str) or (isinstance(length, int) and length >= 0) for length in shape
        )
    )
