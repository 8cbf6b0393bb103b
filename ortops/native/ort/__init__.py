# SPDX-License-Identifier: MIT
"""Between ONNX Runtime and nodes, in compiled code: registration, kernels, shape inference, callbacks of Python."""
