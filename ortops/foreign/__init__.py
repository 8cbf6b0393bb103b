# SPDX-License-Identifier: MIT
"""Nodes of ONNX and of other projects, which sessions run without conversion."""
