"""Checks cases in child processes, so that a crash or a hang affects one case only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import partial

from onnx_models.gradient_check.cases import Case
from onnx_models.gradient_check.checker import Checker, Differentiate, Verdict, same_verdicts
from onnx_models.gradient_check.evaluate import newest_opset
from ortops.worker_process import ProcessLostError, WorkerProcess, borrowed, can_limit_memory, limited_memory, stage

TIME_LIMIT = 60.0
"""Seconds for one case and one differentiate function."""

MEMORY_LIMIT = 8 * 2**30
"""Bytes of address space that a call may add to what its process has, if the system can limit that."""

Checked = list[list[Verdict]]
"""The verdicts of a case for each differentiate function."""


def check_in_processes(
    executor: Executor, cases: Sequence[Case], differentiates: Sequence[Differentiate]
) -> Iterator[Checked]:
    """Check all cases with all differentiate functions; yields results in the order of the cases.

    Args:
        executor: an executor, such as `ortops.worker_process.LocalExecutor`.
        cases: the cases.
        differentiates: functions that another process can import.
    """
    return executor.map(partial(_checked, differentiates=differentiates, seconds=TIME_LIMIT), cases)


def _checked(case: Case, differentiates: Sequence[Differentiate], seconds: float) -> Checked:
    """The verdicts of each function; a crash in one does not affect the others."""
    with borrowed(newest_opset) as child:  # which loads ONNX Runtime, outside of the time limit of the first case
        return [_verdicts(child, case, differentiate, seconds) for differentiate in differentiates]


def _verdicts(child: WorkerProcess, case: Case, differentiate: Differentiate, seconds: float) -> list[Verdict]:
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


_checkers: dict[str, Checker] = {}
"""In a child process: the checker of its last case, which shares sessions and differences between functions."""


def _in_child(case: Case, differentiate: Differentiate) -> list[Verdict]:
    if case.name not in _checkers:
        _checkers.clear()
        _checkers[case.name] = Checker(case, stage)
    if not can_limit_memory():
        return _checkers[case.name].verdicts(differentiate)
    with limited_memory(MEMORY_LIMIT):
        return _checkers[case.name].verdicts(differentiate)
