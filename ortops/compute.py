"""Running an operator on arrays: shapes are checked, outputs made and its kernel called, for every way to call it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ortops.shapes import Shape, output_shapes
from ortops.spec import AttributeValue, Operator

Allocate = Callable[[int, Shape], Any]


@functools.cache
def _kernel(operator: Operator) -> Callable[..., None]:
    module = importlib.import_module(f"ortops.kernels.{operator.family}")
    kernel: Callable[..., None] = getattr(module, operator.function)
    return kernel


@functools.cache
def _numbers_of_values(operator: Operator) -> tuple[int, ...]:
    """The numbers of the inputs whose elements are lengths."""
    return tuple(i for i, tensor in enumerate(operator.inputs) if tensor.values)


# Measured: of a call's overhead of 30 us without this, 8 went into shapes that are mostly those of the call before.
@functools.lru_cache(maxsize=256)
def _output_shapes(
    operator: Operator,
    shapes: tuple[Shape | None, ...],
    values: tuple[tuple[int, ...], ...],
    attributes: tuple[tuple[str, AttributeValue], ...],
) -> list[Shape]:
    named = {tensor.name: shape for tensor, shape in zip(operator.inputs, shapes, strict=True) if shape is not None}
    givers = [operator.inputs[i].name for i in _numbers_of_values(operator)]
    given = dict(zip([name for name in givers if name in named], values, strict=True))
    return output_shapes(operator, named, given, dict(attributes))


def compute(
    operator: Operator,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    allocate: Allocate,
    runner: tuple[int, int],
) -> None:
    """Compute the outputs of an operator.

    Args:
        inputs: one array an input in the operator's order, None where it is absent; C-contiguous, of lawful types.
        attributes: from `Operator.check_attributes`.
        allocate: called with the number and the shape of each output; an array to fill, or None where it is not wanted.
        runner: runs the tasks (`ortops.kernels.jit.runners`).

    Raises:
        ValueError: shapes disagree, the data breaks a rule of the operator, or a gradient lacks an input or any output.
        MemoryError: there is not enough.
    """
    shapes = tuple([None if array is None else array.shape for array in inputs])
    values = tuple([tuple(inputs[i].ravel().tolist()) for i in _numbers_of_values(operator) if inputs[i] is not None])
    outputs = [
        allocate(i, shape)
        for i, shape in enumerate(_output_shapes(operator, shapes, values, tuple(attributes.items())))
    ]
    if operator.is_gradient:
        _check_gradient(operator, inputs, outputs, attributes)
    _kernel(operator)(inputs, outputs, attributes, runner)


def _check_gradient(
    operator: Operator, inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any]
) -> None:
    """Check that an output is wanted, and that the inputs which it needs are there.

    Raises:
        ValueError: none is wanted, or an input is missing.
    """
    wanted = [tensor.name for tensor, array in zip(operator.outputs, outputs, strict=True) if array is not None]
    if not wanted:
        names = " and ".join(tensor.name for tensor in operator.outputs)
        raise ValueError(f"{names} are left out: at least one must be wanted")
    for tensor, array in zip(operator.inputs, inputs, strict=True):
        reason = operator.why_needed(tensor, attributes, wanted) if array is None else None
        if reason is not None:
            raise ValueError(f"{tensor.name} is missing: must be given for {reason}")


def runner_on_all_cpus() -> tuple[int, int]:
    """A runner for a call outside a session: every CPU. Kernels use it where the work is worth it."""
    from ortops.kernels.jit.runners import available_cpus, thread_runner

    return thread_runner(available_cpus())
