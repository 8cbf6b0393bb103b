"""PyTorch's interpolate, and its gradient."""

from __future__ import annotations

from torch.nn.functional import interpolate

from benchmarks.call import Call
from benchmarks.peers.differentiable import call_of
from benchmarks.problem import Problem
from benchmarks.workloads import Resampling

PACKAGE = "torch"

_MODES = {"linear": "bilinear", "nearest": "nearest-exact"}
"""The modes with half-pixel centres. nearest-exact rounds halves up and ONNX's default rounds them down, but the workloads'
scales give no halves, as the comparison with ours shows."""


def prepare(problem: Problem, threads: int) -> Call | None:
    """Return a call of interpolate; the gradient is the backward call alone."""
    workload = problem.workload
    if not isinstance(workload, Resampling):
        return None
    mode = _MODES[problem.operation.mode]
    return call_of(lambda x: interpolate(x, size=workload.lengths, mode=mode), problem, threads)
