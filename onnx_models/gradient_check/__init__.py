"""Checks gradients on the node tests of the installed onnx, against finite differences."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import onnx

from onnx_models.gradient import gradient
from onnx_models.gradient_check.cases import cases
from onnx_models.gradient_check.checker import Checker, Differentiate, Outcome, Verdict
from onnx_models.gradient_check.workers import check_in_processes
from onnx_models.portable import attach
from ortops.worker_process import LocalExecutor

__all__ = ["Differentiate", "Outcome", "Verdict", "check_gradients", "ours"]


def ours(model: onnx.ModelProto, loss: str, wrt: Sequence[str]) -> onnx.ModelProto:
    """`onnx_models.gradient` with bodies for this project's operators, so that a stock session runs the result."""
    return attach(gradient(model, loss, wrt))


def check_gradients(
    *,
    select: str = "*",
    operators: Sequence[str] = (),
    differentiate: Differentiate = ours,
    jobs: int = 0,
) -> list[Verdict]:
    """Differentiate the node tests of the installed onnx, and return a verdict for each floating-point input.

    The loss is a random weighted sum of a test's floating-point outputs. The gradient runs in a stock session of ONNX
    Runtime, or in onnx's reference evaluator if ONNX Runtime does not run the test itself. It is compared with finite
    differences along random directions, in double if the model runs in double. If one-sided differences show a kink, tie or
    step at the test's own data, the data are perturbed. If a gradient is refused, it is tried again with constants for the
    other inputs. The same call gives the same verdicts.

    Args:
        select: pattern of names of tests, with * and ?.
        operators: names of the operators to test; all if empty.
        differentiate: function of a model, the name of its loss and names of inputs. It returns the model with an output
            NAME_grad for each name, and raises ValueError or TypeError to refuse. With `jobs` it must be picklable.
        jobs: number of processes, which contain crashes and hangs; 0 to run in this process.

    Raises:
        ValueError: `jobs` is negative.
    """
    if jobs < 0:
        raise ValueError(f"jobs = {jobs}: must be 0 or more")
    asked = cases(select, operators)
    if jobs:
        with LocalExecutor(jobs) as executor:
            return list(itertools.chain.from_iterable(check_in_processes(executor, asked, differentiate)))
    return [verdict for case in asked for verdict in Checker(case, differentiate).verdicts()]
