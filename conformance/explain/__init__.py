# SPDX-License-Identifier: MIT OR Apache-2.0
"""Explain one case of the suite: tables, and a drawing of where its operator reads the map."""

from __future__ import annotations

from conformance.explain.explanation import Explanation, explain

__all__ = ["Explanation", "explain"]
