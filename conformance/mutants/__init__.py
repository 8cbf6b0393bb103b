"""Mutants: implementations that are wrong on purpose. Each has one mistake, and the suite must fail it.

A mutant is the reference with a few of its functions edited or replaced (`base.py`), and has ONNX's backend interface:
``python -m conformance --backend conformance.mutants.roi_align:NoHalfPixel``. `shared.py` has those of several families.
"""

from __future__ import annotations

import importlib

from conformance.mutants.base import Category, Mutant
from ortops.operators import OPERATORS

__all__ = ["MUTANTS", "Category", "Mutant"]

MUTANTS: tuple[Mutant, ...] = tuple(
    mutant
    for family in dict.fromkeys(operator.family for operator in OPERATORS)
    for mutant in importlib.import_module(f"conformance.mutants.{family}").MUTANTS.values()
)
"""All mutants, in the order of their operators."""
