"""Explain one case of the suite: tables, and a drawing of where its operator reads the map, by each convention."""

from __future__ import annotations

from conformance.explain.explanation import explain
from conformance.explain.parts import Explanation

__all__ = ["Explanation", "explain"]
