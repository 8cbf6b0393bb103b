"""mmcv's roi_align, and its gradient, as its documentation describes them. This file has never been run with mmcv."""

from __future__ import annotations

from mmcv.ops import roi_align

from benchmarks.call import Call
from benchmarks.peers.differentiable import boxes, call_of
from benchmarks.problem import Problem
from benchmarks.workloads import Workload

PACKAGE = "mmcv"

_MODES = {"avg": "avg", "max_interpolated": "max"}
"""mmcv's pool_mode for our modes: its max is that of interpolated samples."""

_TYPES = ("float", "double")


def prepare(problem: Problem, threads: int) -> Call | None:
    """Return a call of roi_align; the gradient is the backward call alone."""
    workload, mode = problem.workload, _MODES.get(problem.operation.mode)
    if not isinstance(workload, Workload) or mode is None or problem.element_type not in _TYPES:
        return None
    rois, size = boxes(problem), (workload.bins, workload.bins)
    return call_of(
        lambda x: roi_align(x, rois, size, workload.spatial_scale, workload.sampling_ratio, mode, True),
        problem,
        threads,
    )
