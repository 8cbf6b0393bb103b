"""Mutants: implementations that are wrong on purpose. Each has one fault, and the suite must fail it.

Each family of operators also has a `Control`: the code without a fault, from which its mutants are made, and which must pass
every case. It works with dense matrices and shares no code with the reference or the kernels. Controls and mutants have
ONNX's backend interface: ``python -m conformance --backend conformance.mutants.roi_align:NoHalfPixel``.

A mutant replaces one or a few methods of its control. Its docstring says what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.mutants import dml_resample, dml_roi_align, max_roi_pool, roi_align, roi_align_rotated
from conformance.mutants.base import Category, Node

__all__ = ["CONTROLS", "MUTANTS", "Category", "Mutant"]

CONTROLS: dict[str, type[Node]] = {
    "roi_align": roi_align.Control,
    "dml_roi_align": dml_roi_align.Control,
    "dml_resample": dml_resample.Control,
    "roi_align_rotated": roi_align_rotated.Control,
    "max_roi_pool": max_roi_pool.Control,
}
"""The control of each family of operators."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """An implementation with one fault.

    operators: the family of its operators.
    backend: the class, with ONNX's backend interface.
    """

    operators: str
    backend: type[Node]

    @property
    def name(self) -> str:
        """The name of its backend without `conformance.mutants.`: module:class."""
        return f"{self.operators}:{self.backend.__name__}"

    @property
    def category(self) -> Category:
        """The part of the operator that the fault concerns."""
        return self.backend.category

    @property
    def is_gradient_only(self) -> bool:
        """Whether only the gradient has the fault."""
        return self.backend.gradient_only

    @property
    def description(self) -> str:
        """The fault in one sentence."""
        return str(self.backend.__doc__)


MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(operators, backend)
    for operators, module in (
        ("roi_align", roi_align),
        ("dml_roi_align", dml_roi_align),
        ("dml_resample", dml_resample),
        ("roi_align_rotated", roi_align_rotated),
        ("max_roi_pool", max_roi_pool),
    )
    for backend in module.MUTANTS
)
"""All mutants, in the order of their operators."""
