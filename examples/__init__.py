# SPDX-License-Identifier: MIT
"""Uses of the gradients, run by ONNX Runtime: `make examples`."""
