"""Runs an operator on arrays: checks the shapes, allocates the outputs and calls the kernel, for sessions and functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ortops.shapes import Shape, output_shapes
from ortops.spec import AttributeValue, Compute, Operator

if TYPE_CHECKING:
    from ortops.kernels.entries import Entry

_BEHAVED = 0x101
"""NumPy's flags of a C-contiguous array whose elements are aligned."""


def for_kernels(array: Any) -> Any:
    """The array, or a copy if it is not as compiled code takes it: C-contiguous and aligned."""
    return array if array.flags.num & _BEHAVED == _BEHAVED else array.copy(order="C")


Allocate = Callable[[int, Shape], Any]
"""Takes the number and the shape of an output; returns an array to fill, or None if the output is not wanted."""


@functools.cache
def _entries() -> Mapping[str, Entry]:
    from ortops.kernels.entries import ENTRIES  # here, so that `import ortops` stays fast

    return ENTRIES


@functools.cache
def _inputs_of_lengths(operator: Operator) -> tuple[int, ...]:
    """The positions of the inputs whose elements are lengths."""
    return tuple(i for i, tensor in enumerate(operator.inputs) if tensor.element_axes)


# Measured: without this cache, shape inference took 8 of a call's overhead of 30 us, mostly for the shapes of the last call.
@functools.lru_cache(maxsize=256)
def _output_shapes(
    operator: Operator,
    shapes: tuple[Shape | None, ...],
    values: tuple[tuple[int, ...], ...],
    attributes: tuple[tuple[str, AttributeValue], ...],
) -> list[Shape]:
    named = {tensor.name: shape for tensor, shape in zip(operator.inputs, shapes, strict=True) if shape is not None}
    names = [operator.inputs[i].name for i in _inputs_of_lengths(operator)]
    elements = dict(zip([name for name in names if name in named], values, strict=True))
    return output_shapes(operator, named, elements, dict(attributes))


def bind(operator: Operator, attributes: Mapping[str, AttributeValue], _: object = None) -> Compute:
    """Make the function that computes the outputs of a node of this project's operators.

    Args:
        operator: the definition.
        attributes: the result of `Operator.check_attributes`.
    """
    of_lengths, items = _inputs_of_lengths(operator), tuple(attributes.items())

    def run(inputs: Sequence[Any], allocate: Allocate, runner: tuple[int, int] | None) -> None:
        shapes = tuple([None if array is None else array.shape for array in inputs])
        given, values = _with_lengths(inputs, of_lengths) if of_lengths else (inputs, ())
        outputs = [allocate(i, shape) for i, shape in enumerate(_output_shapes(operator, shapes, values, items))]
        if operator.is_gradient:
            _check_gradient(operator, given, outputs, attributes)
        _entries()[operator.function](given, outputs, attributes, runner or runner_on_all_cpus())

    return run


def _with_lengths(
    inputs: Sequence[Any], of_lengths: Sequence[int]
) -> tuple[Sequence[Any], tuple[tuple[int, ...], ...]]:
    """The inputs with a tuple in place of each array of lengths, and these tuples.

    They are read once, since another thread may write to the arrays: an entry gets the lengths of the allocated outputs.
    """
    given = list(inputs)
    for i in of_lengths:
        given[i] = None if given[i] is None else tuple(given[i].ravel().tolist())
    return given, tuple([given[i] for i in of_lengths if given[i] is not None])


def compute(
    operator: Operator,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    allocate: Allocate,
    runner: tuple[int, int],
) -> None:
    """Compute the outputs of an operator.

    Args:
        operator: the definition.
        inputs: one array for each input in the operator's order, None for an absent one. They are as `for_kernels`
            makes them, and of element types that the operator allows. Other threads may write to their elements.
        attributes: the result of `Operator.check_attributes`.
        allocate: called once for each output.
        runner: runs the kernel's tasks (`ortops.jit.runners`).

    Raises:
        ValueError: shapes disagree, the data breaks a rule of the operator, or a gradient operator has no output or lacks
            an input that its outputs need.
        MemoryError: there is not enough memory.
    """
    bind(operator, attributes)(inputs, allocate, runner)


def _check_gradient(
    operator: Operator, inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any]
) -> None:
    """Check that at least one output is wanted and that every input is present that the wanted outputs need.

    Raises:
        ValueError: no output is wanted, or an input is missing.
    """
    wanted = [tensor.name for tensor, array in zip(operator.outputs, outputs, strict=True) if array is not None]
    if not wanted:
        names = " and ".join(tensor.name for tensor in operator.outputs)
        raise ValueError(f"{names} are left out: at least one output is required")
    for tensor, array in zip(operator.inputs, inputs, strict=True):
        reason = operator.why_required(tensor, attributes, wanted) if array is None else None
        if reason is not None:
            raise ValueError(f"{tensor.name} is missing: must be given for {reason}")


def runner_on(threads: int) -> tuple[int, int]:
    """A runner for a call outside a session, with a number of threads. Kernels run small work on one thread."""
    from ortops.jit.runners import thread_runner

    return thread_runner(threads)


def runner_on_all_cpus() -> tuple[int, int]:
    """A runner with a thread for each CPU."""
    from ortops.jit.runners import available_cpus

    return runner_on(available_cpus())
