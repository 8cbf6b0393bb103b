"""Shared by the peers that PyTorch differentiates: the forward call, and the gradient for X by autograd."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import torch

from benchmarks.call import Call
from benchmarks.problem import Problem
from benchmarks.workloads import Array

Function = Callable[[torch.Tensor], torch.Tensor]


def call_of(function: Function, problem: Problem, threads: int, expected_difference: str | None = None) -> Call | None:
    """Return a call that computes the problem's outputs by `function`, from X to Y; None for other gradients than for X.

    For a gradient, only the backward pass is timed: Y is computed once and its graph is kept.
    """
    # This is for the whole process, which measures one problem at a time with one number of threads.
    torch.set_num_threads(threads)
    outputs = problem.operation.outputs
    if outputs == ("Y",):
        run = _forward(function, tensor(problem.arrays["X"]))
    elif outputs == ("dX",):
        run = _backward(function, tensor(problem.arrays["X"]), tensor(problem.arrays["dY"]))
    else:
        return None
    return Call(run, lambda answer: [_array(answer)], expected_difference)


def boxes(problem: Problem) -> torch.Tensor:
    """Return batch_indices and rois as [R, 5] in X's type, as torchvision takes them."""
    rois, batch_indices = problem.arrays["rois"], problem.arrays["batch_indices"]
    return tensor(np.concatenate([batch_indices[:, None].astype(rois.dtype), rois], axis=1))


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


def _forward(function: Function, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    def run() -> torch.Tensor:
        with torch.inference_mode():
            return function(x)

    return run


def _backward(function: Function, x: torch.Tensor, dy: torch.Tensor) -> Callable[[], torch.Tensor]:
    x.requires_grad_()
    y = function(x)
    return lambda: torch.autograd.grad(y, x, dy, retain_graph=True)[0]
