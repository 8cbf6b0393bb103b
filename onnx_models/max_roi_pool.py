"""Build models of MaxRoiPool and of its gradient."""

from __future__ import annotations

import onnx

from onnx_models.build import Lengths, model
from ortops.operators.max_roi_pool import MAX_ROI_POOL_1, MAX_ROI_POOL_22, MAX_ROI_POOL_GRAD
from ortops.spec import AttributeValue

MAX_ROI_POOL = {1: MAX_ROI_POOL_1, 22: MAX_ROI_POOL_22}
"""By ONNX's opset, this project's operator for the same computation."""


def max_roi_pool(
    opset: int,
    *,
    standard: bool = False,
    element_type: str = "float",
    axes: Lengths | None = None,
    portable: bool = False,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """Build a model of one MaxRoiPool node: Y from X and rois.

    Args:
        opset: the ONNX opset that defines MaxRoiPool: 1 or 22.
        standard: True for ONNX's own MaxRoiPool (at opset 7 for 1, since runtimes read no older one), False for this
            project's MaxRoiPool_1 or MaxRoiPool_22.
        element_type: of X, rois and Y: ``float16``, ``float`` or ``double``, at opset 22 ``bfloat16`` too.
        axes: lengths or other names for the axes N, C, H, W and num_rois; the others keep these names and are of any length.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
        attributes: pooled_shape (1, 1), the height and the width of the output, and spatial_scale (1.0). The
            node has both.

    Returns:
        A model with inputs X [N, C, H, W] and rois [num_rois, 5] (batch_id, x1, y1, x2 and y2), and output
        Y [num_rois, C, *pooled_shape]. Its bytes depend on the arguments alone.

    Raises:
        ValueError: opset, element_type, an axis or the value of an attribute is not allowed.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.

    Source: ONNX operator specification, MaxRoiPool, versions 1 and 22.
    """
    if opset not in MAX_ROI_POOL:
        known = " or ".join(map(str, MAX_ROI_POOL))
        raise ValueError(f"opset = {opset!r}: must be {known}, which define MaxRoiPool")
    return model(
        MAX_ROI_POOL[opset],
        standard=standard,
        element_type=element_type,
        axes=axes,
        attributes=attributes,
        portable=portable,
    )


def max_roi_pool_grad(
    *, element_type: str = "float", axes: Lengths | None = None, portable: bool = False, **attributes: AttributeValue
) -> onnx.ModelProto:
    """Build a model of one MaxRoiPoolGrad node: dX from dY, X and rois.

    Args:
        element_type: of all tensors: ``float16``, ``bfloat16``, ``float`` or ``double``.
        axes: lengths or other names for the axes N, C, H, W, num_rois, output_height and output_width.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
        attributes: spatial_scale (1.0).

    Returns:
        A model with inputs dY [num_rois, C, output_height, output_width], X [N, C, H, W] and rois [num_rois, 5], and
        output dX [N, C, H, W].

    Raises:
        ValueError: element_type, an axis or the value of an attribute is not allowed.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.
    """
    return model(MAX_ROI_POOL_GRAD, element_type=element_type, axes=axes, attributes=attributes, portable=portable)
