"""ONNX Runtime's own RoiAlign, MaxRoiPool and Resize."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.call import Call
from benchmarks.models import standard
from benchmarks.problem import Problem
from benchmarks.sessions import stock_call

PACKAGE = "onnxruntime"


_BOUNDS = "its bins of whole pixels are computed in float32, so that one may take a pixel more"


def prepare(problem: Problem, threads: int) -> Call | None:
    """A session of ONNX's standard operator."""
    model = standard(problem)
    call = None if model is None else stock_call(model, problem, threads)
    return replace(call, expected_difference=_BOUNDS) if call and problem.operation.family == "max_roi_pool" else call
