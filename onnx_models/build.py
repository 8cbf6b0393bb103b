"""Models of one operator, and of an operator with its gradient, made from the operators' definitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx

from ortops.operators import BY_NAME, OPERATORS
from ortops.spec import DOMAIN, DOMAIN_VERSION, ELEMENT_DTYPES, Attribute, AttributeValue, Operator, Tensor

IR_VERSION = 10
OPSET = 21
"""The newest IR version and opset that onnxruntime 1.20 reads, the oldest that this project supports."""

ROI_ALIGN = {
    operator.standard[1]: operator for operator in OPERATORS if operator.family == "roi_align" and operator.standard
}
GRADIENT = BY_NAME["RoiAlignGrad"]
DML_ROI_ALIGN = BY_NAME["DmlRoiAlign"]
DML_ROI_ALIGN_GRAD = BY_NAME["DmlRoiAlignGrad"]

_OURS_ALONE = {"mode": ("max_interpolated",)}
"""Attribute values that this project has added to those of ONNX."""

INDEX_TYPE = "int64"
"""Of indices, where an operator leaves a choice: the type that ONNX gives them."""

Lengths = Mapping[str, int | str]


def roi_align(
    opset: int,
    *,
    standard: bool = False,
    element_type: str = "float",
    axes: Lengths | None = None,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """A model of one RoiAlign node: Y from X, rois and batch_indices.

    Args:
        opset: 10, 16 or 22: the ONNX opset whose RoiAlign it is.
        standard: True for ONNX's own RoiAlign at that opset, False for this project's operator of the same meaning.
        element_type: of X, rois and Y: ``float16``, ``float`` or ``double``, at opset 22 ``bfloat16`` too.
        axes: lengths or other names for the axes N, C, H, W and num_rois, which are else left open under these names.
        attributes: output_height and output_width (1), mode (avg), sampling_ratio (0), spatial_scale (1.0) and, from
            opset 16 on, coordinate_transformation_mode (half_pixel). All are written on the node.

    Returns:
        A model with inputs X [N, C, H, W], rois [num_rois, 4] and batch_indices [num_rois] (int64), and output
        Y [num_rois, C, output_height, output_width]. Its bytes depend on the arguments alone.

    Raises:
        ValueError: opset, element_type, an axis or the value of an attribute is not an allowed one.
        TypeError: an attribute is unknown at this opset, or an attribute or an axis has a value of a wrong type.

    Source: ONNX operator specification, RoiAlign, versions 10, 16 and 22.
    """
    if opset not in ROI_ALIGN:
        raise ValueError(f"opset = {opset!r}: must be one of {', '.join(map(str, ROI_ALIGN))}, which define RoiAlign")
    return model(ROI_ALIGN[opset], standard=standard, element_type=element_type, axes=axes, attributes=attributes)


def roi_align_grad(
    *,
    element_type: str = "float",
    outputs: Collection[str] = ("dx", "drois"),
    axes: Lengths | None = None,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """A model of one RoiAlignGrad node: dX and drois from dY.

    X is an input of the model where the node needs it: for drois and for the max modes.

    Args:
        element_type: of dY, rois, X, dX and drois: ``float16``, ``bfloat16``, ``float`` or ``double``.
        outputs: ``dx``, ``drois`` or both.
        axes: lengths or other names for the axes N, C, H, W, num_rois, output_height and output_width.
        attributes: mode (avg), coordinate_transformation_mode (half_pixel), sampling_ratio (0), spatial_scale (1.0).

    Returns:
        A model with inputs dY [num_rois, C, output_height, output_width], rois [num_rois, 4], batch_indices [num_rois]
        (int64), x_shape [4] (int64) and X [N, C, H, W], and outputs dX [N, C, H, W] and drois [num_rois, 4].

    Raises:
        ValueError: element_type, an output, an axis or the value of an attribute is not an allowed one.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.
    """
    needs_x = "drois" in outputs or attributes.get("mode", "avg") != "avg"
    return model(
        GRADIENT,
        element_type=element_type,
        axes=axes,
        attributes=attributes,
        omit=() if needs_x else ("X",),
        outputs=outputs,
    )


def joint(*, element_type: str = "float", axes: Lengths | None = None, **attributes: AttributeValue) -> onnx.ModelProto:
    """A model of RoiAlign as of opset 22 and of its gradient: Y, dX and drois from X, rois, batch_indices and dY.

    Args:
        element_type: of all tensors but batch_indices: ``float16``, ``bfloat16``, ``float`` or ``double``.
        axes: lengths or other names for the axes N, C, H, W and num_rois.
        attributes: those of `roi_align` at opset 22; the gradient has them too.

    Returns:
        A model with inputs X [N, C, H, W], rois [num_rois, 4], batch_indices [num_rois] (int64) and
        dY [num_rois, C, output_height, output_width], and outputs Y (as dY), dX [N, C, H, W] and drois [num_rois, 4].

    Raises:
        ValueError: element_type, an axis or the value of an attribute is not an allowed one.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.
    """
    forward = ROI_ALIGN[22]
    types = _types(forward, element_type, INDEX_TYPE)
    checked = _attributes(forward, attributes)
    lengths = _lengths((forward, GRADIENT), checked, axes or {})
    shared = {a.name: checked[a.name] for a in GRADIENT.attributes}
    tensors = {t.name: t for t in (*forward.inputs, *forward.outputs, *GRADIENT.inputs, *GRADIENT.outputs)}
    x, rois, batch_indices = (tensor.name for tensor in forward.inputs)
    nodes = [
        node(forward, (x, rois, batch_indices), ("Y",), checked),
        onnx.helper.make_node("Shape", (x,), ("x_shape",), name="Shape"),
        node(GRADIENT, ("dY", rois, batch_indices, "x_shape", x), ("dX", "drois"), shared),
    ]
    return _model(
        "RoiAlign with its gradient",
        nodes,
        [_value(tensors[name], types, lengths) for name in (x, rois, batch_indices, "dY")],
        [_value(tensors[name], types, lengths) for name in ("Y", "dX", "drois")],
        {"": OPSET, DOMAIN: DOMAIN_VERSION},
    )


def dml_roi_align(
    *,
    element_type: str = "float",
    index_type: str = INDEX_TYPE,
    roi_rank: int = 2,
    batch_indices_rank: int = 1,
    axes: Lengths | None = None,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """A model of one DmlRoiAlign node: OutputTensor from InputTensor, ROITensor and BatchIndicesTensor.

    The attributes are the fields of DirectML's ROI_ALIGN1. By default they have the values that make it ROI_ALIGN.

    Args:
        element_type: of InputTensor, ROITensor and OutputTensor: ``float16``, ``float`` or ``double``.
        index_type: of BatchIndicesTensor: ``int64``, or ``uint32`` as in DirectML.
        roi_rank: 2 to 4; beyond 2, of ROITensor [1, num_rois, 4] or [1, 1, num_rois, 4].
        batch_indices_rank: 1 to 4; beyond 1, the leading axes of BatchIndicesTensor have length 1.
        axes: lengths or other names for the axes N, C, H, W and num_rois, which are else left open under these names.
        attributes: output_height and output_width (1), reduction_function (average), interpolation_mode (linear),
            spatial_scale_x and spatial_scale_y (1.0), input_pixel_offset (0.5), output_pixel_offset (-0.5),
            out_of_bounds_input_value (0.0), minimum_samples_per_output (1), maximum_samples_per_output (2**32 - 1) and
            align_regions_to_corners (0). All are written on the node.

    Returns:
        A model with inputs InputTensor [N, C, H, W], ROITensor [num_rois, 4] and BatchIndicesTensor [num_rois], and
        output OutputTensor [num_rois, C, output_height, output_width].

    Raises:
        ValueError: a type, a rank, an axis or the value of an attribute is not an allowed one.
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
    )


def dml_roi_align_grad(
    *,
    element_type: str = "float",
    index_type: str = INDEX_TYPE,
    roi_rank: int = 2,
    batch_indices_rank: int = 1,
    outputs: Collection[str] = ("OutputGradientTensor", "OutputROIGradientTensor"),
    axes: Lengths | None = None,
    **attributes: AttributeValue,
) -> onnx.ModelProto:
    """A model of one DmlRoiAlignGrad node: the gradients of `dml_roi_align` by InputTensor and by ROITensor.

    InputTensor is an input of the model where the node needs it: for OutputROIGradientTensor and for the maximum.

    Args:
        element_type: of all tensors but BatchIndicesTensor and x_shape: ``float16``, ``float`` or ``double``.
        index_type: as in `dml_roi_align`.
        roi_rank: of ROITensor and of OutputROIGradientTensor, as in `dml_roi_align`.
        batch_indices_rank: as in `dml_roi_align`.
        outputs: ``OutputGradientTensor``, ``OutputROIGradientTensor`` or both, in any case.
        axes: lengths or other names for the axes N, C, H, W, num_rois, output_height and output_width.
        attributes: those of `dml_roi_align` but for output_height, output_width and out_of_bounds_input_value.

    Returns:
        A model with inputs InputGradientTensor [num_rois, C, output_height, output_width], ROITensor [num_rois, 4],
        BatchIndicesTensor [num_rois], x_shape [4] (int64) and InputTensor [N, C, H, W], and outputs
        OutputGradientTensor [N, C, H, W] and OutputROIGradientTensor [num_rois, 4].

    Raises:
        ValueError: a type, a rank, an output, an axis or the value of an attribute is not an allowed one.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.

    Source: Microsoft's documentation of DML_ROI_ALIGN_GRAD_OPERATOR_DESC.
    """
    needs_x = "outputroigradienttensor" in map(str.lower, outputs)
    needs_x = needs_x or attributes.get("reduction_function", "average") != "average"
    return model(
        DML_ROI_ALIGN_GRAD,
        element_type=element_type,
        index_type=index_type,
        ranks={"ROITensor": roi_rank, "BatchIndicesTensor": batch_indices_rank},
        axes=axes,
        attributes=attributes,
        omit=() if needs_x else ("InputTensor",),
        outputs=outputs,
    )


def model(
    operator: Operator,
    *,
    element_type: str = "float",
    index_type: str = INDEX_TYPE,
    ranks: Mapping[str, int] | None = None,
    attributes: Mapping[str, object] | None = None,
    axes: Lengths | None = None,
    omit: Collection[str] = (),
    outputs: Collection[str] | None = None,
    standard: bool = False,
) -> onnx.ModelProto:
    """A model of one node of any operator. Its inputs and outputs have the operator's names, types and named axes.

    Args:
        element_type: what every type variable of floating-point types that leaves a choice stands for.
        index_type: what every type variable of integers stands for.
        ranks: of inputs that shall have axes of length 1 before their named ones. An output that is like such an input
            has them as well.
        attributes: those that shall differ from their defaults.
        axes: lengths or other names for named axes.
        omit: names of optional inputs that the node goes without.
        outputs: names of the wanted outputs, in any case (``dx`` is dX); all where it is None. The node names all
            outputs, the unwanted ones "", so that a function of the same name can stand in for the operator.
        standard: True for the ONNX operator that `operator` computes, at its opset.

    Raises:
        ValueError: an argument has a value that the operator does not have or allow.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.
    """
    types = _types(operator, element_type, index_type)
    leading = _leading(operator, ranks or {})
    checked = _attributes(operator, attributes or {})
    lengths = _lengths((operator,), checked, axes or {})
    optional = {tensor.name for tensor in operator.inputs if tensor.optional}
    if not optional.issuperset(omit):
        raise ValueError(f"omit = {tuple(omit)!r}: {operator.name} has the optional inputs {sorted(optional)}")
    inputs = ["" if tensor.name in omit else tensor.name for tensor in operator.inputs]
    # onnxruntime 1.20 crashes where the last input of a custom operator is "".
    while inputs and not inputs[-1]:
        inputs.pop()
    wanted = _wanted(operator, outputs)
    op_type, domain, version = _identity(operator, standard)
    return _model(
        op_type,
        [node(operator, inputs, wanted, checked, standard=standard)],
        [_value(tensor, types, lengths, leading) for tensor in operator.inputs if tensor.name in inputs],
        [_value(tensor, types, lengths, leading) for tensor in operator.outputs if tensor.name in wanted],
        {"": OPSET} | {domain: version},
    )


def node(
    operator: Operator,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Mapping[str, object] | None = None,
    *,
    standard: bool = False,
    name: str | None = None,
) -> onnx.NodeProto:
    """A node of any operator with every attribute written on it.

    Args:
        inputs: names of values in the operator's order, "" for an optional one that is left out.
        outputs: names of values in the operator's order, "" for an unwanted one.
        attributes: those that shall differ from their defaults.
        standard: True for the ONNX operator that `operator` computes.
        name: of the node; the operator's name where it is None.

    Raises:
        ValueError: the value of an attribute breaks its rule, or there is no such ONNX operator.
        TypeError: an attribute is unknown or its value has a wrong type.
    """
    op_type, domain, _ = _identity(operator, standard)
    checked = _attributes(operator, attributes or {})
    if standard:
        for attribute, values in _OURS_ALONE.items():
            if checked.get(attribute) in values:
                raise ValueError(f"{attribute} = {checked[attribute]!r}: only {operator.name} of {DOMAIN} has it")
    made = onnx.helper.make_node(
        op_type, inputs, outputs, name=op_type if name is None else name, domain=domain or None
    )
    made.attribute.extend(attribute_proto(attribute, checked[attribute.name]) for attribute in operator.attributes)
    return made


def attribute_proto(attribute: Attribute, value: AttributeValue) -> onnx.AttributeProto:
    """An attribute with its declared type, whatever Python type the value has."""
    kind = onnx.AttributeProto.AttributeType.Value(attribute.type)
    return onnx.helper.make_attribute(attribute.name, value, attr_type=kind)


def _identity(operator: Operator, standard: bool) -> tuple[str, str, int]:
    """Name, domain and version of the node for `operator`: its own or those of the ONNX operator that it computes."""
    if not standard:
        return operator.name, DOMAIN, DOMAIN_VERSION
    if operator.standard is None:
        raise ValueError(f"standard = True: ONNX has no operator that computes {operator.name}")
    op_type, opset = operator.standard
    return op_type, "", opset


def _attributes(operator: Operator, given: Mapping[str, object]) -> dict[str, AttributeValue]:
    """The checked attributes alone, without the constants that `Operator.check_attributes` adds."""
    checked = operator.check_attributes(given)
    return {attribute.name: checked[attribute.name] for attribute in operator.attributes}


def _types(operator: Operator, element_type: str, index_type: str) -> dict[str, str]:
    """The element type of each type variable."""
    types = {}
    for variable, allowed in operator.types.items():
        is_index = all(ELEMENT_DTYPES[kind].kind in "iu" for kind in allowed)
        argument, value = ("index_type", index_type) if is_index else ("element_type", element_type)
        # Nobody has to say double of an operator that has nothing else.
        has_choice = is_index or len(allowed) > 1
        if has_choice and value not in allowed:
            raise ValueError(f"{argument} = {value!r}: {operator.name} has {', '.join(allowed)}")
        types[variable] = value if has_choice else allowed[0]
    return types


def _leading(operator: Operator, ranks: Mapping[str, int]) -> dict[str, int]:
    """How many axes of length 1 each tensor has before its named ones."""
    inputs = {tensor.name: tensor for tensor in operator.inputs}
    leading = {}
    for name, rank in ranks.items():
        if name not in inputs:
            raise ValueError(f"ranks has {name!r}: must be one of {', '.join(inputs)}")
        least = len(inputs[name].shape)
        if rank not in range(least, least + inputs[name].leading + 1):
            allowed = " or ".join(str(least + more) for more in range(inputs[name].leading + 1))
            raise ValueError(f"rank of {name} = {rank!r}: must be {allowed}")
        leading[name] = rank - least
    return leading | {tensor.name: leading[tensor.like] for tensor in operator.outputs if tensor.like in leading}


def _lengths(
    operators: Sequence[Operator], attributes: Mapping[str, AttributeValue], axes: Lengths
) -> dict[str, int | str]:
    """What each named axis of `operators` is declared as: the value of the attribute, the one of `axes`, its name."""
    names = dict.fromkeys(
        axis
        for operator in operators
        for tensor in (*operator.inputs, *operator.outputs)
        for axis in tensor.shape
        if isinstance(axis, str)
    )
    fixed = {name: value for name, value in attributes.items() if name in names and isinstance(value, int)}
    free = [name for name in names if name not in fixed]
    for name, length in axes.items():
        if name not in free:
            raise ValueError(f"axes has {name!r}: must be one of {', '.join(free)}")
        if isinstance(length, bool) or not isinstance(length, (int, str)):
            raise TypeError(f"axes[{name!r}] = {length!r}: must be a length or a name")
        if isinstance(length, int) and length < 0:
            raise ValueError(f"axes[{name!r}] = {length}: must be >= 0")
    return {name: name for name in free} | dict(axes) | fixed


def _wanted(operator: Operator, outputs: Collection[str] | None) -> list[str]:
    """The outputs of a node that names all of them, "" where one is not in `outputs`."""
    names = [tensor.name for tensor in operator.outputs]
    if outputs is None:
        return names
    given = {name.lower() for name in outputs}
    if not given or not given.issubset(name.lower() for name in names):
        raise ValueError(f"outputs = {tuple(outputs)!r}: must be one or more of {', '.join(names).lower()}")
    for tensor in operator.outputs:
        if not tensor.optional and tensor.name.lower() not in given:
            raise ValueError(f"outputs = {tuple(outputs)!r}: {operator.name} always has {tensor.name}")
    return [name if name.lower() in given else "" for name in names]


def _value(
    tensor: Tensor, types: Mapping[str, str], lengths: Lengths, leading: Mapping[str, int] | None = None
) -> onnx.ValueInfoProto:
    kind = onnx.TensorProto.DataType.Value(types.get(tensor.type, tensor.type).upper())
    shape: list[int | str] = [1] * (leading or {}).get(tensor.name, 0)
    shape += [axis if isinstance(axis, int) else lengths[axis] for axis in tensor.shape]
    return onnx.helper.make_tensor_value_info(tensor.name, kind, shape)


def _model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    opsets: Mapping[str, int],
) -> onnx.ModelProto:
    return onnx.helper.make_model(
        onnx.helper.make_graph(nodes, name, inputs, outputs),
        opset_imports=[onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()],
        ir_version=IR_VERSION,
        producer_name="ortops",
    )
