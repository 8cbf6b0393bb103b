# SPDX-License-Identifier: MIT OR Apache-2.0
"""Mutants: deliberately wrong implementations. Each has one mistake, and the suite must reject it.

A mutant is the reference with a few of its functions edited or replaced (`base.py`), and has ONNX's backend interface:
``python -m conformance --backend conformance.families.roi_align.mutants:NoHalfPixel``. Each family's folder has its mutants,
and `shared.py` has those that several families share.
"""
