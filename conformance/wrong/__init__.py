"""Implementations that are wrong on purpose: each has one fault, and the suite must fail it.

Beside them is, for each family of operators, a `Control`: the same code without a fault, which must pass every case. It is
a second implementation, of dense matrices, that shares nothing with the reference or the kernels. All have ONNX's backend
interface: ``python -m conformance --backend conformance.wrong.roi_align:NoHalfPixel``.

A fault changes one step of a control or a few; its docstring says what is wrong, `family` what that is about.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.wrong import dml_resample, dml_roi_align, max_roi_pool, roi_align, roi_align_rotated
from conformance.wrong.base import Family, Node

__all__ = ["CONTROLS", "FAULTS", "Family", "Fault"]

CONTROLS: dict[str, type[Node]] = {
    "roi_align": roi_align.Control,
    "dml_roi_align": dml_roi_align.Control,
    "dml_resample": dml_resample.Control,
    "roi_align_rotated": roi_align_rotated.Control,
    "max_roi_pool": max_roi_pool.Control,
}
"""By the operators' family."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them.

    operators: the operators' family.
    backend: the class, with ONNX's backend interface.
    """

    operators: str
    backend: type[Node]

    @property
    def name(self) -> str:
        """As it is named on the command line, after `conformance.wrong.`."""
        return f"{self.operators}:{self.backend.__name__}"

    @property
    def family(self) -> Family:
        """What it is about."""
        return self.backend.family

    @property
    def is_of_gradients_alone(self) -> bool:
        """Whether the forward operator has no fault."""
        return self.backend.of_gradients_alone

    @property
    def description(self) -> str:
        """What is wrong, in a line."""
        return str(self.backend.__doc__)


FAULTS: tuple[Fault, ...] = tuple(
    Fault(operators, backend)
    for operators, module in (
        ("roi_align", roi_align),
        ("dml_roi_align", dml_roi_align),
        ("dml_resample", dml_resample),
        ("roi_align_rotated", roi_align_rotated),
        ("max_roi_pool", max_roi_pool),
    )
    for backend in module.WRONG
)
"""All of them, in the order of the operators."""
