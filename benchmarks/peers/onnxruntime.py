"""ONNX Runtime's own RoiAlign, MaxRoiPool and Resize."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.call import Call
from benchmarks.models import standard
from benchmarks.problem import Problem
from benchmarks.sessions import stock_call

PACKAGE = "onnxruntime"


_BOUNDS = "it computes its bins of whole pixels in float32, so that a bin may have one pixel more"


def prepare(problem: Problem, threads: int) -> Call | None:
    """Return a call of ONNX's operator, or None if there is no kernel."""
    model = standard(problem)
    call = None if model is None else stock_call(model, problem, threads)
    return replace(call, expected_difference=_BOUNDS) if call and problem.operation.family == "max_roi_pool" else call
