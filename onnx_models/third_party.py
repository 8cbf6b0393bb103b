"""Convert nodes of mmcv, mmdeploy and caffe2, as exporters write them, to this project's nodes or ONNX's.

`ortops.foreign.third_party` and `onnx_equivalents` have the operators, with their sources and the edge cases in which
results differ.
"""

from __future__ import annotations

import numpy as np
import onnx

from onnx_models.tools.attributes import attribute_proto, node_attribute_values
from onnx_models.tools.nodes import NodeBuilder
from onnx_models.tools.protos import label
from onnx_models.tools.types import Tensors
from ortops.foreign.onnx_equivalents import OnnxEquivalent
from ortops.foreign.third_party import ThirdPartyOperator
from ortops.spec import DOMAIN

MIN_OPSET = 9
"""The oldest opset with the operators that split RoIs, in a form that is still valid; it is detectron2's."""


def convert_node(
    operator: ThirdPartyOperator, node: onnx.NodeProto, tensors: Tensors, names: set[str]
) -> list[onnx.NodeProto]:
    """Change a node of a third-party operator into one of this project's.

    Args:
        operator: the operator.
        node: the node, with valid attributes; modified.
        tensors: the known types of the tensors around it.
        names: the names of all tensors; new ones are added.

    Returns:
        The nodes that must precede it. Their operators are the same at opset 9 and at all later ones.

    Raises:
        ValueError: the node does not have two inputs or lacks an attribute, an attribute that must be converted refers
            to one of a function, or rois is known to have a wrong shape.
    """
    where = label(node)
    if len(node.input) != 2 or not all(node.input):
        raise ValueError(f"{where}: has the inputs {list(node.input)}: must have X and rois")
    attributes = _attributes(operator, node, where)
    x, rois = node.input
    before = NodeBuilder(names, f"_of_{node.output[0] if node.output else rois}")
    if _has_index(operator, tensors.get(rois), where):
        batch_indices = _batch_indices(before, rois)
        boxes = before.op("Gather", rois, before.tensor(np.arange(1, operator.coordinates + 1)), axis=1)
    else:
        number = before.op("Gather", before.op("Shape", rois), before.tensor(np.array([0])), axis=0)
        zero = onnx.numpy_helper.from_array(np.zeros(1, np.int64))
        batch_indices, boxes = before.op("ConstantOfShape", number, value=zero), rois
    if operator.degrees:
        kind = tensors[rois].elem_type if rois in tensors else onnx.TensorProto.UNDEFINED
        # caffe2 has this operator in float only.
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind or onnx.TensorProto.FLOAT)
        boxes = before.op("Mul", boxes, before.tensor(operator.units(dtype)))
    node.op_type, node.domain, node.overload = operator.ours.name, DOMAIN, ""
    del node.input[:], node.attribute[:]
    node.input.extend([x, boxes, batch_indices])
    node.attribute.extend(attributes)
    return before.added


def _batch_indices(before: NodeBuilder, rois: str) -> str:
    """Add nodes that make batch indices of column 0 of rois: -1, which is refused, for a NaN, an infinity or a fraction.

    Runtimes cast these to various integers. As BOOL, a NaN and all numbers but 0 are true.
    """
    column = before.op("Gather", rois, before.tensor(np.array(0)), axis=1)
    fraction = before.op("Sub", column, before.op("Floor", column))
    has_fraction = before.op("Cast", fraction, to=onnx.TensorProto.BOOL)
    index = before.op("Cast", column, to=onnx.TensorProto.INT64)
    return before.op("Where", has_fraction, before.tensor(np.array(-1)), index)


def rename_node(operator: OnnxEquivalent, node: onnx.NodeProto, opset: int) -> None:
    """Change a node of a third-party operator into one of ONNX's.

    Args:
        operator: the operator.
        node: the node, with valid attributes; modified.
        opset: the opset around the node, one that has ONNX's operator.

    Raises:
        ValueError: the node has too many inputs or lacks one, or an attribute refers to one of a function.
    """
    where, names = label(node), [tensor.name for tensor in operator.inputs]
    given = dict(zip(names, node.input, strict=False))
    if len(node.input) > len(names) or not all(given.get(one.name) for one in operator.inputs if not one.optional):
        raise ValueError(f"{where}: has the inputs {list(node.input)}: must have {', '.join(names)}")
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            raise ValueError(
                f"{where}: {attribute.name} refers to {attribute.ref_attr_name!r} of the function around it: must be a "
                f"value, since {operator.standard} has it in another form"
            )
    definition = operator.definition
    values = definition.check_attributes(node_attribute_values(definition, node))
    made = onnx.helper.make_node(
        operator.standard,
        [given.get(name, "") for name in operator.order],
        node.output,
        node.name,
        node.doc_string,
        **operator.convert(values, opset),
    )
    made.metadata_props.extend(node.metadata_props)
    node.CopyFrom(made)


def _attributes(operator: ThirdPartyOperator, node: onnx.NodeProto, where: str) -> list[onnx.AttributeProto]:
    """Return all attributes of this project's node; a reference stays one if its value needs no conversion."""
    present = {attribute.name: attribute for attribute in node.attribute}
    given = node_attribute_values(operator.definition, node)
    rules = {rule.name: rule for rule in operator.ours.attributes}
    made = {name: attribute_proto(rule, rule.default) for name, rule in rules.items()}
    for carried in operator.attributes:
        rule, there = carried.rule, present.get(carried.rule.name)
        if there is None and operator.complete:
            raise ValueError(f"{where}: has no {rule.name}: must have it, since {operator.name} has no defaults")
        if there is not None and there.ref_attr_name:
            if carried.change or not carried.name:
                raise ValueError(
                    f"{where}: {rule.name} refers to {there.ref_attr_name!r} of the function around it: "
                    f"must be a value, since {operator.ours.name} has it in another form"
                )
            made[carried.name] = _renamed(there, carried.name)
        elif carried.name:
            made[carried.name] = attribute_proto(rules[carried.name], carried.value(given))
    return list(made.values())


def _has_index(operator: ThirdPartyOperator, rois: onnx.TypeProto.Tensor | None, where: str) -> bool:
    """Whether rois has the batch index; assumed, as exporters write it, if the shape is unknown."""
    if rois is None or not rois.HasField("shape"):
        return True
    with_index, lengths = operator.coordinates + 1, rois.shape.dim
    if len(lengths) != 2:
        raise ValueError(f"{where}: rois has {len(lengths)} axes: must have 2")
    found = lengths[1].dim_value if lengths[1].HasField("dim_value") else with_index
    if found == operator.coordinates and operator.optional_index:
        return False
    if found != with_index:
        rule = f"{operator.coordinates} or {with_index}" if operator.optional_index else str(with_index)
        raise ValueError(f"{where}: rois has {found} columns: must have {rule}")
    return True


def _renamed(attribute: onnx.AttributeProto, name: str) -> onnx.AttributeProto:
    made = onnx.AttributeProto()
    made.CopyFrom(attribute)
    made.name = name
    return made
