# SPDX-License-Identifier: MIT
"""Operators of your own: see docs/custom_operators.md."""
