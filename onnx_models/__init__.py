"""ONNX models of this project's operators, and from other models' operators to these."""

from onnx_models.build import dml_roi_align, dml_roi_align_grad, joint, model, node, roi_align, roi_align_grad
from onnx_models.convert import convert
from onnx_models.schema import register_schemas

# Grouped by what they are for.
__all__ = [  # noqa: RUF022
    # Models of RoiAlign and of its gradient.
    "joint",
    "roi_align",
    "roi_align_grad",
    # Models of DirectML's.
    "dml_roi_align",
    "dml_roi_align_grad",
    # Models and nodes of any operator.
    "model",
    "node",
    # Models of other origin.
    "convert",
    # ONNX's checker and shape inference.
    "register_schemas",
]
