# SPDX-License-Identifier: MIT
"""Derives a custom operator's definition from its function's signature: parameters, annotations and defaults."""

from __future__ import annotations

import dis
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np

from ortops.spec import ANY_SHAPE, ELEMENT_DTYPES, Attribute, ElementType, Tensor

_NUMBERS: dict[Any, Any] = {int: "INT", float: "FLOAT", str: "STRING"}

ARRAYS = "numpy.typing.NDArray[np.float32], of a TypeVar with constraints, or of a class such as np.integer"


@dataclass(frozen=True)
class Signature:
    """The part of an operator's definition that its function's signature gives.

    attributes, inputs, outputs: in the order of the parameters and the result.
    types: each type variable's element types.
    as_lists: the names of the attributes that the function takes as lists instead of tuples.
    """

    attributes: tuple[Attribute, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    types: dict[str, tuple[ElementType, ...]]
    as_lists: frozenset[str]


def signature_of(function: Callable[..., Any], name: str, *, has_outputs: bool) -> Signature:
    """Read the parameters of a function, or of the Python function that numba compiles.

    Args:
        function: the function, or a class whose ``__call__`` is read. An array is an input, ``X | None = None`` an optional
            input and ``*x`` a variadic input; after ``*`` an array is an attribute of type TENSOR. int, float, str, a
            Literal of strings and lists of these are attributes.
        name: the operator's name, for errors.
        has_outputs: whether the outputs are known, so that the result's annotation does not count.

    Raises:
        TypeError: a parameter or the result has no annotation, or an unknown annotation.
    """
    is_class = isinstance(function, type)
    plain: Any = getattr(function, "__call__" if is_class else "py_func", function)
    try:
        parameters = list(inspect.signature(plain).parameters.values())[1 if is_class else 0 :]
        hints = typing.get_type_hints(plain, include_extras=True)
    except (NameError, ValueError) as error:
        raise TypeError(f"{name}: its function's annotations cannot be read: {error}") from error
    variables: dict[str, tuple[ElementType, ...]] = {}
    attributes, inputs, as_lists = [], [], set()
    for parameter in parameters:
        where = f"{name}: parameter {parameter.name}"
        if parameter.kind is parameter.VAR_KEYWORD:
            raise TypeError(f"{where} takes any keyword: attributes must be given to ortops.operator, or be parameters")
        hint, shape = _without_shape(hints.get(parameter.name))
        inner, is_optional = _without_none(hint)
        inner, shape = _without_shape(inner, shape)
        kinds = _element_types(inner, where)
        has_default = parameter.default is not parameter.empty
        default = parameter.default if has_default else None
        if kinds is None:
            kind, choices = _attribute_type(inner, where)
            if get_origin(inner) is list:
                as_lists.add(parameter.name)
            attributes.append(
                Attribute(
                    parameter.name,
                    kind,
                    tuple(default) if isinstance(default, list) else default,
                    choices=choices,
                    required=not has_default,
                    any_length=kind.endswith("S"),
                )
            )
        elif parameter.kind is parameter.KEYWORD_ONLY:
            attributes.append(Attribute(parameter.name, "TENSOR", default, required=not has_default))
        elif has_default and default is not None:
            raise TypeError(f"{where} = {default!r}: an input must have no default, or None if it is optional")
        else:
            is_variadic = parameter.kind is parameter.VAR_POSITIONAL
            variable = _variable(inner, kinds, parameter.name, variables)
            inputs.append(
                Tensor(parameter.name, variable, shape, optional=has_default or is_optional, variadic=is_variadic)
            )
    outputs = () if has_outputs else tuple(_outputs(hints.get("return"), name, variables))
    return Signature(tuple(attributes), tuple(inputs), outputs, variables, frozenset(as_lists))


_KINDS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (inspect.iscoroutinefunction, "async"),
    (inspect.isasyncgenfunction, "an asynchronous generator"),
    (inspect.isgeneratorfunction, "a generator"),
)


def check_function(function: Callable[..., Any], where: str) -> None:
    """Check that a function, or a class's ``__call__``, returns its result directly.

    Args:
        function: a function, a callable object, or a class of callable objects.
        where: the function's description in errors.

    Raises:
        TypeError: the function is async or a generator; or the class has no ``__call__`` or needs constructor arguments.
    """
    if isinstance(function, type):
        if not any("__call__" in vars(base) for base in function.__mro__):
            raise TypeError(f"{where}: the class {function.__name__} has no __call__: must have one that computes")
        try:
            inspect.signature(function).bind()
        except TypeError as error:
            raise TypeError(
                f"{where}: the class {function.__name__} must be made without arguments: {error}"
            ) from error
        except ValueError:
            pass  # the signature of a class that is not written in Python is unknown
    for is_kind, kind in _KINDS:
        if any(map(is_kind, (function, getattr(function, "__call__", None)))):  # noqa: B004 - what calls run
            raise TypeError(f"{where} is {kind}: must be a function that returns its result")


def check_keywords(function: Callable[..., Any], names: Sequence[str], where: str) -> None:
    """Check that a function accepts arguments with these names, if its signature can be read.

    Raises:
        TypeError: the function does not accept them.
    """
    try:
        inspect.signature(function).bind(**dict.fromkeys(names))
    except TypeError as error:
        raise TypeError(f"{where} must take {', '.join(names)} by name: {error}") from error
    except ValueError:
        pass


def check_is_written(function: Callable[..., Any], label: str, output: str, rank: int) -> None:
    """Check that a function uses an output, and gives the output's name to nothing else.

    Args:
        function: the function, with the output among its parameters.
        label: the operator's name in errors.
        output: the name of the output.
        rank: the number of its axes.

    Raises:
        ValueError: the function binds or deletes the name, or it never uses the output.
    """
    code = function.__code__
    remedy = f"must write into the array that it gets, as {output}[{':' if rank else '()'}] = ... does"
    for line in _bindings(code, output):
        raise ValueError(f"{label}: line {line} of {code.co_filename} rebinds the output's name {output!r}: {remedy}")
    is_used = output in code.co_cellvars or any(
        step.opname.startswith("LOAD_FAST") and output in _variables(step) for step in dis.get_instructions(code)
    )
    if not is_used:
        where = f"which begins in line {code.co_firstlineno} of {code.co_filename}"
        raise ValueError(f"{label}: its function, {where}, never writes to the output {output!r}: {remedy}")


def _variables(step: dis.Instruction) -> tuple[Any, ...]:
    """The variables of an instruction, which may have two."""
    return step.argval if isinstance(step.argval, tuple) else (step.argval,)


def _bindings(code: CodeType, name: str) -> Iterator[int]:
    """The lines that bind or delete a variable. Operators such as += are left out, since they keep an array."""
    before, lines, comprehensions = "", list(code.co_lines()), []
    for step in dis.get_instructions(code):
        names = _variables(step)
        positions = getattr(step, "positions", None)  # from Python 3.11 on
        if step.opname == "LOAD_FAST_AND_CLEAR" and name in names:
            comprehensions.append(positions)  # whose variable has the name; from Python 3.12 on it is in the same code
        bound = names if step.opname == "STORE_FAST_STORE_FAST" else names[:1]
        is_bound = step.opname.startswith(_BINDING) and name in bound
        is_in_place = before.startswith("INPLACE_") or before.endswith("=")
        if is_bound and not is_in_place and not any(_is_within(positions, each) for each in comprehensions):
            # What the compiler adds, at the end of "except ... as", may have no line.
            yield from (line for first, last, line in lines if first <= step.offset < last and line)
        if step.opname != "EXTENDED_ARG":
            before = step.argrepr if step.opname == "BINARY_OP" else step.opname
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and name in inner.co_freevars:
            yield from _bindings(inner, name)


_BINDING = ("STORE_FAST", "STORE_DEREF", "DELETE_FAST", "DELETE_DEREF")


def _is_within(inner: Any, outer: Any) -> bool:
    """Whether a range of the source is a part of another one."""
    return None not in (*inner, *outer) and outer[::2] <= inner[::2] and inner[1::2] <= outer[1::2]


def _outputs(hint: Any, name: str, variables: dict[str, tuple[ElementType, ...]]) -> Iterator[Tensor]:
    """The outputs: an array, a tuple of arrays, or a list of arrays, which is variadic and may also end a tuple."""
    origin, parts = get_origin(hint), get_args(hint)
    is_several = origin is tuple and parts[-1:] != (Ellipsis,)
    for i, part in enumerate(parts if is_several else [hint]):
        output = f"y{i}" if is_several else "y"
        inner, shape = _without_shape(part)
        inner, is_optional = _without_none(inner)
        is_variadic = get_origin(inner) in (list, tuple)
        inner, shape = _without_shape(get_args(inner)[0] if is_variadic else inner, shape)
        kinds = _element_types(inner, f"{name}: its result")
        if kinds is None:
            raise TypeError(f"{name}: its result has {_given(part)}: must be {ARRAYS}; or a tuple or list of these")
        variable = _variable(inner, kinds, output, variables)
        if variable in variables and not isinstance(_scalar(inner), TypeVar):
            raise TypeError(
                f"{name}: its result's annotation, {inspect.formatannotation(part)}, leaves the element type open: must be "
                "of a single type, such as NDArray[np.float32], or of the TypeVar of an input"
            )
        yield Tensor(output, variable, shape, optional=is_optional, variadic=is_variadic)


def _variable(
    inner: Any, kinds: tuple[ElementType, ...], name: str, variables: dict[str, tuple[ElementType, ...]]
) -> str:
    """A tensor's type: an element type, or the name of a type variable, which is added to `variables`."""
    scalar = _scalar(inner)
    if len(kinds) == 1 and not isinstance(scalar, TypeVar):
        return kinds[0]
    variable = scalar.__name__ if isinstance(scalar, TypeVar) else f"T_{name}"
    variables[variable] = kinds
    return variable


def _without_shape(hint: Any, shape: tuple[int | str, ...] = ANY_SHAPE) -> tuple[Any, tuple[int | str, ...]]:
    """An annotation without ``Annotated[..., ("n", 4)]``, and the shape in that."""
    if get_origin(hint) is not Annotated:
        return hint, shape
    inner, *notes = get_args(hint)
    return inner, next((note for note in notes if isinstance(note, tuple)), shape)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    parts = [part for part in get_args(hint) if part is not type(None)]
    return (parts[0], True) if len(parts) == 1 else (hint, False)


def _without_alias(hint: Any) -> Any:
    """The value of an alias that a `type` statement made, as numpy.typing.NDArray is from NumPy 2.5 on."""
    alias = get_origin(hint) or hint
    value = getattr(alias, "__value__", None)
    if value is None:
        return hint
    return _without_alias(value[get_args(hint)] if get_args(hint) else value)


def _scalar(hint: Any) -> Any:
    """The scalar type in an array's annotation, np.generic for any type; None if the annotation is not an array's."""
    hint = _without_alias(hint)
    if hint is np.ndarray:
        return np.generic
    if get_origin(hint) is not np.ndarray:
        return None
    (scalar,) = get_args(get_args(hint)[1]) or (np.generic,)
    return np.generic if scalar is Any else scalar


def _element_types(hint: Any, where: str) -> tuple[ElementType, ...] | None:
    """The element types that an array may have; None if the annotation is not an array's.

    Raises:
        TypeError: none of ONNX's element types is such a type; `where` says whose annotation it is.
    """
    scalar = _scalar(hint)
    if scalar is None:
        return None
    if isinstance(scalar, TypeVar):
        scalars: Sequence[Any] = scalar.__constraints__ or (scalar.__bound__ or np.generic,)
    else:
        scalars = (scalar,)
    # String arrays hold objects here, whatever their annotation says.
    scalars = [np.object_ if cls is np.str_ else cls for cls in scalars]
    kinds = tuple(
        name for name in get_args(ElementType) if any(issubclass(ELEMENT_DTYPES[name].type, cls) for cls in scalars)
    )
    if not kinds:
        names = " or ".join(getattr(cls, "__name__", repr(cls)) for cls in scalars)
        raise TypeError(f"{where} is an array of {names}: must be of {' or '.join(ELEMENT_DTYPES)}")
    return kinds


def _given(hint: Any) -> str:
    return "no annotation" if hint is None else f"the annotation {hint!r}"


def _attribute_type(hint: Any, where: str) -> tuple[Any, tuple[str, ...]]:
    """An attribute's type, and the allowed strings."""
    if get_origin(hint) is Literal and all(isinstance(choice, str) for choice in get_args(hint)):
        return "STRING", get_args(hint)
    if get_origin(hint) in (list, tuple, Sequence) and get_args(hint)[0] in _NUMBERS:
        return f"{_NUMBERS[get_args(hint)[0]]}S", ()
    if hint not in _NUMBERS:
        raise TypeError(
            f"{where} has {_given(hint)}: must be an input, {ARRAYS}; or an attribute, int, float, str or a list of one of "
            "these"
        )
    return _NUMBERS[hint], ()
