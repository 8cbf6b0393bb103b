"""Models of one operator, and of an operator with its gradient, made from the operators' definitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx

from ortops.operators import BY_NAME, OPERATORS
from ortops.spec import DOMAIN, DOMAIN_VERSION, Attribute, AttributeValue, Operator, Tensor

IR_VERSION = 10
OPSET = 21
"""The newest IR version and opset that onnxruntime 1.20 reads, the oldest that this project supports."""

ROI_ALIGN = {
    operator.standard[1]: operator for operator in OPERATORS if operator.family == "roi_align" and operator.standard
}
GRADIENT = BY_NAME["RoiAlignGrad"]

_OURS_ALONE = {"mode": ("max_interpolated",)}
"""Attribute values that this project has added to those of ONNX."""

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
    types = _types(forward, element_type)
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


def model(
    operator: Operator,
    *,
    element_type: str = "float",
    attributes: Mapping[str, object] | None = None,
    axes: Lengths | None = None,
    omit: Collection[str] = (),
    outputs: Collection[str] | None = None,
    standard: bool = False,
) -> onnx.ModelProto:
    """A model of one node of any operator. Its inputs and outputs have the operator's names, types and named axes.

    Args:
        element_type: what every type variable that leaves a choice stands for.
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
    types = _types(operator, element_type)
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
        [_value(tensor, types, lengths) for tensor in operator.inputs if tensor.name in inputs],
        [_value(tensor, types, lengths) for tensor in operator.outputs if tensor.name in wanted],
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


def _types(operator: Operator, element_type: str) -> dict[str, str]:
    """The element type of each type variable."""
    types = {}
    for variable, allowed in operator.types.items():
        if len(allowed) > 1 and element_type not in allowed:
            raise ValueError(f"element_type = {element_type!r}: {operator.name} has {', '.join(allowed)}")
        types[variable] = element_type if len(allowed) > 1 else allowed[0]
    return types


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


def _value(tensor: Tensor, types: Mapping[str, str], lengths: Mapping[str, int | str]) -> onnx.ValueInfoProto:
    kind = onnx.TensorProto.DataType.Value(types.get(tensor.type, tensor.type).upper())
    shape = [axis if isinstance(axis, int) else lengths[axis] for axis in tensor.shape]
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
