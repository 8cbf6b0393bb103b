"""Build models of RoiAlign, of its gradient, and of both together."""

from __future__ import annotations

from collections.abc import Collection

import onnx

from onnx_models.attributes import attribute_values
from onnx_models.build import (
    INDEX_TYPE,
    Lengths,
    axis_lengths,
    make_model,
    model,
    node,
    tensor_ranks,
    type_values,
    value_info,
)
from onnx_models.opset_upgrade import DEFAULT_OPSET
from ortops.operators import OPERATORS
from ortops.operators.roi_align import ROI_ALIGN_GRAD
from ortops.spec import DOMAIN, DOMAIN_VERSION, AttributeValue

ROI_ALIGN = {
    operator.standard[1]: operator for operator in OPERATORS if operator.family == "roi_align" and operator.standard
}
"""By ONNX's opset, this project's operator for the same computation."""


def roi_align(
    opset: int,
    *,
    standard: bool = False,
    element_type: str = "float",
    axes: Lengths | None = None,
    portable: bool = False,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """Build a model of one RoiAlign node: Y from X, rois and batch_indices.

    Args:
        opset: the ONNX opset that defines RoiAlign: 10, 16 or 22.
        standard: True for ONNX's own RoiAlign at that opset, False for this project's RoiAlign_10, _16 or _22.
        element_type: of X, rois and Y: ``float16``, ``float`` or ``double``, at opset 22 ``bfloat16`` too.
        axes: lengths or other names for the axes N, C, H, W and num_rois; the others keep these names and are of any length.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
        attributes: output_height and output_width (1), mode (avg), sampling_ratio (0), spatial_scale (1.0) and, from
            opset 16 on, coordinate_transformation_mode (half_pixel). The node has all of them.

    Returns:
        A model with inputs X [N, C, H, W], rois [num_rois, 4] and batch_indices [num_rois] (int64), and output
        Y [num_rois, C, output_height, output_width]. Its bytes depend on the arguments alone.

    Raises:
        ValueError: opset, element_type, an axis or the value of an attribute is not allowed.
        TypeError: an attribute is unknown at this opset, or an attribute or an axis has a value of a wrong type.

    Source: ONNX operator specification, RoiAlign, versions 10, 16 and 22.
    """
    if opset not in ROI_ALIGN:
        raise ValueError(f"opset = {opset!r}: must be one of {', '.join(map(str, ROI_ALIGN))}, which define RoiAlign")
    return model(
        ROI_ALIGN[opset],
        standard=standard,
        element_type=element_type,
        axes=axes,
        attributes=attributes,
        portable=portable,
    )


def roi_align_grad(
    *,
    element_type: str = "float",
    outputs: Collection[str] = ("dx", "drois"),
    axes: Lengths | None = None,
    portable: bool = False,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """Build a model of one RoiAlignGrad node: dX and drois from dY.

    The model has the input X only where the node needs it: for drois and for the max modes.

    Args:
        element_type: of dY, rois, X, dX and drois: ``float16``, ``bfloat16``, ``float`` or ``double``.
        outputs: ``dx``, ``drois`` or both.
        axes: lengths or other names for the axes N, C, H, W, num_rois, output_height and output_width.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
        attributes: mode (avg), coordinate_transformation_mode (half_pixel), sampling_ratio (0), spatial_scale (1.0).

    Returns:
        A model with inputs dY [num_rois, C, output_height, output_width], rois [num_rois, 4], batch_indices [num_rois]
        (int64), x_shape [4] (int64) and X [N, C, H, W], and outputs dX [N, C, H, W] and drois [num_rois, 4].

    Raises:
        ValueError: element_type, an output, an axis or the value of an attribute is not allowed.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.
    """
    return model(
        ROI_ALIGN_GRAD,
        element_type=element_type,
        axes=axes,
        attributes=attributes,
        portable=portable,
        outputs=outputs,
    )


def roi_align_with_grad(
    *, element_type: str = "float", axes: Lengths | None = None, portable: bool = False, **attributes: AttributeValue
) -> onnx.ModelProto:
    """Build a model of RoiAlign of opset 22 and of its gradient: Y, dX and drois from X, rois, batch_indices and dY.

    Args:
        element_type: of all tensors but batch_indices: ``float16``, ``bfloat16``, ``float`` or ``double``.
        axes: lengths or other names for the axes N, C, H, W and num_rois.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
        attributes: those of `roi_align` at opset 22, for both nodes.

    Returns:
        A model with inputs X [N, C, H, W], rois [num_rois, 4], batch_indices [num_rois] (int64) and
        dY [num_rois, C, output_height, output_width], and outputs Y (as dY), dX [N, C, H, W] and drois [num_rois, 4].

    Raises:
        ValueError: element_type, an axis or the value of an attribute is not allowed.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.
    """
    forward = ROI_ALIGN[22]
    types = type_values(forward, element_type, INDEX_TYPE)
    checked = attribute_values(forward, attributes)
    ranks = tensor_ranks(forward, {}, checked) | tensor_ranks(ROI_ALIGN_GRAD, {}, {})
    lengths = axis_lengths((forward, ROI_ALIGN_GRAD), ranks, checked, axes or {})
    shared = {a.name: checked[a.name] for a in ROI_ALIGN_GRAD.attributes}
    tensors = {t.name: t for t in (*forward.inputs, *forward.outputs, *ROI_ALIGN_GRAD.inputs, *ROI_ALIGN_GRAD.outputs)}
    x, rois, batch_indices = (tensor.name for tensor in forward.inputs)
    nodes = [
        node(forward, (x, rois, batch_indices), ("Y",), checked),
        onnx.helper.make_node("Shape", (x,), ("x_shape",), name="Shape"),
        node(ROI_ALIGN_GRAD, ("dY", rois, batch_indices, "x_shape", x), ("dX", "drois"), shared),
    ]
    inputs, outputs = (
        [value_info(tensors[name], ranks[name], types, lengths) for name in names]
        for names in ((x, rois, batch_indices, "dY"), ("Y", "dX", "drois"))
    )
    return make_model(
        "RoiAlign with its gradient", nodes, inputs, outputs, {"": DEFAULT_OPSET, DOMAIN: DOMAIN_VERSION}, portable
    )
