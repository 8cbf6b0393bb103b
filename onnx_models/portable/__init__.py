"""This project's operators in standard ONNX operators, so that a model runs where no kernel is registered."""

from onnx_models.portable.attach import attach

__all__ = ["attach"]
