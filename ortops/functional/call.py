# SPDX-License-Identifier: MIT
"""Calls an operator on NumPy arrays: converts and checks the arguments, then computes as in a session."""

from __future__ import annotations

import contextlib
import functools
import reprlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from ortops.compute import Bound, bind_unchecked
from ortops.memory import for_kernels
from ortops.shapes import Shape
from ortops.spec import ELEMENT_DTYPES, Operator

Array = np.ndarray[Any, Any]
Function = TypeVar("Function", bound=Callable[..., Any])
_INT64 = np.iinfo(np.int64)


def computes(operator: Operator) -> Callable[[Function], Function]:
    """Give a function that has only a signature and a docstring the body that calls an operator.

    Args:
        operator: the operator. The function's first parameters are its inputs, in its order; the others have the names of
            its attributes. For an operator with several outputs, the last one is `outputs`, the names of those to compute.
    """
    flags = {attribute.name for attribute in operator.attributes if (attribute.minimum, attribute.maximum) == (0, 1)}

    def decorate(function: Function) -> Function:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        by_name = names[code.co_argcount :]
        parameters = (*names[: code.co_argcount], *(("*", *by_name) if by_name else ()))
        inputs, attributes = names[: len(operator.inputs)], names[len(operator.inputs) :]
        values = [
            f"{name!r}: {f'as_int({name})' if name in flags else name}" for name in attributes if name != "outputs"
        ]
        wanted, result = "(True,)", "outputs[0]"
        if "outputs" in attributes:
            gradients = (function.__kwdefaults__ or {})["outputs"]
            wanted, result = f"wanted_gradients(outputs, {gradients})", "tuple(outputs)"
        # Measured: a body for any arguments, without a source of its own, adds a tenth to a small call.
        source = (
            f"def {function.__name__}({', '.join(parameters)}):\n"
            f"    bound = bind_unchecked(operator, {{{', '.join(values)}}})\n"
            f"    outputs = call_bound(operator, bound, ({', '.join(inputs)},), {wanted})\n"
            f"    return {result}\n"
        )
        scope: dict[str, Any] = {"operator": operator}
        scope |= {used.__name__: used for used in (bind_unchecked, call_bound, as_int, wanted_gradients)}
        exec(compile(source, f"<ortops.{function.__name__}>", "exec"), scope)  # noqa: S102 - as dataclasses does
        computed = scope[function.__name__]
        computed.__defaults__, computed.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        return cast("Function", functools.update_wrapper(computed, function))

    return decorate


def wanted_gradients(outputs: Sequence[str], names: Sequence[str]) -> tuple[bool, ...]:
    """Whether each name is among `outputs`.

    Raises:
        ValueError: `outputs` is empty or contains another name.
    """
    if not outputs or not set(outputs) <= set(names):
        *others, last = map(repr, names)
        some = "one or both" if len(names) == 2 else "some"
        raise ValueError(f"outputs = {outputs!r}: must be {some} of {', '.join(others)} and {last}")
    return tuple(name in outputs for name in names)


def as_int(flag: object) -> object:
    """A boolean as 0 or 1 for an INT attribute; other values unchanged, so that the attribute's check reports them."""
    return int(flag) if isinstance(flag, bool | np.bool_) else flag


def call_bound(
    operator: Operator, bound: Bound, inputs: Sequence[ArrayLike | None], wanted: Sequence[bool]
) -> list[Any]:
    """An operator's outputs, None for an output that is not wanted.

    Raises:
        TypeError, ValueError: an element type, a shape or the data breaks a rule.
    """
    arrays, types = _arrays(operator, inputs)
    outputs: list[Any] = [None] * len(wanted)

    def allocate(i: int, shape: Shape) -> Any:
        if wanted[i]:
            kind = operator.outputs[i].type
            outputs[i] = np.empty(shape, types.get(kind) or ELEMENT_DTYPES[kind])
        return outputs[i]

    bound(arrays, allocate, None)
    return outputs


def _arrays(
    operator: Operator, inputs: Sequence[ArrayLike | None]
) -> tuple[list[Array | None], dict[str, np.dtype[Any]]]:
    """The inputs as C-contiguous and aligned arrays, and each type variable's type.

    Integer arrays of any width become int64; other arrays must have a type that the operator allows. Lists become int64 if
    the operator takes integers; otherwise they take the type of the first array with the same type variable.

    Raises:
        TypeError: an array or a list's element has a wrong type.
        ValueError: an integer does not fit in int64, or the rows of a list differ in length.
    """
    arrays: list[Array | None] = []
    types: dict[str, np.dtype[Any]] = {}
    for (name, variable, allowed), value in zip(_inputs_of(operator), inputs, strict=True):
        if type(value) is np.ndarray:
            array = value[...]  # a view, whose shape no other thread can change
        elif value is None:
            arrays.append(None)
            continue
        elif _is_sequence(value) or type(value) in (int, float):
            dtype = _INT64.dtype if _INT64.dtype in allowed else types.get(variable, list(allowed)[-1])
            array = _from_list(name, value, dtype)
        else:
            array = np.asarray(value)[...]
        dtype = array.dtype
        if dtype not in allowed and _INT64.dtype in allowed and (dtype.kind in "iu" or array.size == 0):
            array = _as_int64(name, array)
            dtype = array.dtype
        expected = types.setdefault(variable, dtype)
        if dtype not in allowed or dtype != expected:
            names = [str(dtype) for dtype in ([expected] if expected in allowed else allowed)]
            raise TypeError(f"{name} has type {dtype}: must be {' or '.join(names)}")
        arrays.append(for_kernels(array))
    return arrays, types


@functools.cache
def _inputs_of(operator: Operator) -> list[tuple[str, str, dict[np.dtype[Any], None]]]:
    """Each input's name, type variable and types. A look-up by hash takes half the time of comparisons."""
    return [
        (tensor.name, tensor.type, dict.fromkeys(ELEMENT_DTYPES[name] for name in operator.element_types(tensor)))
        for tensor in operator.inputs
    ]


def _as_int64(name: str, array: Array) -> Array:
    """An integer array as int64.

    Raises:
        ValueError: an integer does not fit in int64.
    """
    if array.dtype.kind == "u":
        for index in np.argwhere(array > _INT64.max)[:1]:
            raise ValueError(f"{_element_name(name, index)} = {array[tuple(index)]}: must fit in int64")
    return array.astype(np.int64, copy=False)


def _is_sequence(value: object) -> bool:
    """Whether a value is a sequence of Python objects, such as a list, and not a string or a buffer."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


def _from_list(name: str, value: Any, dtype: np.dtype[Any]) -> Array:
    """A number, or a nested list of Python or NumPy numbers, as an array of a given type.

    Raises:
        TypeError: an element is not an int; or, for a floating-point type, neither an int nor a float.
        ValueError: a number does not fit in the type, or rows differ in length.
    """
    is_integer = dtype == np.int64
    if is_integer and type(value) in (list, tuple) and {*map(type, value)} == {int}:
        with contextlib.suppress(OverflowError):  # measured: a third of the time, for shapes and a few indices
            return np.array(value, dtype)
    for index, element in _elements(value):
        if isinstance(element, bool) or not isinstance(element, int if is_integer else int | float):
            rule = "must be an integer" if is_integer else "must be an int or a float"
            raise TypeError(f"{_element_name(name, index)} = {element!r} has type {type(element).__name__}: {rule}")
        if is_integer and not _INT64.min <= element <= _INT64.max:
            raise ValueError(f"{_element_name(name, index)} = {element}: must fit in int64")
    try:
        return np.asarray(value, dtype if is_integer else None).astype(dtype, copy=False)
    except (ValueError, OverflowError) as error:
        rule = f"must be rows of equal length, of numbers that fit in {dtype}"
        raise ValueError(f"{name} = {reprlib.repr(value)}: {rule}") from error


def _elements(value: Any, index: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The elements of nested lists and arrays as Python objects, each with its index."""
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if _is_sequence(plain):
        for i, item in enumerate(plain):
            yield from _elements(item, (*index, i))
    else:
        yield index, plain


def _element_name(name: str, index: Sequence[int] | Array) -> str:
    """An element's name in error messages: the input's name, followed by the index unless it is empty."""
    return f"{name}[{', '.join(map(str, index))}]" if len(index) else name
