"""DirectML's RESAMPLE and its gradient: their checks, in front of the scaling that both are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ortops.kernels.jit.kernel import Array, Kernel
from ortops.kernels.jit.runners import Runner
from ortops.kernels.layout import ABOVE, BELOW, CEIL, NEAREST, OUT_OF_MEMORY, Lengths
from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.spec import MOST_RANK

_kernel = Kernel("resample", "resample")

_RULES = {"half_up": NEAREST, "increasing": ABOVE, "decreasing": BELOW}


def dml_resample(inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner) -> None:
    """Fill OutputTensor from InputTensor, both of rank 1 to 4.

    Raises:
        ValueError: InputTensor has no elements where OutputTensor has some.
        MemoryError: there is none left to work in.
    """
    (x,) = inputs
    (y,) = outputs
    if y.size and not x.size:
        raise ValueError(f"InputTensor has shape {list(x.shape)}: must have elements where OutputTensor has some")
    _resample(x, y, attributes, False, runner)


def dml_resample_grad(
    inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], runner: Runner
) -> None:
    """Fill OutputGradientTensor from InputGradientTensor and x_shape, the shape of the former.

    Raises:
        ValueError: x_shape has no elements where InputGradientTensor has some.
        MemoryError: there is none left to work in.
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
    missing = MOST_RANK - x.ndim
    # Axes of length 1 before the tensor's own, which any scale leaves as they are.
    places = np.zeros((MOST_RANK, 3))
    for column, (name, default) in enumerate(
        (("scales", 0.0), ("input_pixel_offsets", INPUT_PIXEL_OFFSET), ("output_pixel_offsets", OUTPUT_PIXEL_OFFSET))
    ):
        places[missing:, column] = attributes[name] or default
    rule = _RULES[attributes["rounding_direction"]] if attributes["interpolation_mode"] == "nearest_neighbor" else CEIL
    source, target = (Lengths(*(1,) * missing, *array.shape) for array in (x, y))
    if _kernel(x, y, source, target, places, rule, transposed, *runner) == OUT_OF_MEMORY:
        raise MemoryError("out of memory for a line of the tensor")
