"""Build models of DirectML's RoiAlign and of its gradient."""

from __future__ import annotations

from collections.abc import Collection

import onnx

from onnx_models.build import INDEX_TYPE, Lengths, model
from ortops.operators import BY_NAME
from ortops.spec import AttributeValue

DML_ROI_ALIGN = BY_NAME["DmlRoiAlign"]
DML_ROI_ALIGN_GRAD = BY_NAME["DmlRoiAlignGrad"]


def dml_roi_align(
    *,
    element_type: str = "float",
    index_type: str = INDEX_TYPE,
    roi_rank: int = 2,
    batch_indices_rank: int = 1,
    axes: Lengths | None = None,
    portable: bool = False,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """Build a model of one DmlRoiAlign node: OutputTensor from InputTensor, ROITensor and BatchIndicesTensor.

    The attributes are the fields of DirectML's ROI_ALIGN1. With their defaults the node computes ROI_ALIGN.

    Args:
        element_type: of InputTensor, ROITensor and OutputTensor: ``float16``, ``float`` or ``double``.
        index_type: of BatchIndicesTensor: ``int64``, or ``uint32`` as in DirectML.
        roi_rank: the rank of ROITensor, 2 to 4: [num_rois, 4], [1, num_rois, 4] or [1, 1, num_rois, 4].
        batch_indices_rank: the rank of BatchIndicesTensor, 1 to 4; beyond 1, its leading axes have length 1.
        axes: lengths or other names for the axes N, C, H, W and num_rois; the others keep these names and are of any length.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
        attributes: output_height and output_width (1), reduction_function (average), interpolation_mode (linear),
            spatial_scale_x and spatial_scale_y (1.0), input_pixel_offset (0.5), output_pixel_offset (-0.5),
            out_of_bounds_input_value (0.0), minimum_samples_per_output (1), maximum_samples_per_output (2**32 - 1) and
            align_regions_to_corners (0). The node has all of them.

    Returns:
        A model with inputs InputTensor [N, C, H, W], ROITensor [num_rois, 4] and BatchIndicesTensor [num_rois], and
        output OutputTensor [num_rois, C, output_height, output_width].

    Raises:
        ValueError: a type, a rank, an axis or the value of an attribute is not allowed.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.

    Source: Microsoft's documentation of DML_ROI_ALIGN1_OPERATOR_DESC.
    """
    return model(
        DML_ROI_ALIGN,
        element_type=element_type,
        index_type=index_type,
        ranks={"ROITensor": roi_rank, "BatchIndicesTensor": batch_indices_rank},
        axes=axes,
        attributes=attributes,
        portable=portable,
    )


def dml_roi_align_grad(
    *,
    element_type: str = "float",
    index_type: str = INDEX_TYPE,
    roi_rank: int = 2,
    batch_indices_rank: int = 1,
    outputs: Collection[str] = ("OutputGradientTensor", "OutputROIGradientTensor"),
    axes: Lengths | None = None,
    portable: bool = False,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """Build a model of one DmlRoiAlignGrad node: the gradients of `dml_roi_align` for InputTensor and ROITensor.

    The model has the input InputTensor only where the node needs it: for OutputROIGradientTensor and for the maximum.

    Args:
        element_type: of all tensors but BatchIndicesTensor and x_shape: ``float16``, ``float`` or ``double``.
        index_type: as in `dml_roi_align`.
        roi_rank: of ROITensor and of OutputROIGradientTensor, as in `dml_roi_align`.
        batch_indices_rank: as in `dml_roi_align`.
        outputs: ``OutputGradientTensor``, ``OutputROIGradientTensor`` or both, in any case.
        axes: lengths or other names for the axes N, C, H, W, num_rois, output_height and output_width.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
        attributes: those of `dml_roi_align` except output_height, output_width and out_of_bounds_input_value.

    Returns:
        A model with inputs InputGradientTensor [num_rois, C, output_height, output_width], ROITensor [num_rois, 4],
        BatchIndicesTensor [num_rois], x_shape [4] (int64) and InputTensor [N, C, H, W], and outputs
        OutputGradientTensor [N, C, H, W] and OutputROIGradientTensor [num_rois, 4].

    Raises:
        ValueError: a type, a rank, an output, an axis or the value of an attribute is not allowed.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.

    Source: Microsoft's documentation of DML_ROI_ALIGN_GRAD_OPERATOR_DESC.
    """
    return model(
        DML_ROI_ALIGN_GRAD,
        element_type=element_type,
        index_type=index_type,
        ranks={"ROITensor": roi_rank, "BatchIndicesTensor": batch_indices_rank},
        axes=axes,
        attributes=attributes,
        portable=portable,
        outputs=outputs,
    )
