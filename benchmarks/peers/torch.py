# SPDX-License-Identifier: MIT
"""RoiAlign in PyTorch, and its gradient by autograd."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import ortops.torch
from benchmarks.measure import Call, Peer
from benchmarks.workloads import ROI_ALIGN, Problem, Workload


def roi_align(function: Callable[..., Any], problem: Problem, threads: int) -> Call | None:
    """Return a call of a function with the arguments of torchvision's roi_align, or of its gradient by X.

    For the gradient, only the backward pass is timed: Y is computed once and its graph is kept.
    """
    workload, operation, arrays = problem.workload, problem.operation, problem.arrays
    if not isinstance(workload, Workload) or operation.forward is not ROI_ALIGN or operation.mode != "avg":
        return None
    # This is for the whole process, which measures one problem at a time with one number of threads.
    torch.set_num_threads(threads)
    boxes = torch.from_numpy(np.column_stack([np.float32(arrays["batch_indices"]), arrays["rois"]]))
    x, dy = (torch.from_numpy(arrays[name]) for name in ("X", "dY"))
    options = (boxes, workload.bins, workload.spatial_scale, workload.sampling_ratio, True)
    if operation.outputs == ("Y",):
        return Call(lambda: function(x, *options), lambda y: [y.numpy()])
    if operation.outputs != ("dX",):
        return None
    y = function(x.requires_grad_(), *options)
    return Call(lambda: torch.autograd.grad(y, x, dy, retain_graph=True), lambda gradients: [gradients[0].numpy()])


ours: Peer = partial(roi_align, ortops.torch.roi_align)
