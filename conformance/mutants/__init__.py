"""Mutants: implementations that are wrong on purpose. Each has one mistake, and the suite must fail it.

A mutant is the reference with a few of its functions edited or replaced (`base.py`), and has ONNX's backend interface:
``python -m conformance --backend conformance.families.roi_align.mutants:NoHalfPixel``. Those of a family are in its folder;
`shared.py` has those of several families.
"""
