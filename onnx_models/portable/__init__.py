# SPDX-License-Identifier: MIT
"""Bodies of this project's operators in standard ONNX operators, for runtimes without its kernels."""

from onnx_models.portable.attach import attach, lower

__all__ = ["attach", "lower"]
