"""Checking gradients on the node tests of the installed onnx, against finite differences of the models themselves."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from onnx_models.gradient import gradient
from onnx_models.gradient_check.cases import cases
from onnx_models.gradient_check.checker import Checker, Differentiate, Outcome, Verdict
from onnx_models.gradient_check.onnx_ad import onnx_ad
from onnx_models.gradient_check.workers import check_in_processes
from onnx_models.portable import attach

__all__ = ["Differentiate", "Outcome", "Verdict", "check_gradients", "onnx_ad", "ours"]


def ours(model: onnx.ModelProto, loss: str, wrt: Sequence[str]) -> onnx.ModelProto:
    """`onnx_models.gradient` with bodies for this project's operators, so that a plain session runs it."""
    return attach(gradient(model, loss, wrt))


def check_gradients(
    *,
    select: str = "*",
    operators: Sequence[str] = (),
    differentiate: Differentiate = ours,
    jobs: int = 0,
) -> list[Verdict]:
    """What a way to differentiate gives on the node tests of the installed onnx: a verdict for each floating-point input.

    A random weighted sum of a test's floating-point outputs is differentiated; the gradient runs in a plain session of
    ONNX Runtime, or where that does not run the test itself in onnx's reference evaluator, and is compared with finite
    differences along random directions. The model is turned to double where it runs so. At kinks, ties and steps of the
    test's own data, which one-sided differences show, data are moved a little. Where a gradient is refused, it is asked for
    again with constants for the other inputs. The same call gives the same verdicts.

    Args:
        select: pattern of names of tests, with * and ?.
        operators: names of operators whose tests are wanted; all where there is none.
        differentiate: function of a model, the name of its loss and names of inputs; it returns the model with an output
            NAME_grad for each, and raises ValueError or TypeError where it refuses. With `jobs` one that can be pickled.
        jobs: number of processes, which a crash or a hang does not leave; 0 to stay in this process.

    Raises:
        ValueError: `jobs` is negative.
    """
    if jobs < 0:
        raise ValueError(f"jobs = {jobs}: must be 0 or more")
    asked = cases(select, operators)
    if jobs:
        return [verdict for (verdicts,) in check_in_processes(asked, [differentiate], jobs) for verdict in verdicts]
    return [verdict for case in asked for verdict in Checker(case).verdicts(differentiate)]
