"""Explain one case of the suite: draw where its samples fall, by each of the conventions that are often confused."""

from __future__ import annotations

from conformance.explain.explanation import Explanation, explain

__all__ = ["Explanation", "explain"]
