# SPDX-License-Identifier: MIT
"""Convert RoI nodes of ONNX, mmcv and caffe2 to this project's operators, and other nodes of mmcv to ONNX's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain, repeat

import numpy as np
import onnx

from onnx_models.tools.attributes import attribute_proto, node_attribute_values, operator_of, prefix_errors
from onnx_models.tools.functions import check_attributes
from onnx_models.tools.nodes import NodeBuilder
from onnx_models.tools.opset_upgrade import upgrade_opset
from onnx_models.tools.protos import (
    Scope,
    accepted,
    assign,
    copy_model,
    import_domain,
    iter_graphs,
    iter_nodes,
    label,
    normalize_domain,
    onnx_opset,
    tensor_names,
)
from onnx_models.tools.types import Tensors, known_types
from ortops.custom.operator import check_domain
from ortops.foreign.onnx_equivalents import OPSET, OnnxEquivalent
from ortops.foreign.standard import STANDARD_NAMES, implementation
from ortops.foreign.third_party import THIRD_PARTY, AttentionNode, Foreign, ThirdPartyOperator
from ortops.operators import BY_NAME
from ortops.spec import DOMAIN, DOMAIN_VERSION, Operator

_Source = Callable[[onnx.NodeProto, Scope], Operator | Foreign | None]
"""Returns the operator that a node of a model or a function is converted from: a third-party one, or this project's operator
with the definition of ONNX's; None for a node that stays as it is."""


def convert(model: onnx.ModelProto, domain: str = DOMAIN) -> onnx.ModelProto:
    """Return a copy of `model` with this project's RoI nodes in place of others, also in If, Loop, Scan and functions.

    - ONNX's RoiAlign becomes RoiAlign_10 at opsets 10 to 15, RoiAlign_16 at 16 to 21 and RoiAlign_22 from 22 on.
    - ONNX's MaxRoiPool becomes MaxRoiPool_1 at opsets 1 to 21 and MaxRoiPool_22 from 22 on.
    - MMCVRoiAlign of the domains mmcv and mmdeploy, and RoIAlign of caffe2, become RoiAlign_22.
    - MMCVRoIAlignRotated and caffe2's RoIAlignRotated become RoIAlignRotated.
    - MMCVMultiScaleDeformableAttention of mmcv and mmdeploy, and MultiscaleDeformableAttnPlugin_TRT, become MSDeformAttn.
    - grid_sampler of mmcv and mmdeploy becomes ONNX's GridSample, and their MMCVModulatedDeformConv2d and MMCVDeformConv2d
      become ONNX's DeformConv, which ONNX Runtime has on the CPU since 1.25. A model of an opset without these operators is
      upgraded to opset 20 first.

    detectron2's exporter writes the nodes of caffe2, in the domain org.pytorch._caffe2 or _caffe2. The opset of a function
    is the one that it imports. Attributes that a node lacks are added with their defaults; attributes of ONNX's nodes are
    kept, and references to attributes of a function remain references.

    In mmcv and caffe2, the first column of rois is the batch index. Standard nodes turn it into the input batch_indices, in
    which an index that is NaN, infinite or a fraction becomes -1, so that the operator refuses it. A Mul node converts
    caffe2's degrees to radians, in the element type of the RoIs. caffe2's RoIs may lack the column; they then all have batch
    index 0. Where shape inference does not know the number of columns, as after
    caffe2's own operators and in functions, convert assumes the column, which detectron2's exporter always writes; if it is
    missing, Gather fails at run time. `ortops.foreign.third_party` lists the edge cases in which results differ.

    All other nodes stay as they are, including other ones of mmcv and caffe2; the import of such a domain is removed when no
    node needs it. A node that calls a function of the model with the name of one of these operators stays as well. The rest
    of the model is kept byte for byte, except that negative lengths, which mean unknown ones, are cleared. External data is
    not read. Converting twice is the same as converting once.

    Args:
        model: a model of any opset, or of opset 9 or later if it has nodes of mmcv or caffe2; not modified.
        domain: the domain of this project's nodes, also of those that the model has already, for sessions and libraries that
            have the operators in another domain than "ai.onnx.contrib" (`ortops.register`, `ortops.build_library`).

    Raises:
        ValueError: an operator is not defined at the model's opset: the opset is missing or too old, or has a version that
            this project lacks; an attribute breaks its rule or is missing (such as the mode "AVG", which onnxruntime
            takes for "avg", or caffe2's order "NHWC"); a node of mmcv or caffe2 has too few or too many inputs, has rois of
            a wrong shape, or has a reference for an attribute that must be converted; a function of the model calls itself;
            the model needs a newer opset, and has a node without an equivalent there; or the domain is no name.
        TypeError: an attribute is unknown, which a session would ignore, or has a wrong type.

    Source: ONNX operator specification, RoiAlign, versions 10, 16 and 22, and MaxRoiPool, versions 1 and 22; for the
    others, the sources in `ortops.foreign.third_party` and `ortops.foreign.onnx_equivalents`.
    """
    check_domain(domain)
    model = accepted(model)
    source = _source_in(model)

    def definition(node: onnx.NodeProto, scope: Scope) -> Operator | None:
        operator = operator_of(node) or source(node, scope)
        return operator if operator is None or isinstance(operator, Operator) else operator.definition

    check_attributes(model, definition)
    model, source = _upgraded(model, source)
    replaced = {
        normalize_domain(node.domain)
        for scope in (model, *model.functions)
        for node in iter_nodes(scope)
        if source(node, scope)
    }
    converted = copy_model(model)
    if replaced:
        _replace(converted, model, source, replaced)
    if domain != DOMAIN:
        _rename_domain(converted, domain)
    return converted


def _rename_domain(model: onnx.ModelProto, domain: str) -> None:
    """Move this project's operators, and functions that are their bodies, to another domain."""
    for function in model.functions:
        if function.domain == DOMAIN and function.name in BY_NAME:
            function.domain = domain
    for scope in (*model.functions, model):
        nodes = [node for node in iter_nodes(scope) if node.domain == DOMAIN and node.op_type in BY_NAME]
        for node in nodes:
            node.domain = domain
        if nodes or (scope is model and any(function.domain == domain for function in model.functions)):
            import_domain(scope, domain, DOMAIN_VERSION)
        _drop_imports(scope, {DOMAIN})


def _replace(converted: onnx.ModelProto, model: onnx.ModelProto, source: _Source, replaced: set[str]) -> None:
    """Convert the nodes of a copy of `model`; `replaced` are the domains of these nodes."""
    third_party = replaced - {""}
    for scope in (*converted.functions, converted):
        tensors = known_types(model) if third_party and scope is converted else ()
        opset = _opset_of(scope, model)
        # A scope without an opset has no node to convert.
        if opset and _convert_scope(scope, source, tensors, opset):
            import_domain(scope, "", opset)
            if any(node.domain == DOMAIN for node in iter_nodes(scope)):
                import_domain(scope, DOMAIN, DOMAIN_VERSION)
        _drop_imports(scope, third_party)
    # The checker requires that the model imports the domains of its functions.
    if any(item.domain == DOMAIN for function in converted.functions for item in function.opset_import):
        import_domain(converted, DOMAIN, DOMAIN_VERSION)


def _upgraded(model: onnx.ModelProto, source: _Source) -> tuple[onnx.ModelProto, _Source]:
    """The model at an opset that has the operators of ONNX among those that nodes are converted to, and its source.

    Raises:
        ValueError: as `upgrade_opset`.
    """
    for scope in (model, *model.functions):
        opset = _opset_of(scope, model)
        for node in iter_nodes(scope):
            operator = source(node, scope)
            if isinstance(operator, OnnxEquivalent) and opset is not None and opset < operator.since:
                with prefix_errors(f"{label(node)} needs opset {operator.since} of ONNX"):
                    model = upgrade_opset(model, OPSET)
                return model, _source_in(model)
    return model, source


def conversions(model: onnx.ModelProto) -> Counter[tuple[str, str]]:
    """Count the nodes that `convert` converts, by their operator (``mmcv::MMCVRoiAlign``) and this project's or ONNX's.

    Raises:
        ValueError: an operator is not defined at the model's opset, or the model cannot be upgraded to another one.
    """
    counts: Counter[tuple[str, str]] = Counter()
    model, source = _upgraded(model, _source_in(model))
    for scope in (model, *model.functions):
        for node in iter_nodes(scope):
            if operator := source(node, scope):
                domain = normalize_domain(node.domain)
                counts[f"{domain}::{node.op_type}" if domain else node.op_type, _name(operator)] += 1
    return counts


def not_converted(model: onnx.ModelProto) -> Counter[str]:
    """Count the nodes of mmcv, mmdeploy and caffe2 that `convert` leaves in a model, by their operator."""
    domains = {domain for domain, _ in THIRD_PARTY if domain}
    functions = {(normalize_domain(function.domain), function.name) for function in model.functions}
    return Counter(
        f"{node.domain}::{node.op_type}"
        for scope in (model, *model.functions)
        for node in iter_nodes(scope)
        if node.domain in domains and (node.domain, node.op_type) not in functions
    )


def _name(operator: Operator | Foreign) -> str:
    """The name of the operator that a node is converted to."""
    if isinstance(operator, OnnxEquivalent):
        return operator.standard
    return operator.name if isinstance(operator, Operator) else operator.ours.name


def _source_in(model: onnx.ModelProto) -> _Source:
    functions = {(normalize_domain(function.domain), function.name) for function in model.functions}

    def source(node: onnx.NodeProto, scope: Scope) -> Operator | Foreign | None:
        identity = domain, name = normalize_domain(node.domain), node.op_type
        third_party = THIRD_PARTY.get(identity)
        is_standard = domain == "" and name in STANDARD_NAMES
        if identity in functions or not (third_party or is_standard):
            return None
        where, opset = label(node), _opset_of(scope, model)
        if opset is None:
            raise ValueError(f"{where}: must have an opset import of ONNX's domain")
        if third_party and opset < MIN_OPSET:
            raise ValueError(f"{where} at opset {opset}: must be at {MIN_OPSET} or a later one")
        if third_party:
            return third_party
        with prefix_errors(f"{where} at opset {opset}"):
            return implementation(name, opset)

    return source


def _opset_of(scope: Scope, model: onnx.ModelProto) -> int | None:
    """Return the opset of a model or of one of its functions, which may lack ONNX's domain if it has third-party nodes."""
    return onnx_opset(scope) or onnx_opset(model)


def _convert_scope(scope: Scope, source: _Source, tensors: Iterable[Tensors], opset: int) -> bool:
    """Convert the nodes of a model's graphs or of a function, and return whether there were any.

    tensors: the known types in each graph of `iter_graphs`; it may be shorter than these.
    opset: the opset of the model or the function.
    """
    parts = list(iter_graphs(scope))
    names = {name for part in parts for name in tensor_names(part)}
    is_converted = False
    for part, known in zip(parts, chain(tensors, repeat({})), strict=False):
        place = 0
        for node in list(part.node):
            operator = source(node, scope)
            is_converted = is_converted or operator is not None
            before, after = list[onnx.NodeProto](), list[onnx.NodeProto]()
            if isinstance(operator, ThirdPartyOperator):
                before = convert_node(operator, node, known, names)
            elif isinstance(operator, AttentionNode):
                before, after = _convert_attention(operator, node, names)
            elif isinstance(operator, OnnxEquivalent):
                rename_node(operator, node, opset)
            elif operator:
                _convert_node(node, operator)
            for number, other in enumerate(before):
                part.node.insert(place + number, other)
            place += len(before) + 1
            for number, other in enumerate(after):
                part.node.insert(place + number, other)
            place += len(after)
    return is_converted


def _convert_node(node: onnx.NodeProto, operator: Operator) -> None:
    """Change a node of ONNX's operator into one of this project's."""
    present = {attribute.name for attribute in node.attribute}
    for attribute in operator.attributes:
        if attribute.required and attribute.name not in present:
            raise ValueError(f"{label(node)}: has no {attribute.name}: must have it")
    node.op_type, node.domain = operator.name, DOMAIN
    node.attribute.extend(
        attribute_proto(attribute, attribute.default)
        for attribute in operator.attributes
        if attribute.name not in present
    )


def _drop_imports(scope: Scope, domains: set[str]) -> None:
    """Remove the imports of `domains` that nothing needs. A model comes after its functions, whose imports count."""
    needed = {node.domain for node in iter_nodes(scope)}
    if isinstance(scope, onnx.ModelProto):
        for function in scope.functions:
            needed |= {function.domain, *(item.domain for item in function.opset_import)}
    kept = [item for item in scope.opset_import if item.domain not in domains or item.domain in needed]
    if len(kept) < len(scope.opset_import):
        assign(scope.opset_import, kept)


MIN_OPSET = 9
"""The oldest opset with the operators that split RoIs, in a form that is still valid; it is detectron2's."""


def convert_node(
    operator: ThirdPartyOperator, node: onnx.NodeProto, tensors: Tensors, names: set[str]
) -> list[onnx.NodeProto]:
    """Change a node of a third-party operator, with valid attributes, into one of this project's.

    Returns the nodes that must precede it, whose operators are the same at opset 9 and at all later ones. `tensors` are
    the known types around the node; new names are added to `names`. Raises ValueError if the node does not have two
    inputs or lacks an attribute, an attribute that must be converted refers to one of a function, or rois is known to
    have a wrong shape.
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


def _convert_attention(
    operator: AttentionNode, node: onnx.NodeProto, names: set[str]
) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """Change another project's node of deformable attention into MSDeformAttn.

    Returns:
        The nodes that must precede it, and those that must follow it.

    Raises:
        ValueError: the node does not have all inputs.
    """
    if len(node.input) != len(operator.ours.inputs) or not all(node.input):
        wanted = ", ".join(tensor.name for tensor in operator.ours.inputs)
        raise ValueError(f"{label(node)}: has the inputs {list(node.input)}: must have {wanted}")
    before, after = NodeBuilder(names, "_converted"), NodeBuilder(names, "_converted")
    for i in (1, 2):
        node.input[i] = before.op("Cast", node.input[i], to=onnx.TensorProto.INT64)
    node.op_type, node.domain, node.overload = operator.ours.name, DOMAIN, ""
    del node.attribute[:]
    if operator.keeps_heads:
        output, node.output[0] = node.output[0], after.name(operator.ours.name)
        heads = after.op("Gather", after.op("Shape", node.input[0]), after.ints([2, 3]))
        lengths = after.op("Concat", after.ints([0, 0]), heads, axis=0)
        after.add(onnx.helper.make_node("Reshape", [node.output[0], lengths], [output]))
    return before.added, after.added


def rename_node(operator: OnnxEquivalent, node: onnx.NodeProto, opset: int) -> None:
    """Change a node of a third-party operator, with valid attributes, into one of ONNX's at an opset that has it.

    Raises ValueError if the node has too many inputs or lacks one, or an attribute refers to one of a function.
    """
    where, names = label(node), [tensor.name for tensor in operator.inputs]
    given = dict(zip(names, node.input, strict=False))
    if len(node.input) > len(names) or not all(
        given.get(value.name) for value in operator.inputs if not value.optional
    ):
        raise ValueError(f"{where}: has the inputs {list(node.input)}: must have {', '.join(names)}")
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            raise ValueError(
                f"{where}: {attribute.name} refers to {attribute.ref_attr_name!r} of the function around it: must be a "
                f"value, since {operator.standard} has it in another form"
            )
    definition = operator.definition
    values = definition.check_attributes(node_attribute_values(definition, node))
    renamed = onnx.helper.make_node(
        operator.standard,
        [given.get(name, "") for name in operator.order],
        node.output,
        node.name,
        node.doc_string,
        **operator.convert(values, opset),
    )
    renamed.metadata_props.extend(node.metadata_props)
    node.CopyFrom(renamed)


def _attributes(operator: ThirdPartyOperator, node: onnx.NodeProto, where: str) -> list[onnx.AttributeProto]:
    """Return all attributes of this project's node; a reference stays one if its value needs no conversion."""
    present = {attribute.name: attribute for attribute in node.attribute}
    given = node_attribute_values(operator.definition, node)
    rules = {rule.name: rule for rule in operator.ours.attributes}
    attributes = {name: attribute_proto(rule, rule.default) for name, rule in rules.items()}
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
            attributes[carried.name] = _renamed(there, carried.name)
        elif carried.name:
            attributes[carried.name] = attribute_proto(rules[carried.name], carried.value(given))
    return list(attributes.values())


def _has_index(operator: ThirdPartyOperator, rois: onnx.TypeProto.Tensor | None, where: str) -> bool:
    """Whether rois has the batch index; assumed, as exporters write it, if the shape is unknown."""
    if rois is None or not rois.HasField("shape"):
        return True
    with_index, lengths = operator.coordinates + 1, rois.shape.dim
    if len(lengths) != 2:
        raise ValueError(f"{where}: rois has {len(lengths)} axes: must have 2")
    columns = lengths[1].dim_value if lengths[1].HasField("dim_value") else with_index
    if columns == operator.coordinates and operator.optional_index:
        return False
    if columns != with_index:
        rule = f"{operator.coordinates} or {with_index}" if operator.optional_index else str(with_index)
        raise ValueError(f"{where}: rois has {columns} columns: must have {rule}")
    return True


def _renamed(attribute: onnx.AttributeProto, name: str) -> onnx.AttributeProto:
    renamed = onnx.AttributeProto()
    renamed.CopyFrom(attribute)
    renamed.name = name
    return renamed
