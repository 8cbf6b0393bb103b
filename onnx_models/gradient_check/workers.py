"""Checks cases in child processes, so that a crash or a hang affects one case only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import partial

from onnx_models.gradient_check.cases import Case
from onnx_models.gradient_check.checker import Checker, Differentiate, Verdict, same_verdicts
from onnx_models.gradient_check.evaluate import newest_opset
from ortops.worker_process import ProcessLostError, borrowed, can_limit_memory, limited_memory, stage

TIME_LIMIT = 60.0
"""Seconds for one case and one differentiate function."""

MEMORY_LIMIT = 8 * 2**30
"""Bytes of address space that a call may add to what its process has, if the system can limit that."""


def check_in_processes(
    executor: Executor, cases: Sequence[Case], differentiate: Differentiate
) -> Iterator[list[Verdict]]:
    """Check all cases; yields the verdicts of each case, in their order.

    Args:
        executor: an executor, such as `ortops.worker_process.LocalExecutor`.
        cases: the cases.
        differentiate: a function that another process can import.
    """
    return executor.map(partial(_checked, differentiate=differentiate, seconds=TIME_LIMIT), cases)


def _checked(case: Case, differentiate: Differentiate, seconds: float) -> list[Verdict]:
    with borrowed(newest_opset) as child:  # which loads ONNX Runtime, outside of the time limit of the first case
        try:
            return child.call(_in_child, case, differentiate, seconds=seconds)
        except ProcessLostError as error:
            running = error.stage or "the model"
            if str(error).startswith("no answer"):
                happened = f"running {running} took more than {seconds:g} s"
            else:
                happened = f"{error} while it ran {running}"
    if running == "the model":
        return same_verdicts(case, "not testable", happened)
    return same_verdicts(case, "wrong", f"breaks: {happened}")


def _in_child(case: Case, differentiate: Differentiate) -> list[Verdict]:
    with limited_memory(MEMORY_LIMIT) if can_limit_memory() else contextlib.nullcontext():
        return Checker(case, differentiate, stage).verdicts()
