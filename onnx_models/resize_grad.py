"""Build models of the gradient of ONNX's Resize, for which ONNX has no operator."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from onnx_models.build import axis_lengths, make_model, node, tensor_ranks, type_values, value_info
from onnx_models.dml_resample import DML_RESAMPLE_GRAD
from onnx_models.opset_upgrade import DEFAULT_OPSET
from onnx_models.resize import resample_attributes
from onnx_models.traversal import normalize_domain
from ortops.spec import DOMAIN, DOMAIN_VERSION


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
        x_shape: lengths of X, as in `resample_attributes`.
        scales: values of the node's input scales, as in `resample_attributes`.
        sizes: values of the node's input sizes, as in `resample_attributes`.
        roi: values of the node's input roi, as in `resample_attributes`.
        opset: the ONNX opset of the node, 10 or later.
        element_type: of X: ``float16``, ``float`` or ``double``.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).

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
    types = type_values(DML_RESAMPLE_GRAD, element_type, "")
    ranks = tensor_ranks(DML_RESAMPLE_GRAD, {}, attributes)
    lengths = axis_lengths((DML_RESAMPLE_GRAD,), ranks, attributes, axes)
    tensors = (*DML_RESAMPLE_GRAD.inputs, *DML_RESAMPLE_GRAD.outputs)
    dy, shape, dx = (
        value_info(tensor, ranks[tensor.name], types, lengths, name)
        for tensor, name in zip(tensors, ("dY", "x_shape", "dX"), strict=True)
    )
    made = node(DML_RESAMPLE_GRAD, (dy.name, shape.name), (dx.name,), attributes)
    return make_model(
        "gradient of Resize", [made], [dy, shape], [dx], {"": DEFAULT_OPSET, DOMAIN: DOMAIN_VERSION}, portable
    )
