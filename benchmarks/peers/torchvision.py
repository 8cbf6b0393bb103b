"""torchvision's roi_align, and its gradient."""

from __future__ import annotations

import numpy as np
import torch
from torchvision.ops import roi_align

from benchmarks.bench import Call
from benchmarks.peers.torch import differentiable, tensor
from benchmarks.workloads import Problem, Workload

if not hasattr(torch.ops.torchvision, "_cuda_version"):  # only the library itself defines this operator
    raise ImportError("needs torchvision with its compiled operators")

_TYPES = ("float16", "float", "double")

_COORDINATES = "its coordinates are float16, so that its samples are up to half a pixel off; it does as much work"


def prepare(problem: Problem, threads: int) -> Call | None:
    """Return a call of roi_align; the gradient is the backward call alone."""
    workload = problem.workload
    if not isinstance(workload, Workload) or problem.operation.mode != "avg" or problem.element_type not in _TYPES:
        return None
    rois, batch_indices = problem.arrays["rois"], problem.arrays["batch_indices"]
    boxes = tensor(np.column_stack([batch_indices.astype(rois.dtype), rois]))
    return differentiable(
        lambda x: roi_align(x, boxes, workload.bins, workload.spatial_scale, workload.sampling_ratio, aligned=True),
        problem,
        threads,
        _COORDINATES if problem.element_type == "float16" else "",
    )
