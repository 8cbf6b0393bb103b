"""DirectML's RESAMPLE and its gradient: check the inputs and call the kernel of `resample`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ortops.kernels.jit.kernel import Array, Kernel
from ortops.kernels.jit.runners import Runner
from ortops.kernels.layout import ABOVE, BELOW, CEIL, NEAREST, OUT_OF_MEMORY, Dims
from ortops.kernels.stages import CHUNKS, address, elements, kind_of
from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.spec import MAX_RANK

_kernel = Kernel("resample", "resample")

_RULES = {"half_up": NEAREST, "increasing": ABOVE, "decreasing": BELOW}


def dml_resample(inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner) -> None:
    """Fill OutputTensor from InputTensor, both of rank 1 to 4.

    Raises:
        ValueError: InputTensor is empty and OutputTensor is not.
        MemoryError: the workspace cannot be allocated.
    """
    (x,) = inputs
    (y,) = outputs
    if y.size and not x.size:
        raise ValueError(f"InputTensor has shape {list(x.shape)}: must have elements where OutputTensor has some")
    _resample(x, y, attributes, False, runner)


def dml_resample_grad(
    inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner
) -> None:
    """Fill OutputGradientTensor, of shape x_shape, from InputGradientTensor.

    Raises:
        ValueError: x_shape has a 0 and InputGradientTensor is not empty.
        MemoryError: the workspace cannot be allocated.
    """
    dy, x_shape = inputs
    (dx,) = outputs
    if dy.size and not dx.size:
        raise ValueError(f"x_shape is {x_shape.tolist()}: must not have a 0 where InputGradientTensor has elements")
    if not dy.size:
        dx.fill(0)
    _resample(dy, dx, attributes, True, runner)


def _resample(x: Array, y: Array, attributes: Mapping[str, Any], transposed: bool, runner: Runner) -> None:
    if not x.size or not y.size:
        return
    missing = MAX_RANK - x.ndim
    # Leading axes of length 1 make the rank 4; a scale of 0 (the ratio of the lengths) keeps them as they are.
    parameters = np.zeros((MAX_RANK, 3))
    for column, (name, default) in enumerate(
        (("scales", 0.0), ("input_pixel_offsets", INPUT_PIXEL_OFFSET), ("output_pixel_offsets", OUTPUT_PIXEL_OFFSET))
    ):
        parameters[missing:, column] = attributes[name] or default
    rule = _RULES[attributes["rounding_direction"]] if attributes["interpolation_mode"] == "nearest_neighbor" else CEIL
    source, target = (Dims(*(1,) * missing, *array.shape) for array in (x, y))
    lines_of = address("resample", "copy_lines" if rule != CEIL and not transposed else "sum_lines", kind_of(x))
    functions = lines_of, address(*CHUNKS)
    status = _kernel(elements(x), elements(y), source, target, parameters, rule, transposed, *functions, *runner)
    if status == OUT_OF_MEMORY:
        raise MemoryError("out of memory for a line of the tensor")
