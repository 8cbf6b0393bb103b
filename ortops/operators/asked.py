# SPDX-License-Identifier: MIT
"""The operators that the conformance suite asks: this project's own, and those of ONNX for which it has no kernel."""

from __future__ import annotations

from ortops.operators import OPERATORS as OWN
from ortops.operators.grid_sample import GRID_SAMPLES

WITHOUT_KERNEL = GRID_SAMPLES
"""Operators that ortops leaves to ONNX Runtime. They have no functions, builders, bodies or gradients."""

OPERATORS = (*OWN, *WITHOUT_KERNEL)
BY_NAME = {operator.name: operator for operator in OPERATORS}
