"""Build models of this project's operators, one function for each.

All of them take these keyword arguments, and raise what `onnx_models.model` does:

    element_type: of all tensors but indices and shapes, "float" by default. Every operator has float16, float and double;
        those that ONNX defines at opset 22, RoIAlignRotated and their gradients have bfloat16 too.
    axes: lengths or other names for the named axes of inputs and outputs, which the functions list in brackets; the
        others keep these names and are of any length.
    portable: True to attach a body of standard operators (`onnx_models.portable.attach`).

All other keyword arguments are attributes; the functions list their defaults. The node has all of them except empty lists.
The bytes of a model depend on the arguments alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

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
from onnx_models.portable.attach import attach
from onnx_models.resize import resample_attributes
from onnx_models.traversal import normalize_domain
from ortops.operators import BY_NAME, OPERATORS
from ortops.spec import DOMAIN, DOMAIN_VERSION, AttributeValue, Operator


def build(
    operator: Operator,
    *,
    element_type: str = "float",
    index_type: str = INDEX_TYPE,
    ranks: Mapping[str, int] | None = None,
    axes: Lengths | None = None,
    outputs: Collection[str] | None = None,
    standard: bool = False,
    portable: bool = False,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """Build a model of one node, as `onnx_models.model` does, with the attributes as keyword arguments."""
    return model(
        operator,
        element_type=element_type,
        index_type=index_type,
        ranks=ranks,
        attributes=attributes,
        axes=axes,
        outputs=outputs,
        standard=standard,
        portable=portable,
    )


def _at_opset(name: str, opset: int) -> Operator:
    """Return this project's operator that computes ONNX's operator of an opset."""
    known = {one.standard[1]: one for one in OPERATORS if one.standard and one.standard[0] == name}
    if opset not in known:
        choices = " or ".join(map(str, known)) if len(known) < 3 else f"one of {', '.join(map(str, known))}"
        raise ValueError(f"opset = {opset!r}: must be {choices}, which define {name}")
    return known[opset]


def roi_align(opset: int, *, standard: bool = False, **options: Any) -> onnx.ModelProto:
    """Build a model of one RoiAlign node: Y from X, rois and batch_indices.

    Args:
        opset: the ONNX opset that defines RoiAlign: 10, 16 or 22.
        standard: True for ONNX's own RoiAlign at that opset, False for this project's RoiAlign_10, _16 or _22.
        options: see above. The attributes are output_height and output_width (1), mode (avg), sampling_ratio (0),
            spatial_scale (1.0) and, from opset 16 on, coordinate_transformation_mode (half_pixel).

    Returns:
        A model with inputs X [N, C, H, W], rois [num_rois, 4] and batch_indices [num_rois] (int64), and output
        Y [num_rois, C, output_height, output_width].

    Source: ONNX operator specification, RoiAlign, versions 10, 16 and 22.
    """
    return build(_at_opset("RoiAlign", opset), standard=standard, **options)


def roi_align_grad(**options: Any) -> onnx.ModelProto:
    """Build a model of one RoiAlignGrad node: dX and drois from dY.

    The model has the input X only where the node needs it: for drois and for the max modes.

    Args:
        options: see above; outputs, ``dx``, ``drois`` or both (the default). The attributes are mode (avg),
            coordinate_transformation_mode (half_pixel), sampling_ratio (0) and spatial_scale (1.0).

    Returns:
        A model with inputs dY [num_rois, C, output_height, output_width], rois [num_rois, 4], batch_indices [num_rois]
        (int64), x_shape [4] (int64) and X [N, C, H, W], and outputs dX [N, C, H, W] and drois [num_rois, 4].
    """
    return build(BY_NAME["RoiAlignGrad"], **options)


def roi_align_with_grad(
    *, element_type: str = "float", axes: Lengths | None = None, portable: bool = False, **attributes: AttributeValue
) -> onnx.ModelProto:
    """Build a model of RoiAlign of opset 22 and of its gradient: Y, dX and drois from X, rois, batch_indices and dY.

    Args:
        element_type: see above.
        axes: see above.
        portable: see above.
        attributes: those of `roi_align` at opset 22, for both nodes.

    Returns:
        A model with inputs X [N, C, H, W], rois [num_rois, 4], batch_indices [num_rois] (int64) and
        dY [num_rois, C, output_height, output_width], and outputs Y (as dY), dX [N, C, H, W] and drois [num_rois, 4].
    """
    forward, backward = BY_NAME["RoiAlign_22"], BY_NAME["RoiAlignGrad"]
    types = type_values(forward, element_type, INDEX_TYPE)
    checked = attribute_values(forward, attributes)
    ranks = tensor_ranks(forward, {}, checked) | tensor_ranks(backward, {}, {})
    lengths = axis_lengths((forward, backward), ranks, checked, axes or {})
    shared = {a.name: checked[a.name] for a in backward.attributes}
    tensors = {t.name: t for t in (*forward.inputs, *forward.outputs, *backward.inputs, *backward.outputs)}
    x, rois, batch_indices = (tensor.name for tensor in forward.inputs)
    nodes = [
        node(forward, (x, rois, batch_indices), ("Y",), checked),
        onnx.helper.make_node("Shape", (x,), ("x_shape",), name="Shape"),
        node(backward, ("dY", rois, batch_indices, "x_shape", x), ("dX", "drois"), shared),
    ]
    inputs, outputs = (
        [value_info(tensors[name], ranks[name], types, lengths) for name in names]
        for names in ((x, rois, batch_indices, "dY"), ("Y", "dX", "drois"))
    )
    return make_model(
        "RoiAlign with its gradient", nodes, inputs, outputs, {"": DEFAULT_OPSET, DOMAIN: DOMAIN_VERSION}, portable
    )


def roi_align_rotated(**options: Any) -> onnx.ModelProto:
    """Build a model of one RoIAlignRotated node: Y from X, rois and batch_indices.

    Args:
        options: see above. The attributes are output_height and output_width (1), aligned (1), clockwise (0),
            sampling_ratio (0) and spatial_scale (1.0).

    Returns:
        A model with inputs X [N, C, H, W], rois [num_rois, 5] (cx, cy, w, h and the angle in radians) and
        batch_indices [num_rois] (int64), and output Y [num_rois, C, output_height, output_width].

    Source: mmcv's documentation of RoIAlignRotated; `ortops.operators.roi_align_rotated`.
    """
    return build(BY_NAME["RoIAlignRotated"], **options)


def roi_align_rotated_grad(**options: Any) -> onnx.ModelProto:
    """Build a model of one RoIAlignRotatedGrad node: dX and drois from dY.

    The model has the input X only where the node needs it: for drois.

    Args:
        options: see above; outputs, ``dx``, ``drois`` or both (the default). The attributes are those of
            `roi_align_rotated` except output_height and output_width.

    Returns:
        A model with inputs dY [num_rois, C, output_height, output_width], rois [num_rois, 5], batch_indices [num_rois]
        (int64), x_shape [4] (int64) and X [N, C, H, W], and outputs dX [N, C, H, W] and drois [num_rois, 5].
    """
    return build(BY_NAME["RoIAlignRotatedGrad"], **options)


def max_roi_pool(opset: int, *, standard: bool = False, **options: Any) -> onnx.ModelProto:
    """Build a model of one MaxRoiPool node: Y from X and rois.

    Args:
        opset: the ONNX opset that defines MaxRoiPool: 1 or 22.
        standard: True for ONNX's own MaxRoiPool (at opset 7 for 1, since runtimes read no older one), False for this
            project's MaxRoiPool_1 or MaxRoiPool_22.
        options: see above. The attributes are pooled_shape (1, 1), the height and the width of the output, and
            spatial_scale (1.0).

    Returns:
        A model with inputs X [N, C, H, W] and rois [num_rois, 5] (batch_id, x1, y1, x2 and y2), and output
        Y [num_rois, C, *pooled_shape].

    Source: ONNX operator specification, MaxRoiPool, versions 1 and 22.
    """
    return build(_at_opset("MaxRoiPool", opset), standard=standard, **options)


def max_roi_pool_grad(**options: Any) -> onnx.ModelProto:
    """Build a model of one MaxRoiPoolGrad node: dX from dY, X and rois.

    Args:
        options: see above. The attribute is spatial_scale (1.0).

    Returns:
        A model with inputs dY [num_rois, C, output_height, output_width], X [N, C, H, W] and rois [num_rois, 5], and
        output dX [N, C, H, W].
    """
    return build(BY_NAME["MaxRoiPoolGrad"], **options)


def dml_roi_align(*, roi_rank: int = 2, batch_indices_rank: int = 1, **options: Any) -> onnx.ModelProto:
    """Build a model of one DmlRoiAlign node: OutputTensor from InputTensor, ROITensor and BatchIndicesTensor.

    The attributes are the fields of DirectML's ROI_ALIGN1. With their defaults the node computes ROI_ALIGN.

    Args:
        roi_rank: the rank of ROITensor, 2 to 4: [num_rois, 4], [1, num_rois, 4] or [1, 1, num_rois, 4].
        batch_indices_rank: the rank of BatchIndicesTensor, 1 to 4; beyond 1, its leading axes have length 1.
        options: see above; index_type, the type of BatchIndicesTensor, ``int64`` (the default) or ``uint32`` as in
            DirectML. The attributes are output_height and output_width (1), reduction_function (average),
            interpolation_mode (linear), spatial_scale_x and spatial_scale_y (1.0), input_pixel_offset (0.5),
            output_pixel_offset (-0.5), out_of_bounds_input_value (0.0), minimum_samples_per_output (1),
            maximum_samples_per_output (2**32 - 1) and align_regions_to_corners (0).

    Returns:
        A model with inputs InputTensor [N, C, H, W], ROITensor [num_rois, 4] and BatchIndicesTensor [num_rois], and
        output OutputTensor [num_rois, C, output_height, output_width].

    Source: Microsoft's documentation of DML_ROI_ALIGN1_OPERATOR_DESC.
    """
    ranks = {"ROITensor": roi_rank, "BatchIndicesTensor": batch_indices_rank}
    return build(BY_NAME["DmlRoiAlign"], ranks=ranks, **options)


def dml_roi_align_grad(*, roi_rank: int = 2, batch_indices_rank: int = 1, **options: Any) -> onnx.ModelProto:
    """Build a model of one DmlRoiAlignGrad node: the gradients of `dml_roi_align` for InputTensor and ROITensor.

    The model has the input InputTensor only where the node needs it: for OutputROIGradientTensor and for the maximum.

    Args:
        roi_rank: the rank of ROITensor and of OutputROIGradientTensor, as in `dml_roi_align`.
        batch_indices_rank: as in `dml_roi_align`.
        options: see above; index_type as in `dml_roi_align`; outputs, ``OutputGradientTensor``,
            ``OutputROIGradientTensor`` or both (the default), in any case. The attributes are those of `dml_roi_align`
            except output_height, output_width and out_of_bounds_input_value.

    Returns:
        A model with inputs InputGradientTensor [num_rois, C, output_height, output_width], ROITensor [num_rois, 4],
        BatchIndicesTensor [num_rois], x_shape [4] (int64) and InputTensor [N, C, H, W], and outputs
        OutputGradientTensor [N, C, H, W] and OutputROIGradientTensor [num_rois, 4].

    Source: Microsoft's documentation of DML_ROI_ALIGN_GRAD_OPERATOR_DESC.
    """
    ranks = {"ROITensor": roi_rank, "BatchIndicesTensor": batch_indices_rank}
    return build(BY_NAME["DmlRoiAlignGrad"], ranks=ranks, **options)


def dml_resample(*, rank: int | None = None, **options: Any) -> onnx.ModelProto:
    """Build a model of one DmlResample node, which scales InputTensor along each of its axes to OutputTensor.

    The attributes are the fields of DirectML's RESAMPLE2, lists with one value for each axis. `onnx_models.directml` has
    the attributes for RESAMPLE and RESAMPLE1, and `onnx_models.resample_attributes` returns those for ONNX's Resize.

    Args:
        rank: 1 to 4; None for the number of values of the lists.
        options: see above; of OutputTensor, only axes whose length does not follow can be given. The attributes are
            interpolation_mode (linear), scales (the ratio of the two lengths), input_pixel_offsets (0.5 each),
            output_pixel_offsets (-0.5 each), rounding_direction (half_up) and output_sizes (InputTensor's lengths times
            scales, rounded down). At least one of scales and output_sizes is needed.

    Returns:
        A model with input InputTensor [N0, N1, ...] and output OutputTensor [M0, M1, ...], of the same rank.

    Source: Microsoft's documentation of DML_RESAMPLE2_OPERATOR_DESC.
    """
    return build(BY_NAME["DmlResample"], ranks={} if rank is None else {"InputTensor": rank}, **options)


def dml_resample_grad(*, rank: int | None = None, **options: Any) -> onnx.ModelProto:
    """Build a model of one DmlResampleGrad node: the gradient of `dml_resample` with respect to InputTensor.

    Args:
        rank: 1 to 4; None for the number of values of the lists, or 4 without lists.
        options: see above. The attributes are those of the forward node (`dml_resample`), with the same values, except
            output_sizes.

    Returns:
        A model with inputs InputGradientTensor [M0, M1, ...] and x_shape [rank] (int64), and output
        OutputGradientTensor [N0, N1, ...].

    Source: Microsoft's documentation of DML_RESAMPLE_GRAD1_OPERATOR_DESC.
    """
    return build(BY_NAME["DmlResampleGrad"], ranks={} if rank is None else {"InputGradientTensor": rank}, **options)


def resize_grad(
    resize: onnx.NodeProto,
    x_shape: Sequence[int | None],
    *,
    scales: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None,
    roi: Sequence[float] | None = None,
    opset: int = 19,
    element_type: str = "float",
    portable: bool = False,
) -> onnx.ModelProto:
    """Build a model of one DmlResampleGrad node: the gradient of a Resize node with respect to X.

    Args:
        resize: the Resize node. Its attributes are read; its inputs are the arguments below.
        x_shape: lengths of X, as in `resample_attributes`, and so the next three.
        scales: values of the node's input scales.
        sizes: values of the node's input sizes.
        roi: values of the node's input roi.
        opset: the ONNX opset of the node, 10 or later.
        element_type: of X: ``float16``, ``float`` or ``double``.
        portable: see above.

    Returns:
        A model with inputs dY, in the shape of the node's Y, and x_shape [rank] (int64), the shape of X, and output dX in
        that shape. Known lengths are declared; the other axes are M0, M1 and so on of dY and N0, N1 and so on of dX.

    Raises:
        ValueError: the node is not a Resize of ONNX's, an attribute refers to one of a function, or
            `resample_attributes` refuses the node.
        TypeError: as in `resample_attributes`.
    """
    if resize.op_type != "Resize" or normalize_domain(resize.domain) != "":
        raise ValueError(f"resize is a node of {resize.op_type} in {resize.domain!r}: must be Resize in ONNX's domain")
    for attribute in resize.attribute:
        if attribute.ref_attr_name:
            raise ValueError(f"{attribute.name} = @{attribute.ref_attr_name}: must be a value, not a reference to one")
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in resize.attribute}
    attributes = resample_attributes(given, x_shape, scales=scales, sizes=sizes, roi=roi, opset=opset)
    y_shape = attributes.pop("output_sizes")
    axes: dict[str, int | str] = {f"N{i}": length for i, length in enumerate(x_shape) if length is not None}
    axes |= {f"M{i}": length for i, length in enumerate(y_shape)}
    made = build(BY_NAME["DmlResampleGrad"], element_type=element_type, axes=axes, **attributes)
    graph = made.graph
    graph.name, graph.input[0].name, graph.output[0].name = "gradient of Resize", "dY", "dX"
    graph.node[0].input[0], graph.node[0].output[0] = "dY", "dX"
    return attach(made) if portable else made
