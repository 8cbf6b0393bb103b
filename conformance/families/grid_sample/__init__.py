# SPDX-License-Identifier: MIT OR Apache-2.0
"""ONNX's GridSample at opsets 16, 20 and 22, on maps with two and with three spatial axes."""

from conformance.families import Family

FAMILY = Family(__name__, bounds=f"{__name__}.geometry")
