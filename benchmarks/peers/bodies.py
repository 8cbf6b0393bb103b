"""Our models in a session without our kernels, which runs their bodies of standard operators."""

from __future__ import annotations

from benchmarks.call import Call
from benchmarks.models import ours
from benchmarks.problem import Problem
from benchmarks.sessions import stock_call

PACKAGE = "onnxruntime"


def prepare(problem: Problem, threads: int) -> Call | None:
    """Return a call of the portable model in a stock session."""
    return stock_call(ours(problem, portable=True), problem, threads)
