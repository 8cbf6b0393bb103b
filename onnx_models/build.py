"""Build models and nodes of any operator from its definition."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx

from onnx_models.portable.attach import attach
from onnx_models.tools.attributes import attribute_protos, attribute_values, refuse_extensions
from onnx_models.tools.opset_upgrade import DEFAULT_IR_VERSION, DEFAULT_OPSET, OLDEST
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
    types = type_values(operator, element_type, index_type)
    checked = attribute_values(operator, attributes or {})
    rank_of = tensor_ranks(operator, ranks or {}, checked)
    lengths = axis_lengths((operator,), rank_of, checked, axes or {})
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
    return make_model(
        op_type,
        [node(operator, inputs, wanted, checked, standard=standard)],
        [value_info(t, rank_of[t.name], types, lengths) for t in operator.inputs if t.name in inputs],
        [value_info(t, rank_of[t.name], types, lengths) for t in operator.outputs if t.name in wanted],
        {"": DEFAULT_OPSET} | {domain: version},
        portable,
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
    made = onnx.helper.make_node(
        op_type, inputs, outputs, name=op_type if name is None else name, domain=domain or None
    )
    made.attribute.extend(attribute_protos(operator.attributes, checked))
    return made


def _identity(operator: Operator, standard: bool) -> tuple[str, str, int]:
    """Return the op_type, domain and version of a node, for `operator` or for the ONNX operator that it implements."""
    if not standard:
        return operator.name, operator.domain, DOMAIN_VERSION
    if operator.standard is None:
        raise ValueError(f"standard = True: ONNX has no operator that computes {operator.name}")
    op_type, opset = operator.standard
    return op_type, "", max(opset, OLDEST)


def type_values(operator: Operator, element_type: str, index_type: str) -> dict[str, str]:
    """Return the element type of each type variable.

    Raises:
        ValueError: a type is not allowed.
    """
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


def tensor_ranks(
    operator: Operator, given: Mapping[str, int], attributes: Mapping[str, AttributeValue]
) -> dict[str, int]:
    """Return the rank of each input and output.

    Args:
        operator: the operator's definition.
        given: by input name, ranks other than those of the attributes and the definition.
        attributes: the checked attributes; the length of a list among them gives the open ranks.

    Raises:
        ValueError: the operator does not have or allow a name or a rank, or two open ranks disagree.
    """
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
    found: dict[str, int] = {}
    for tensor in (*operator.inputs, *operator.outputs):
        like = inputs.get(tensor.leading_from, tensor)
        leading = given.get(like.name, len(like.shape)) - len(like.shape)
        found[tensor.name] = opened if tensor.has_variable_rank else len(tensor.shape) + leading
    return found


def axis_lengths(
    operators: Sequence[Operator],
    ranks: Mapping[str, int],
    attributes: dict[str, AttributeValue],
    axes: Lengths,
) -> dict[str, int | str]:
    """Return a length or a name for each named axis of `operators`.

    It is the value of an attribute, a length that follows from another axis, an entry of `axes`, or the axis's own name.

    Raises:
        TypeError, ValueError: `axes` has an invalid name or length, or a length cannot be derived from the attributes.
    """
    for name, length in axes.items():
        if isinstance(length, bool) or not isinstance(length, (int, str)):
            raise TypeError(f"axes[{name!r}] = {length!r}: must be a length or a name")
        if isinstance(length, int) and length < 0:
            raise ValueError(f"axes[{name!r}] = {length}: must be >= 0")
    tensors = [tensor for operator in operators for tensor in (*operator.inputs, *operator.outputs)]
    names = dict.fromkeys(a for tensor in tensors for a in tensor.axes(ranks[tensor.name]) if isinstance(a, str))
    opened = next((ranks[tensor.name] for tensor in tensors if tensor.has_variable_rank), 0)
    given = attributes | {RANK: opened} if opened else attributes
    fixed: dict[str, int] = {name: value for name, value in given.items() if name in names and isinstance(value, int)}
    for attribute in (attribute for operator in operators for attribute in operator.attributes if attribute.axes):
        fixed |= zip(attribute.axes, attributes[attribute.name], strict=True)
    derived = [
        (f"{target.removesuffix(VARIABLE_AXES)}{i}", rule.length(axes.get(f"{rule.of}{i}"), i, attributes))
        for operator in operators
        for target, rule in operator.derived_axes.items()
        for i in range(opened)
    ]
    fixed |= {name: length for name, length in derived if isinstance(length, int)}
    for equation in (equation for operator in operators for equation in operator.equations):
        found = equation.solved({**axes, **fixed}, f"axes = {dict(axes)}")
        fixed |= {name: length for name, length in found.items() if name not in axes}
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


def value_info(
    tensor: Tensor, rank: int, types: Mapping[str, str], lengths: Lengths, name: str = ""
) -> onnx.ValueInfoProto:
    """Declare an input or an output, under its own name or `name`."""
    kind = onnx.TensorProto.DataType.Value(types.get(tensor.type, tensor.type).upper())
    shape = [axis if isinstance(axis, int) else lengths[axis] for axis in tensor.axes(rank)]
    return onnx.helper.make_tensor_value_info(name or tensor.name, kind, shape)


def make_model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    opsets: Mapping[str, int],
    portable: bool,
) -> onnx.ModelProto:
    """Make a model whose bytes depend on the arguments alone; with `portable`, attach bodies of standard operators."""
    made = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, name, inputs, outputs),
        opset_imports=[onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()],
        ir_version=DEFAULT_IR_VERSION,
        producer_name="ortops",
    )
    return attach(made) if portable else made
