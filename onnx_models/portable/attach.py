# SPDX-License-Identifier: MIT
"""Bodies of operators: attached to models, or as standard nodes without functions and loops in place of the operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain, repeat

import onnx
import onnx.inliner
from onnx import helper

from onnx_models.convert import convert
from onnx_models.portable.attributes import Attributes, BodyRequest
from onnx_models.portable.graph import BodyGraph, InlinedGraph, Kind, Value
from onnx_models.tools.attributes import (
    attribute_protos,
    attribute_values,
    custom_of,
    node_attribute_values,
    operator_of,
    prefix_errors,
)
from onnx_models.tools.functions import Functions, check_attributes, inline_functions, is_body
from onnx_models.tools.opset_upgrade import DEFAULT_OPSET, upgrade_opset
from onnx_models.tools.protos import (
    accepted,
    assign,
    copy_model,
    import_domain,
    iter_graphs,
    iter_nodes,
    label,
    onnx_opset,
    restore_weights,
    strip_weights,
    tensor_names,
)
from onnx_models.tools.schema import schemas_of
from onnx_models.tools.types import forget_lengths_inside, known_types, node_checker, single_line_errors
from ortops.operators import BY_NAME
from ortops.spec import DOMAIN, DOMAIN_VERSION, AttributeValue, Operator

MIN_OPSET = 18
"""The oldest opset whose reductions and scatter operators the bodies can use."""

_NO_KERNELS = 22
"""The opset whose RoiAlign and MaxRoiPool ONNX Runtime has no kernels for."""

MIN_IR_VERSION = 8
"""The oldest IR version with functions in models."""


def attach(model: onnx.ModelProto, *, operators: Iterable[Operator] = ()) -> onnx.ModelProto:
    """Return a copy of a model with bodies in standard ONNX operators, so that it also runs without this project's kernels.

    Each body is a function with the name of its operator. ONNX Runtime uses the kernel if one is registered
    (`ortops.register`) and the body otherwise. All attributes are written on each node, since a kernel and a body do not
    share defaults. All nodes of an operator share one body: they may differ in numbers, but must agree in strings, in the
    lengths of lists and in which inputs they have. Existing bodies are replaced. Nodes of users' operators get their
    operators' bodies (`ortops.operator`), and stay as they are if there is none. A model that has no nodes of either, or is
    of opset 22 or later, is converted first (`onnx_models.convert`), so that its RoiAlign and MaxRoiPool of ONNX, mmcv or
    caffe2 get bodies. In other models, such as a gradient at opset 21, they stay for the runtime's own kernels.

    Args:
        model: a model of opset 7 or later; an opset before 18 is upgraded to 18 (`onnx_models.tools.opset_upgrade`).
        operators: operators of `ortops.operator` in the model; `onnx_models.register_schemas` makes some known to all calls.

    Returns:
        The copy. Its bodies compute sums in float, or in double if some node of the operator outside of functions is known
        to have tensors of double, and coordinates always in double.

    Raises:
        ValueError: the opset cannot be upgraded; a node cannot be converted (`onnx_models.convert`); an attribute breaks its
            rule, or refers to one of an enclosing function; a node lacks a required input, has no output or an input of a
            wrong type, or does not agree with another node; a function calls itself, or the model would be too large with
            its functions inlined (`onnx_models.tools.functions`).
        TypeError: an attribute is unknown or has a wrong type.

    Limits: on the CPU, invalid data is refused, but with an error that does not say why; inconsistent shapes are accepted
    if there are no RoIs or if the shapes do not affect the result. In an average, an infinite or NaN pixel spreads along
    the rows and columns of the RoI, or, if it is the first of its image, to the bins of rotated RoIs that are partly off the
    map; a maximum can miss a NaN. Memory grows with `sampling_ratio` and `minimum_samples_per_output`, but not with the size
    of a RoI beyond the map.
    """
    with schemas_of(operators):
        return _attached(accepted(model))


def _attached(model: onnx.ModelProto) -> onnx.ModelProto:
    check_attributes(model)
    Functions(model).check_size()
    nodes_of_both = (node for scope in (model, *model.functions) for node in iter_nodes(scope))
    has_kernels = any(map(operator_of, nodes_of_both)) and (onnx_opset(model) or DEFAULT_OPSET) < _NO_KERNELS
    copy = attach_custom(model if has_kernels else convert(model))
    kept = [function for function in copy.functions if not _is_ours(function)]
    assign(copy.functions, kept)
    nodes = list(filter(_of_ours, iter_nodes(copy.graph)))
    inner = [(function, node) for function in copy.functions for node in iter_nodes(function) if _of_ours(node)]
    if not nodes and not inner:
        return copy
    if (onnx_opset(model) or DEFAULT_OPSET) < MIN_OPSET:
        return _attached(upgrade_opset(copy, MIN_OPSET))
    check_node = node_checker({DOMAIN: DOMAIN_VERSION})
    for node in (*nodes, *(node for _, node in inner)):
        check_node(node)
    import_domain(copy, "", DEFAULT_OPSET)
    for scope in (copy, *(function for function, _ in inner)):
        import_domain(scope, DOMAIN, DOMAIN_VERSION)
    types = _element_types(copy)
    kinds = [(node, _sums(node, types)) for node in nodes] + [(node, _sums(node, {})) for _, node in inner]
    for name in dict.fromkeys(node.op_type for node, _ in kinds):
        same = [(node, sums) for node, sums in kinds if node.op_type == name]
        sums: Kind = "double" if any(kind == "double" for _, kind in same) else "float"
        copy.functions.append(_body(BY_NAME[name], [node for node, _ in same], sums, onnx_opset(copy) or DEFAULT_OPSET))
    copy.ir_version = max(copy.ir_version, MIN_IR_VERSION)
    return copy


def _of_ours(node: onnx.NodeProto) -> bool:
    return operator_of(node) is not None and node.domain == DOMAIN


def _is_ours(function: onnx.FunctionProto) -> bool:
    return is_body(function) and function.domain == DOMAIN


def attach_custom(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model with the bodies of users' operators."""
    copy = copy_model(model)
    bodies: dict[tuple[str, str], onnx.FunctionProto] = {}
    for scope in (copy, *copy.functions):
        for node in iter_nodes(scope.graph if isinstance(scope, onnx.ModelProto) else scope):
            operator = custom_of(node)
            if operator is not None and operator.body is not None:
                _checked(operator, node)
                node.overload = ""
                bodies[node.domain, node.op_type] = operator.body
    kept = [function for function in copy.functions if (function.domain, function.name) not in bodies]
    assign(copy.functions, [*kept, *bodies.values()])
    for domain, _ in bodies:
        import_domain(copy, domain, DOMAIN_VERSION)
    copy.ir_version = max(copy.ir_version, MIN_IR_VERSION) if bodies else copy.ir_version
    return copy


def _element_types(model: onnx.ModelProto) -> dict[str, set[int]]:
    """Return the known element types of tensors by name; a name may have several, in different subgraphs."""
    types: dict[str, set[int]] = {}
    for known in known_types(model):
        for name, tensor in known.items():
            types.setdefault(name, set()).add(tensor.elem_type)
    return types


def _sums(node: onnx.NodeProto, types: Mapping[str, set[int]]) -> Kind:
    """Return the element type of a node's sums."""
    return "double" if types.get(node.input[0]) == {onnx.TensorProto.DOUBLE} else "float"


def _checked(operator: Operator, node: onnx.NodeProto) -> dict[str, AttributeValue]:
    """Write missing attributes on a node, and return all of them with the operator's constants."""
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            raise ValueError(
                f"{label(node)}: {attribute.name} refers to {attribute.ref_attr_name} of the function around it: "
                "must be a value"
            )
    given = node_attribute_values(operator, node)
    values = attribute_values(operator, given)
    assign(node.attribute, attribute_protos(operator.attributes, values))
    return operator.check_attributes(given)


def _wanted(node: onnx.NodeProto) -> frozenset[str]:
    """Return the operator's names of the outputs of a node."""
    tensors = BY_NAME[node.op_type].outputs
    wanted = frozenset(tensor.name for tensor, name in zip(tensors, node.output, strict=False) if name)
    if not wanted:
        raise ValueError(f"{node.op_type} has no outputs: must have one of {', '.join(t.name for t in tensors)}")
    return wanted


def _inputs(operator: Operator, nodes: Sequence[onnx.NodeProto]) -> tuple[str, ...]:
    """Return the operator's names of the inputs of nodes."""
    present = {
        tuple(tensor.name for tensor, name in zip(operator.inputs, node.input, strict=False) if name) for node in nodes
    }
    if len(present) > 1:
        every = " and ".join(sorted(", ".join(names) for names in present))
        raise ValueError(
            f"inputs {every}: must be the same for all nodes of an operator: they share a body; lower needs none"
        )
    return present.pop()


def results(
    graph: BodyGraph,
    nodes: Sequence[onnx.NodeProto],
    given: Mapping[str, Value],
    sums: Kind,
    *,
    without_loops: bool = False,
) -> dict[str, Value]:
    """Add what nodes of an operator compute to the graph of the body that they share, and return the wanted outputs by name.

    `given` are the inputs by the operator's names. Raises ValueError if the nodes do not agree, or one lacks an input
    or an output.
    """
    operator = BY_NAME[nodes[0].op_type]
    attributes = Attributes(graph, operator, [_checked(operator, node) for node in nodes])
    wanted = frozenset[str]().union(*map(_wanted, nodes))
    for tensor in operator.inputs:
        reason = operator.why_required(tensor, attributes.words, wanted)
        if reason is not None and tensor.name not in given:
            raise ValueError(f"{tensor.name} is missing: {operator.name} needs it for {reason}")
    # The module of the operator's family makes the wanted outputs, in the type of sums, from the inputs; both by name.
    family = import_module(f"onnx_models.portable.{operator.family}")
    outputs: dict[str, Value] = family.outputs(given, BodyRequest(operator, attributes, wanted, sums, without_loops))
    return outputs


def _body(operator: Operator, nodes: Sequence[onnx.NodeProto], sums: Kind, opset: int) -> onnx.FunctionProto:
    """Make the function for all nodes of an operator."""
    graph = BodyGraph()
    inputs = _inputs(operator, nodes)
    outputs = results(graph, nodes, {name: graph.input(name) for name in inputs}, sums)
    names = [tensor.name for tensor in operator.outputs]
    for node in nodes:
        node.output.extend([""] * (len(names) - len(node.output)))
        node.overload = ""
    like = graph.input(inputs[0])
    parameters = [tensor.name for tensor in operator.inputs]
    while parameters[-1] not in inputs:  # an input that is left out before others keeps its place
        parameters.pop()
    for name in names:
        # A function has all outputs of its operator. One that no node reads is empty.
        graph.output(name, outputs.get(name) or graph.constant([], "float"), like)
    return helper.make_function(
        DOMAIN,
        operator.name,
        parameters,
        names,
        graph.nodes,
        [helper.make_opsetid("", opset)],
        attributes=[attribute.name for attribute in nodes[0].attribute],
        doc_string=f"{operator.doc} Written in standard operators.",
    )


Types = Mapping[str, onnx.TypeProto.Tensor]


def lower(model: onnx.ModelProto, *, operators: Iterable[Operator] = ()) -> onnx.ModelProto:
    """Return a copy of a model in which basic operators of ONNX compute RoiAlign, MaxRoiPool and this project's operators.

    It is for runtimes that have neither these operators nor functions. The nodes that `onnx_models.convert` knows, those of
    ONNX, mmcv and caffe2, are converted first. Then standard nodes take the place of every node of this project, in
    subgraphs, too, and of users' operators that have a body (`ortops.operator`). Those for nodes of this project contain no
    `Loop`, `Scan` or `If`, and attributes and known lengths are constants in them. All functions of the model are inlined.
    Its other nodes stay as they are.

    Without loops, all regions are pooled at once, so that memory grows with their number R. With C channels, PH x PW bins
    and S samples in each, it holds

    - R PH PW S C numbers for an average of up to 4 x 4 samples and for a maximum, and four times as many for the gradient
      of a maximum. A `sampling_ratio` of 0 makes S that of the largest region, for the maximum and for RoIAlignRotated.
    - R PH C W + R PH N H numbers for other averages, with N images of H x W pixels.
    - R PH PW S C numbers for MaxRoiPool, whose S is the number of pixels of the largest bin.

    `onnx_models.portable.attach` writes bodies whose memory does not grow with R.

    Args:
        model: a model of opset 10 or later if it has RoiAlign of ONNX, else of opset 7 or later; an opset before 18 is
            upgraded to 18 (`onnx_models.tools.opset_upgrade`).
        operators: operators of `ortops.operator` in the model; `onnx_models.register_schemas` makes some known to all calls.

    Returns:
        The copy. It computes sums in float, or in double for tensors known to have doubles, and coordinates in double.

    Raises:
        ValueError: a node cannot be lowered: it is of a user's operator without a body, lacks an input, has no output, or
            breaks a rule of its attributes; or the model cannot be converted, upgraded, or have its functions inlined.
        TypeError: an attribute is unknown or has a wrong type.

    Limits: as those of `onnx_models.portable.attach`. What a runtime does with invalid data, such as the index of an image
    that does not exist, depends on its Gather; ONNX Runtime refuses it on the CPU.
    """
    with schemas_of(operators):
        return _lowered(model)


def lowered_operators(model: onnx.ModelProto) -> Counter[str]:
    """Count the nodes that `lower` replaces, those of functions once for each call, by their operator."""
    inlined = _inlined(model)
    return Counter(node.op_type for node in iter_nodes(inlined) if operator_of(node) is not None)


def _lowered(model: onnx.ModelProto) -> onnx.ModelProto:
    lowered = _inlined(model)
    del lowered.functions[:]
    names = {name for part in iter_graphs(lowered) for name in tensor_names(part)}
    opset, check_node = onnx_opset(lowered) or MIN_OPSET, node_checker({DOMAIN: DOMAIN_VERSION})
    parts = list(zip(iter_graphs(lowered), chain(_types(lowered), repeat({})), strict=False))
    # The innermost first, as nodes with subgraphs are copied below.
    for part, types in reversed(parts):
        nodes = list(part.node)
        del part.node[:]
        for node in nodes:
            if operator_of(node) is None:
                part.node.append(node)
                continue
            check_node(node)
            prefix = f"{next(filter(None, node.output), node.op_type)}/lowered"
            with prefix_errors(label(node)):
                part.node.extend(_nodes_for(node, InlinedGraph(names, types, opset, prefix)))
    kept = [item for item in lowered.opset_import if item.domain != DOMAIN]
    assign(lowered.opset_import, kept)
    return restore_weights(lowered, model)


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with nodes of this project, without the data of weights, and with no functions but the nodes' bodies."""
    inlined = inline_functions(attach_custom(convert(strip_weights(model))), MIN_OPSET)
    bodies = [(function.domain, function.name) for function in inlined.functions if function.domain != DOMAIN]
    if not bodies:
        return inlined
    with single_line_errors("inlining the bodies of operators"):
        return onnx.inliner.inline_selected_functions(inlined, bodies)


def _types(model: onnx.ModelProto) -> Iterator[Types]:
    """Yield the types of the tensors in each graph, inferred from those of the inputs alone: others may be wrong."""
    bare = strip_weights(model)
    del bare.graph.value_info[:]
    forget_lengths_inside(bare.graph)
    return known_types(bare)


def _nodes_for(node: onnx.NodeProto, graph: InlinedGraph) -> list[onnx.NodeProto]:
    """Return the nodes that take the place of a node."""
    if custom_of(node) is not None:
        raise ValueError("cannot be lowered: its operator has no body")
    operator = BY_NAME[node.op_type]
    pairs = zip(operator.inputs, node.input, strict=False)
    given = {tensor.name: graph.input(name) for tensor, name in pairs if name}
    like = graph.input(node.input[0])
    outputs = results(graph, [node], given, "double" if like.kind == "double" else "float", without_loops=True)
    for tensor, name in zip(operator.outputs, node.output, strict=False):
        if name:
            graph.output(name, outputs[tensor.name], like)
    return graph.nodes_of_outputs()
