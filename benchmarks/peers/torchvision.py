"""torchvision's roi_align, and its gradient."""

from __future__ import annotations

import torch
from torchvision.ops import roi_align

from benchmarks.call import Call
from benchmarks.peers.differentiable import boxes, call_of
from benchmarks.problem import Problem
from benchmarks.workloads import Workload

PACKAGE = "torchvision"

if not hasattr(torch.ops.torchvision, "_cuda_version"):  # only the library itself defines this operator
    raise ImportError("needs torchvision with its compiled operators")

_TYPES = ("float16", "float", "double")

_COORDINATES = (
    "its coordinates are float16, so that its samples are up to half a pixel off; it is timed nevertheless, since it "
    "does as much work"
)


def prepare(problem: Problem, threads: int) -> Call | None:
    """Return a call of roi_align; the gradient is the backward call alone."""
    workload = problem.workload
    if not isinstance(workload, Workload) or problem.operation.mode != "avg" or problem.element_type not in _TYPES:
        return None
    rois, size = boxes(problem), (workload.bins, workload.bins)
    return call_of(
        lambda x: roi_align(x, rois, size, workload.spatial_scale, workload.sampling_ratio, aligned=True),
        problem,
        threads,
        expected_difference=_COORDINATES if problem.element_type == "float16" else None,
    )
