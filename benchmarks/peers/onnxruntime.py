"""ONNX Runtime's own RoiAlign and Resize."""

from __future__ import annotations

from benchmarks.call import Call
from benchmarks.models import standard
from benchmarks.problem import Problem
from benchmarks.sessions import stock_call

PACKAGE = "onnxruntime"


def prepare(problem: Problem, threads: int) -> Call | None:
    """A session of ONNX's standard operator."""
    model = standard(problem)
    return None if model is None else stock_call(model, problem, threads)
