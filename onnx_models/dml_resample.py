"""Build models of DirectML's resampling and of its gradient."""

from __future__ import annotations

import onnx

from onnx_models.build import Lengths, model
from ortops.operators import BY_NAME
from ortops.spec import AttributeValue

DML_RESAMPLE = BY_NAME["DmlResample"]
DML_RESAMPLE_GRAD = BY_NAME["DmlResampleGrad"]


def dml_resample(
    *,
    element_type: str = "float",
    rank: int | None = None,
    axes: Lengths | None = None,
    portable: bool = False,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """Build a model of one DmlResample node, which scales InputTensor along each of its axes to OutputTensor.

    The attributes are the fields of DirectML's RESAMPLE2, lists with one value for each axis. `onnx_models.directml` has
    the attributes for RESAMPLE and RESAMPLE1, and `onnx_models.resample_attributes` returns those for ONNX's Resize.

    Args:
        element_type: ``float16``, ``float`` or ``double``.
        rank: 1 to 4; None for the number of values of the lists.
        axes: lengths or other names for the axes N0, N1 and so on of InputTensor and for those axes M0, M1 and so on of
            OutputTensor whose length does not follow; the others keep these names and are of any length.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
        attributes: interpolation_mode (linear), scales (the ratio of the two lengths), input_pixel_offsets (0.5 each),
            output_pixel_offsets (-0.5 each), rounding_direction (half_up) and output_sizes (InputTensor's lengths times
            scales, rounded down). At least one of scales and output_sizes is needed. The node has all attributes except
            empty lists.

    Returns:
        A model with input InputTensor [N0, N1, ...] and output OutputTensor [M0, M1, ...], of the same rank.

    Raises:
        ValueError: the type, the rank, an axis or the value of an attribute is not an allowed one, or both scales and
            output_sizes are missing.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.

    Source: Microsoft's documentation of DML_RESAMPLE2_OPERATOR_DESC.
    """
    ranks = {} if rank is None else {"InputTensor": rank}
    return model(
        DML_RESAMPLE, element_type=element_type, ranks=ranks, axes=axes, attributes=attributes, portable=portable
    )


def dml_resample_grad(
    *,
    element_type: str = "float",
    rank: int | None = None,
    axes: Lengths | None = None,
    portable: bool = False,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """Build a model of one DmlResampleGrad node: the gradient of `dml_resample` with respect to InputTensor.

    Args:
        element_type: ``float16``, ``float`` or ``double``.
        rank: 1 to 4; None for the number of values of the lists, or 4 without lists.
        axes: lengths or other names for the axes M0, M1 and so on of InputGradientTensor and N0, N1 and so on of
            OutputGradientTensor; the others keep these names and are of any length.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
        attributes: those of the forward node (`dml_resample`), with the same values, except output_sizes.

    Returns:
        A model with inputs InputGradientTensor [M0, M1, ...] and x_shape [rank] (int64), and output
        OutputGradientTensor [N0, N1, ...].

    Raises:
        ValueError: the type, the rank, an axis or the value of an attribute is not allowed.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.

    Source: Microsoft's documentation of DML_RESAMPLE_GRAD1_OPERATOR_DESC.
    """
    ranks = {} if rank is None else {"InputGradientTensor": rank}
    return model(
        DML_RESAMPLE_GRAD, element_type=element_type, ranks=ranks, axes=axes, attributes=attributes, portable=portable
    )
