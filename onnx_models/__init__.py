"""Build ONNX models of this project's operators, convert other models to them, and differentiate models."""

import importlib
from typing import TYPE_CHECKING, Any

from onnx_models import directml, portable
from onnx_models.build import model, node
from onnx_models.builders import (
    dml_resample,
    dml_resample_grad,
    dml_roi_align,
    dml_roi_align_grad,
    max_roi_pool,
    max_roi_pool_grad,
    resize_grad,
    roi_align,
    roi_align_grad,
    roi_align_rotated,
    roi_align_rotated_grad,
    roi_align_with_grad,
)
from onnx_models.convert import convert
from onnx_models.gradient import gradient, jvp, vjp
from onnx_models.resize import resample_attributes
from onnx_models.schema import register_schemas
from onnx_models.training import with_loss, with_sgd

if TYPE_CHECKING:
    from onnx_models import torch as torch

# Grouped by what they are for.
__all__ = [  # noqa: RUF022
    # Models of RoiAlign and of its gradient.
    "roi_align",
    "roi_align_grad",
    "roi_align_with_grad",
    # Models of RoIAlign over rotated regions.
    "roi_align_rotated",
    "roi_align_rotated_grad",
    # Models of MaxRoiPool.
    "max_roi_pool",
    "max_roi_pool_grad",
    # Models of DirectML's operators, and the attributes of its older ones.
    "dml_roi_align",
    "dml_roi_align_grad",
    "dml_resample",
    "dml_resample_grad",
    "directml",
    # ONNX's Resize as a DmlResample node, and its gradient.
    "resample_attributes",
    "resize_grad",
    # Models and nodes of any operator.
    "model",
    "node",
    # Changes to any model: this project's operators, gradients, bodies of standard operators.
    "convert",
    "gradient",
    "vjp",
    "jvp",
    "portable",
    # Training steps.
    "with_loss",
    "with_sgd",
    # Schemas for ONNX's checker and shape inference.
    "register_schemas",
]


def __getattr__(name: str) -> Any:
    """Import ``onnx_models.torch`` on first use, as it needs PyTorch, an extra."""
    if name == "torch":
        return importlib.import_module("onnx_models.torch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
