"""Build models of RoIAlignRotated and of its gradient."""

from __future__ import annotations

from collections.abc import Collection

import onnx

from onnx_models.build import Lengths, model
from ortops.operators.roi_align_rotated import ROI_ALIGN_ROTATED, ROI_ALIGN_ROTATED_GRAD
from ortops.spec import AttributeValue


def roi_align_rotated(
    *, element_type: str = "float", axes: Lengths | None = None, portable: bool = False, **attributes: AttributeValue
) -> onnx.ModelProto:
    """Build a model of one RoIAlignRotated node: Y from X, rois and batch_indices.

    Args:
        element_type: of X, rois and Y: ``float16``, ``bfloat16``, ``float`` or ``double``.
        axes: lengths or other names for the axes N, C, H, W and num_rois; the others keep these names and are of any length.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
        attributes: output_height and output_width (1), aligned (1), clockwise (0), sampling_ratio (0) and
            spatial_scale (1.0). The node has all of them.

    Returns:
        A model with inputs X [N, C, H, W], rois [num_rois, 5] (cx, cy, w, h and the angle in radians) and
        batch_indices [num_rois] (int64), and output Y [num_rois, C, output_height, output_width]. Its bytes depend on
        the arguments alone.

    Raises:
        ValueError: element_type, an axis or the value of an attribute is not allowed.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.

    Source: mmcv's documentation of RoIAlignRotated; `ortops.operators.roi_align_rotated`.
    """
    return model(ROI_ALIGN_ROTATED, element_type=element_type, axes=axes, attributes=attributes, portable=portable)


def roi_align_rotated_grad(
    *,
    element_type: str = "float",
    outputs: Collection[str] = ("dx", "drois"),
    axes: Lengths | None = None,
    portable: bool = False,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """Build a model of one RoIAlignRotatedGrad node: dX and drois from dY.

    The model has the input X only where the node needs it: for drois.

    Args:
        element_type: of dY, rois, X, dX and drois: ``float16``, ``bfloat16``, ``float`` or ``double``.
        outputs: ``dx``, ``drois`` or both.
        axes: lengths or other names for the axes N, C, H, W, num_rois, output_height and output_width.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
        attributes: those of `roi_align_rotated` except output_height and output_width.

    Returns:
        A model with inputs dY [num_rois, C, output_height, output_width], rois [num_rois, 5], batch_indices [num_rois]
        (int64), x_shape [4] (int64) and X [N, C, H, W], and outputs dX [N, C, H, W] and drois [num_rois, 5].

    Raises:
        ValueError: element_type, an output, an axis or the value of an attribute is not allowed.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.
    """
    return model(
        ROI_ALIGN_ROTATED_GRAD,
        element_type=element_type,
        axes=axes,
        attributes=attributes,
        portable=portable,
        outputs=outputs,
    )
