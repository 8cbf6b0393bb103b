"""RoiAlign and its gradient for ONNX Runtime, written in Python."""

from ortops.operators import OPERATORS

__all__ = ["OPERATORS"]
