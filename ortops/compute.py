"""Running an operator on arrays: shapes are checked, outputs made and its kernel called, for every way to call it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ortops.shapes import Shape, output_shapes
from ortops.spec import Operator

Allocate = Callable[[int, Shape], Any]


@functools.cache
def _kernel(operator: Operator) -> Callable[..., None]:
    module = importlib.import_module(f"ortops.kernels.{operator.family}")
    kernel: Callable[..., None] = getattr(module, operator.function)
    return kernel


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
        runner: who runs the tasks (`ortops.kernels.parallel`).

    Raises:
        ValueError: shapes disagree or the data breaks a rule of the operator.
        MemoryError: there is not enough.
    """
    given = [(tensor, array) for tensor, array in zip(operator.inputs, inputs, strict=True) if array is not None]
    shapes = {tensor.name: array.shape for tensor, array in given}
    values = {tensor.name: array.tolist() for tensor, array in given if tensor.values}
    outputs = [allocate(i, shape) for i, shape in enumerate(output_shapes(operator, shapes, values, attributes))]
    _kernel(operator)(inputs, outputs, attributes, runner)


WORTH_THREADS = 1 << 16
"""Elements of the inputs from which threads of a call's own are worth the 20 us that each costs."""


def runner_for(inputs: Sequence[Any]) -> tuple[int, int]:
    """A runner for a call outside a session: every CPU where the work is worth it."""
    from ortops.kernels.parallel import available_cpus, thread_runner

    size = sum(array.size for array in inputs if array is not None)
    return thread_runner(available_cpus()) if size >= WORTH_THREADS else (0, 0)
