"""One case of the suite as a picture: where its samples fall, by the conventions that people mix up."""

from __future__ import annotations

from conformance.explain.explanation import Explanation, explain

__all__ = ["Explanation", "explain"]
