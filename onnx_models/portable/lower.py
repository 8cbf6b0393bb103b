"""Replace this project's operators in a model by standard nodes, without functions and loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat

import onnx
import onnx.inliner

from onnx_models.convert import convert
from onnx_models.portable.attach import MIN_OPSET, attach_custom, results
from onnx_models.portable.graph import InlinedGraph
from onnx_models.tools.attributes import custom_of, operator_of, prefix_errors
from onnx_models.tools.functions import inline_functions
from onnx_models.tools.protos import (
    assign,
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
from ortops.spec import DOMAIN, DOMAIN_VERSION, Operator

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
