# SPDX-License-Identifier: MIT
"""Build models and nodes of any operator from its definition, by a function for each `Operator.function`.

All functions of `BUILDERS` take these keyword arguments, and raise what `onnx_models.model` does:

    element_type: the type of all tensors except indices and shapes, "float" by default. Every operator has float16, float
        and double; those that ONNX defines at opset 22, RoIAlignRotated and their gradients have bfloat16 too.
    index_type: the type of BatchIndicesTensor, ``int64`` (the default) or ``uint32`` as in DirectML.
    axes: lengths or other names for the named axes of inputs and outputs; the others keep these names and are of any length.
    outputs: for gradients, the names of the wanted outputs, in any case; all by default. The model has an optional input
        only where the wanted outputs need it.
    standard: True for ONNX's own operator, where there is one. Opset 1 becomes 7, the oldest one that runtimes read.
    portable: True to attach a body of standard operators (`onnx_models.portable.attach`).
    roi_rank, batch_indices_rank: the ranks of ROITensor (2) and of BatchIndicesTensor (1), if more axes of length 1 lead.
    rank: the rank of the tensors of variable rank; by default the number of values of the lists, or 4 without lists.

All other keyword arguments are attributes. The node has all of them except empty lists. The bytes of a model depend on the
arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from textwrap import fill
from typing import Any

import onnx

from onnx_models.portable.attach import attach
from onnx_models.resize import resample_attributes
from onnx_models.tools.attributes import attribute_protos, attribute_values, refuse_extensions
from onnx_models.tools.opset_upgrade import DEFAULT_IR_VERSION, DEFAULT_OPSET, OLDEST
from onnx_models.tools.protos import normalize_domain
from ortops.operators import BY_NAME, OPERATORS
from ortops.spec import (
    DOMAIN_VERSION,
    ELEMENT_DTYPES,
    MAX_RANK,
    RANK,
    VARIABLE_AXES,
    AttributeValue,
    Operator,
    Tensor,
)

INDEX_TYPE = "int64"
"""The default type of indices, as in ONNX."""

Lengths = Mapping[str, int | str]


def model(
    operator: Operator,
    *,
    element_type: str = "float",
    index_type: str = INDEX_TYPE,
    ranks: Mapping[str, int] | None = None,
    attributes: Mapping[str, object] | None = None,
    axes: Lengths | None = None,
    omit: Collection[str] | None = None,
    outputs: Collection[str] | None = None,
    standard: bool = False,
    portable: bool = False,
) -> onnx.ModelProto:
    """Build a model of one node. Its inputs and outputs have the names, types and named axes of the operator's tensors.

    Args:
        operator: the operator's definition.
        element_type: the type for each type variable that allows several floating-point types.
        index_type: the type for each integer type variable.
        ranks: by input name, the rank of an input whose rank is open, or a larger rank for one that may have leading
            axes of length 1; an output with the same shape then has them as well. All open ranks are equal: by default
            the number of values of a list among the attributes, else 4.
        attributes: attributes that differ from their defaults.
        axes: lengths or other names for named axes. Axes of an open rank are numbered: N0, N1 and so on.
        omit: names of optional inputs to leave out; None leaves out those that the wanted outputs do not need.
        outputs: names of the wanted outputs, in any case (``dx`` is dX); None for all. The node lists every output, with
            "" for an unwanted one, so that a function of the same name can replace the operator.
        standard: True for the ONNX operator that `operator` implements, at its opset, but not below opset 7.
        portable: True to attach a body of standard operators (`onnx_models.portable.attach`).

    Raises:
        ValueError: the operator does not have or allow the value of an argument.
        TypeError: an attribute is unknown, or an attribute or an axis has a value of a wrong type.
    """
    types = _type_values(operator, element_type, index_type)
    checked = attribute_values(operator, attributes or {})
    rank_of = _tensor_ranks(operator, ranks or {}, checked)
    lengths = _axis_lengths(operator, rank_of, checked, axes or {})
    wanted = _wanted(operator, outputs)
    optional = {tensor.name: tensor for tensor in operator.inputs if tensor.optional}
    if omit is None:
        omit = [name for name, tensor in optional.items() if operator.why_required(tensor, checked, wanted) is None]
    if not set(omit) <= set(optional):
        raise ValueError(f"omit = {tuple(omit)!r}: {operator.name} has the optional inputs {sorted(optional)}")
    inputs = ["" if tensor.name in omit else tensor.name for tensor in operator.inputs]
    # onnxruntime 1.20 crashes where the last input of a custom operator is "".
    while inputs and not inputs[-1]:
        inputs.pop()
    op_type, domain, version = _identity(operator, standard)
    declared_inputs, declared_outputs = (
        [_value_info(tensor, rank_of[tensor.name], types, lengths) for tensor in tensors if tensor.name in names]
        for tensors, names in ((operator.inputs, inputs), (operator.outputs, wanted))
    )
    nodes = [node(operator, inputs, wanted, checked, standard=standard)]
    opsets = {"": DEFAULT_OPSET} | {domain: version}
    # The bytes depend on the arguments alone.
    built = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, op_type, declared_inputs, declared_outputs),
        opset_imports=[onnx.helper.make_opsetid(name, opset) for name, opset in opsets.items()],
        ir_version=DEFAULT_IR_VERSION,
        producer_name="ortops",
    )
    return attach(built) if portable else built


def node(
    operator: Operator,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Mapping[str, object] | None = None,
    *,
    standard: bool = False,
    name: str | None = None,
) -> onnx.NodeProto:
    """Make a node of any operator, with all of its attributes except empty lists.

    Args:
        operator: the operator's definition.
        inputs: names of values in the operator's order, "" for an optional one that is left out.
        outputs: names of values in the operator's order, "" for an unwanted one.
        attributes: attributes that differ from their defaults.
        standard: True for the ONNX operator that `operator` implements.
        name: the node's name; None for the operator's name.

    Raises:
        ValueError: the value of an attribute breaks its rule, or ONNX has no such operator.
        TypeError: an attribute is unknown or its value has a wrong type.
    """
    op_type, domain, _ = _identity(operator, standard)
    checked = attribute_values(operator, attributes or {})
    if standard:
        refuse_extensions(operator, checked)
    proto = onnx.helper.make_node(
        op_type, inputs, outputs, name=op_type if name is None else name, domain=domain or None
    )
    proto.attribute.extend(attribute_protos(operator.attributes, checked))
    return proto


def _identity(operator: Operator, standard: bool) -> tuple[str, str, int]:
    """Return the op_type, domain and version of a node, for `operator` or for the ONNX operator that it implements."""
    if not standard:
        return operator.name, operator.domain, DOMAIN_VERSION
    if operator.standard is None:
        raise ValueError(f"standard = True: ONNX has no operator that computes {operator.name}")
    op_type, opset = operator.standard
    return op_type, "", max(opset, OLDEST)


def _type_values(operator: Operator, element_type: str, index_type: str) -> dict[str, str]:
    """Return the element type of each type variable; a ValueError if it is not allowed."""
    types = {}
    for variable, allowed in operator.types.items():
        is_index = all(ELEMENT_DTYPES[kind].kind in "iu" for kind in allowed)
        argument, value = ("index_type", index_type) if is_index else ("element_type", element_type)
        # An operator with one type, such as double, ignores the argument.
        has_choice = is_index or len(allowed) > 1
        if has_choice and value not in allowed:
            raise ValueError(f"{argument} = {value!r}: {operator.name} has {', '.join(allowed)}")
        types[variable] = value if has_choice else allowed[0]
    return types


def _tensor_ranks(
    operator: Operator, given: Mapping[str, int], attributes: Mapping[str, AttributeValue]
) -> dict[str, int]:
    """Return the rank of each input and output, given those of some inputs; the length of a list gives the open ranks."""
    inputs = {tensor.name: tensor for tensor in operator.inputs}
    givers = [attribute.name for attribute in operator.attributes if attribute.is_per_axis]
    lists = [(name, len(attributes[name])) for name in givers if attributes.get(name)]
    known = [(f"that of {name}", count) for name, count in lists]
    for name, rank in given.items():
        if name not in inputs:
            raise ValueError(f"ranks has {name!r}: must be one of {', '.join(inputs)}")
        if rank not in inputs[name].ranks:
            raise ValueError(f"rank of {name} = {rank!r}: must be {' or '.join(map(str, inputs[name].ranks))}")
        if inputs[name].has_variable_rank:
            for source, other in known[:1]:
                if rank != other:
                    raise ValueError(f"rank of {name} = {rank}: must be {other}, {source}")
            known.append((f"that of {name}", rank))
    opened = known[0][1] if known else MAX_RANK
    ranks: dict[str, int] = {}
    for tensor in (*operator.inputs, *operator.outputs):
        like = inputs.get(tensor.leading_from, tensor)
        leading = given.get(like.name, len(like.shape)) - len(like.shape)
        ranks[tensor.name] = opened if tensor.has_variable_rank else len(tensor.shape) + leading
    return ranks


def _axis_lengths(
    operator: Operator, ranks: Mapping[str, int], attributes: dict[str, AttributeValue], axes: Lengths
) -> dict[str, int | str]:
    """Return a length or a name for each named axis of `operator`.

    It is the value of an attribute, a length that follows from another axis, an entry of `axes`, or the axis's own name.
    """
    for name, length in axes.items():
        if isinstance(length, bool) or not isinstance(length, (int, str)):
            raise TypeError(f"axes[{name!r}] = {length!r}: must be a length or a name")
        if isinstance(length, int) and length < 0:
            raise ValueError(f"axes[{name!r}] = {length}: must be >= 0")
    tensors = (*operator.inputs, *operator.outputs)
    names = dict.fromkeys(a for tensor in tensors for a in tensor.axes(ranks[tensor.name]) if isinstance(a, str))
    opened = next((ranks[tensor.name] for tensor in tensors if tensor.has_variable_rank), 0)
    given = attributes | {RANK: opened} if opened else attributes
    fixed: dict[str, int] = {name: value for name, value in given.items() if name in names and isinstance(value, int)}
    for attribute in operator.attributes:
        if attribute.axes:
            fixed |= zip(attribute.axes, attributes[attribute.name], strict=True)
    derived = [
        (f"{target.removesuffix(VARIABLE_AXES)}{i}", rule.length(axes.get(f"{rule.of}{i}"), i, attributes))
        for target, rule in operator.derived_axes.items()
        for i in range(opened)
    ]
    fixed |= {name: length for name, length in derived if isinstance(length, int)}
    for equation in operator.equations:
        solved = equation.solved({**axes, **fixed}, f"axes = {dict(axes)}")
        fixed |= {name: length for name, length in solved.items() if name not in axes}
    free = [name for name in names if name not in fixed]
    for name in axes:
        if name not in free:
            raise ValueError(f"axes has {name!r}: must be one of {', '.join(free)}")
    return {name: name for name in free} | dict(axes) | fixed


def _wanted(operator: Operator, outputs: Collection[str] | None) -> list[str]:
    """Return the names of all outputs, with "" for those that are not in `outputs`."""
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


def _value_info(tensor: Tensor, rank: int, types: Mapping[str, str], lengths: Lengths) -> onnx.ValueInfoProto:
    kind = onnx.TensorProto.DataType.Value(types.get(tensor.type, tensor.type).upper())
    shape = [axis if isinstance(axis, int) else lengths[axis] for axis in tensor.axes(rank)]
    return onnx.helper.make_tensor_value_info(tensor.name, kind, shape)


Builder = Callable[..., onnx.ModelProto]

_RANK_ARGUMENTS = {"roi_rank": "ROITensor", "batch_indices_rank": "BatchIndicesTensor"}


def build(
    operator: Operator,
    *,
    element_type: str = "float",
    index_type: str = INDEX_TYPE,
    axes: Lengths | None = None,
    outputs: Collection[str] | None = None,
    standard: bool = False,
    portable: bool = False,
    **others: Any,
) -> onnx.ModelProto:
    """Build a model of one node, as `onnx_models.model` does, with ranks and attributes as keyword arguments."""
    names = {tensor.name for tensor in operator.inputs}
    ranked = {argument: name for argument, name in _RANK_ARGUMENTS.items() if name in names}
    if operator.inputs[0].has_variable_rank:
        ranked["rank"] = operator.inputs[0].name
    ranks = {name: others.pop(argument) for argument, name in ranked.items() if argument in others}
    return model(
        operator,
        element_type=element_type,
        index_type=index_type,
        ranks={name: rank for name, rank in ranks.items() if rank is not None},
        attributes=others,
        axes=axes,
        outputs=outputs,
        standard=standard,
        portable=portable,
    )


def _builder(operators: Sequence[Operator]) -> Builder:
    """Return the function that builds a one-node model of an operator, given all versions of the operator."""
    *_, newest = operators
    versions = {operator.standard[1]: operator for operator in operators if operator.standard}
    name, _ = newest.standard or (newest.name, 0)

    def of_opset(opset: int, **options: Any) -> onnx.ModelProto:
        if opset not in versions:
            known = list(map(str, versions))
            choices = " or ".join(known) if len(known) < 3 else f"one of {', '.join(known)}"
            raise ValueError(f"opset = {opset!r}: must be {choices}, which define {name}")
        return build(versions[opset], **options)

    def of_newest(**options: Any) -> onnx.ModelProto:
        return build(newest, **options)

    builder: Builder = of_opset if versions else of_newest
    builder.__name__ = builder.__qualname__ = newest.function
    builder.__doc__ = _docstring(name, newest, ", ".join(map(str, versions)))
    return builder


def _docstring(name: str, operator: Operator, versions: str) -> str:
    def listed(tensors: Sequence[Tensor]) -> str:
        return ", ".join(f"{tensor.name} [{', '.join(map(str, tensor.shape))}]" for tensor in tensors)

    attributes = ", ".join(f"{attribute.name} ({attribute.default})" for attribute in operator.attributes)
    opset = f"opset: the ONNX opset that defines {name}, one of {versions}." if versions else ""
    options = f"options: see `onnx_models.build`. The attributes are {attributes}."
    equations = "".join(f", where {equation}" for equation in operator.equations)
    returned = (
        f"A model with the inputs {listed(operator.inputs)} and the outputs {listed(operator.outputs)}{equations}."
    )
    parts = {"Args": [opset, options], "Returns": [returned]}
    lines = [f"Build a model of one {name} node. {operator.doc}", ""]
    for heading, texts in parts.items():
        wrapped = (fill(text, 110, initial_indent="    ", subsequent_indent="        ") for text in texts if text)
        lines += [f"{heading}:", *wrapped, ""]
    return "\n".join([*lines, f"Source: {operator.source}"])


BUILDERS: Mapping[str, Builder] = {
    function: _builder([operator for operator in OPERATORS if operator.function == function])
    for function in dict.fromkeys(operator.function for operator in OPERATORS)
}
"""The functions that build models of one node, by name. `onnx_models` has them all."""


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
        x_shape: lengths of X. See `resample_attributes` for this argument and the next three.
        scales: values of the node's input scales.
        sizes: values of the node's input sizes.
        roi: values of the node's input roi.
        opset: the ONNX opset of the node, 10 or later.
        element_type: of X: ``float16``, ``float`` or ``double``.
        portable: True to attach a body of standard operators.

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
    built = build(BY_NAME["DmlResampleGrad"], element_type=element_type, axes=axes, **attributes)
    graph = built.graph
    graph.name, graph.input[0].name, graph.output[0].name = "gradient of Resize", "dY", "dX"
    graph.node[0].input[0], graph.node[0].output[0] = "dY", "dX"
    return attach(built) if portable else built
