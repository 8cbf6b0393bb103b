# SPDX-License-Identifier: MIT OR Apache-2.0
"""Cases of a detector's sizes, whose tensors are computed from formulas."""
