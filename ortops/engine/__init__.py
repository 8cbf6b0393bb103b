# SPDX-License-Identifier: MIT
"""ONNX Runtime as Python sees it: OrtApi, domains of operators in session options, errors of calls, the exit."""
