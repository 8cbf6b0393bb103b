# SPDX-License-Identifier: MIT
"""Messages of ONNX: reading, checking, changing and making them, without knowledge of what they are for."""
