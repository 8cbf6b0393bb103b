"""PyTorch's interpolate, and its gradient by autograd."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import torch
from torch.nn.functional import interpolate

from benchmarks.bench import Call
from benchmarks.workloads import Array, Problem, Resampling

_MODES = {"linear": "bilinear", "nearest": "nearest-exact"}
"""The modes with half-pixel centres. nearest-exact rounds halves up and ONNX's default rounds them down, but the workloads'
scales give no halves, as the comparison with ours shows."""


def prepare(problem: Problem, threads: int) -> Call | None:
    """Return a call of interpolate; the gradient is the backward call alone."""
    workload = problem.workload
    if not isinstance(workload, Resampling):
        return None
    mode = _MODES[problem.operation.mode]
    return differentiable(lambda x: interpolate(x, size=workload.lengths, mode=mode), problem, threads)


def differentiable(
    function: Callable[[torch.Tensor], torch.Tensor], problem: Problem, threads: int, expected_difference: str = ""
) -> Call | None:
    """Return a call that computes the problem's outputs by `function`, from X to Y; None for other gradients than for X.

    For a gradient, only the backward pass is timed: Y is computed once and its graph is kept.
    """
    # This is for the whole process, which measures one problem at a time with one number of threads.
    torch.set_num_threads(threads)
    x, outputs = tensor(problem.arrays["X"]), problem.operation.outputs
    if outputs == ("Y",):

        def run() -> torch.Tensor:
            with torch.inference_mode():
                return function(x)

        return Call(run, lambda y: [_array(y)], expected_difference)
    if outputs != ("dX",):
        return None
    y, dy = function(x.requires_grad_()), tensor(problem.arrays["dY"])
    return Call(
        lambda: torch.autograd.grad(y, x, dy, retain_graph=True)[0], lambda dx: [_array(dx)], expected_difference
    )


def tensor(array: Array) -> torch.Tensor:
    """Return the same memory as a tensor."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _array(answer: torch.Tensor) -> Array:
    plain = answer.detach()
    if plain.dtype == torch.bfloat16:
        return np.asarray(plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(plain.numpy())
