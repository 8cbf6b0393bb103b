# SPDX-License-Identifier: MIT
"""Reverse mode: visits nodes from last to first and applies each one's rule to the gradients of its outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import onnx

from onnx_models.gradient.expand import expanded
from onnx_models.gradient.graph import GradientGraph, Node
from onnx_models.gradient.ours import WITH_ROIS
from onnx_models.gradient.registry import REAL, Gradients, Incoming, Part, Zero
from onnx_models.gradient.rules import REFUSED, RULES, ZEROS
from onnx_models.gradient.rules.own import custom_rule
from onnx_models.tools.attributes import remedy
from onnx_models.tools.protos import input_names, label, normalize_domain, subgraphs

_CASTS = {("", "Cast"), ("", "CastLike")}

_SMALL = {kind for name, kind in onnx.TensorProto.DataType.items() if name.startswith(("FLOAT4", "FLOAT6", "FLOAT8"))}
"""Floating-point types of 8 bits and less; a Cast to or from these passes the gradient."""

_QUANTIZED = ("", "QuantizeLinear")
"""The operator whose integer output has a gradient (straight-through), which DequantizeLinear provides."""


@dataclass
class DiffContext:
    """Options of reverse mode, and the messages that it collects.

    stop_at: names of tensors to treat as constants.
    through_rois: whether RoiAlign passes a gradient to its RoIs.
    errors: a message for each operator that cannot be differentiated; if there is one, no model is built.
    zeros: a message for each place where a derivative is 0, to explain a gradient of zeros.
    """

    stop_at: Collection[str] = ()
    through_rois: bool = True
    errors: list[str] = field(default_factory=list)
    zeros: list[str] = field(default_factory=list)


def backward(
    graph: GradientGraph,
    nodes: Sequence[onnx.NodeProto],
    seeds: Mapping[str, str],
    wrt: Collection[str],
    context: DiffContext,
) -> dict[str, str]:
    """Add nodes that compute gradients; return the names of the gradients that exist, by names in `wrt`.

    The nodes to differentiate are in topological order. `seeds` are names of given gradients, by the names of their outputs.
    Errors and zeros are added to `context`.
    """
    reached = reachable_from(graph, nodes, wrt, context)
    parts: dict[str, list[str]] = {name: [gradient] for name, gradient in seeds.items()}
    sums: dict[str, str] = {}

    def total(name: str) -> str | None:
        """The sum of all gradients of a tensor; all of its consumers have been visited."""
        if name in parts and name not in sums:
            sums[name] = graph.total(parts[name])
            if not _is_not_real(graph, name):  # the gradient of a quantized tensor is float
                graph.inherit_type(sums[name], name)
        return sums.get(name)

    for proto in reversed(nodes):
        if _key(proto) in ZEROS or reached.isdisjoint(_passed(proto, context)):
            continue
        incoming = [total(name) if name in reached and name not in context.stop_at else None for name in proto.output]
        if not any(incoming):
            continue
        node = _node(graph, proto, reached, context)
        try:
            gradients = _by_inputs(graph, node, incoming, context)
        except (ArithmeticError, IndexError, ValueError) as error:
            # Rules read attributes and shapes; in an invalid model they may not fit, such as an axis beyond the rank. A
            # KeyError is a mistake of a rule.
            message = (
                str(error) if isinstance(error, ValueError) else f"{node} has attributes that do not fit: {error!r}"
            )
            context.errors.append(_with_path(message, nodes, wrt, proto, reached))
            gradients = {
                name: graph.zeros(name) for name in input_names(proto) if name in reached
            }  # go on, to list all errors
        for name, part in _wanted_parts(node, gradients):
            if isinstance(part, str):
                parts.setdefault(name, []).append(part)
            elif isinstance(part, Zero):
                context.zeros.append(f"{node}, input {name!r}: {part.reason}")
            else:
                missing = f"{node} has no gradient with respect to its input {name!r}"
                context.errors.append(_with_path(missing, nodes, wrt, proto, reached, name))
    return {name: gradient for name in wrt if (gradient := total(name)) is not None}


def _node(graph: GradientGraph, proto: onnx.NodeProto, reached: Collection[str], context: DiffContext) -> Node:
    passed = _passed(proto, context)
    wanted = [name in reached and name in passed for name in proto.input]
    captured = sorted(name for name in set(input_names(proto)).difference(proto.input) if name in reached)
    version = graph.opsets.get(normalize_domain(proto.domain), 1)
    reached_inside = partial(reachable_from, context=DiffContext(context.stop_at, context.through_rois))
    return Node(proto, version, wanted, captured, partial(backward, context=context), reached_inside)


def _by_inputs(graph: GradientGraph, node: Node, incoming: Incoming, context: DiffContext) -> Gradients:
    """The gradients of a node's inputs, from its rule, or else from the rules of its decomposition."""
    key = _key(node.proto)
    if key in REFUSED:
        raise ValueError(f"{node} has no gradient: {REFUSED[key]}")
    if not any(subgraphs([node.proto])):
        graph.check(node.proto)
    _check_quantized(graph, node)
    rule = RULES.get(key)
    by_rule = rule(graph, node, incoming) if rule is not None else custom_rule(graph, node, incoming)
    if by_rule is not None:
        return by_rule
    expansion = expanded(graph, node)
    if expansion is None:
        raise ValueError(f"{node} has no gradient rule" + (f" (domain {key[0]}){remedy(node.proto)}" if key[0] else ""))
    nodes, outputs = expansion
    for name, computed, dy in zip(node.outputs, outputs, incoming, strict=True):
        if dy is not None and not computed:
            raise ValueError(f"{node} has no gradient by its output {name!r}")
    graph.infer_added(nodes)
    seeds = {name: dy for name, dy in zip(outputs, incoming, strict=True) if dy is not None}
    names = dict.fromkeys(name for name, is_wanted in zip(node.inputs, node.wanted, strict=True) if is_wanted)
    known = len(context.errors)
    gradients = backward(graph, nodes, seeds, names, context)
    context.errors[known:] = [f"{node}, in its decomposition: {error}" for error in context.errors[known:]]
    return {name: gradients.get(name, Zero("nothing in its decomposition depends on it")) for name in names}


def _check_quantized(graph: GradientGraph, node: Node) -> None:
    """Refuse consumers of quantized tensors other than DequantizeLinear and, for small floating-point types, casts."""
    key = _key(node.proto)
    wanted = [name for i, name in enumerate(node.inputs) if node.wants(i)]
    for name in (*wanted, *node.captured):
        is_read = key == ("", "DequantizeLinear") or (key in _CASTS and graph.element_type(name) in _SMALL)
        if _is_not_real(graph, name) and not is_read:
            raise ValueError(
                f"{node} has no gradient: it computes with {name!r}, which is quantized; "
                "only QuantizeLinear followed by DequantizeLinear passes a gradient"
            )


def _is_not_real(graph: GradientGraph, name: str) -> bool:
    """Whether a tensor is known not to have one of the types in `REAL`."""
    kind = graph.element_type(name)
    return kind is not None and kind not in REAL


def _wanted_parts(node: Node, gradients: Gradients) -> Iterator[tuple[str, Part]]:
    """Each wanted gradient of a node with its input's name; an input that the node has twice has two."""
    if isinstance(gradients, Mapping):
        names = [name for i, name in enumerate(node.inputs) if node.wants(i)]
        yield from ((name, gradients.get(name)) for name in dict.fromkeys([*names, *node.captured]))
        return
    for i, name in enumerate(node.inputs):
        if node.wants(i):
            yield name, gradients[i] if i < len(gradients) else None


def _key(node: onnx.NodeProto) -> tuple[str, str]:
    return normalize_domain(node.domain), node.op_type


def _passed(node: onnx.NodeProto, context: DiffContext) -> Collection[str]:
    """Names of the tensors that a node may pass a gradient to."""
    if not context.through_rois and _key(node) in WITH_ROIS:
        return {name for i, name in enumerate(node.input) if i != 1}
    return input_names(node)


def reachable_from(
    graph: GradientGraph, nodes: Sequence[onnx.NodeProto], wrt: Collection[str], context: DiffContext
) -> set[str]:
    """The names of all tensors that depend on `wrt` through differentiable operators."""
    reached = set(wrt)
    for node in nodes:
        key = _key(node)
        if reached.isdisjoint(_passed(node, context)):
            continue
        if key in ZEROS:
            context.zeros.append(f"{label(node)}: {ZEROS[key].reason}")
            continue
        reads_quantized = any(_is_not_real(graph, name) for name in _passed(node, context) if name in reached)
        ends = True
        for name in node.output:
            kind = graph.element_type(name)
            is_rounded = key == _QUANTIZED or (key in _CASTS and kind in _SMALL)
            is_real = kind is None or kind in REAL or is_rounded or reads_quantized or key in REFUSED
            if name and name not in context.stop_at and is_real:
                reached.add(name)
            ends = ends and not is_real
        if ends:
            context.zeros.append(f"{label(node)}: its output is not floating-point")
    return reached


def _with_path(
    error: str,
    nodes: Sequence[onnx.NodeProto],
    wrt: Collection[str],
    last: onnx.NodeProto,
    reached: Collection[str],
    through: str | None = None,
) -> str:
    """The error with a path of tensors and operators from a tensor in `wrt` to the node `last`, by its input `through`."""
    producers = {name: node for node in nodes for name in node.output}
    steps = [last.op_type]
    node = last
    while True:
        name = through or next(n for n in sorted(input_names(node), key=lambda n: (n not in wrt, n)) if n in reached)
        through = None
        steps.append(name)
        if name in wrt or name not in producers:
            break
        node = producers[name]
        steps.append(node.op_type)
    return f"{error}; path: {' -> '.join(reversed(steps))}"
