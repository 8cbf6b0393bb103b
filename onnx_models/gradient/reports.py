# SPDX-License-Identifier: MIT
"""Reports on a gradient without building it, and how each operator is differentiated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx

from onnx_models.gradient.backward import DiffContext, reachable_from
from onnx_models.gradient.expand import has_body
from onnx_models.gradient.graph import GradientGraph
from onnx_models.gradient.ours import DOMAIN, DOMAIN_VERSION, OPERATORS
from onnx_models.gradient.rules import DECOMPOSITIONS, REFUSED, RULES, ZEROS
from onnx_models.tools.attributes import operator_of
from onnx_models.tools.compositions import COMPOSITIONS, ML
from onnx_models.tools.functions import is_body
from onnx_models.tools.protos import input_names, iter_nodes, normalize_domain


@dataclass(frozen=True)
class Report:
    """What a gradient consists of, or why it is refused.

    operators: the operators between `wrt` and the loss in graph order, each with its number of nodes.
    zeros: a message for each place where a derivative is 0.
    zero_gradients: names of the tensors whose gradient is 0 for all inputs.
    refused: a message for each operator that cannot be differentiated; the gradient is refused if there is any.
    nodes_before, nodes_after: numbers of nodes without and with the gradient, functions inlined; the latter None if refused.
    wrt: names of the tensors with a gradient: as given, or those that "parameters" selects.
    shapes: of each tensor in `wrt`, its lengths, names of lengths, and None where it is unknown; None if the rank is.
    left_out: floating-point constants that "parameters" does not select, each with the reason.
    tied: parameters in `wrt` that several layers read, each with the nodes, as an exporter merges equal ones.
    ours: this project's operators in the model with its gradient, each with its number of nodes, see `own_operators`.
    """

    operators: tuple[tuple[Coverage, int], ...]
    zeros: tuple[str, ...]
    zero_gradients: tuple[str, ...]
    refused: tuple[str, ...]
    nodes_before: int
    nodes_after: int | None
    wrt: tuple[str, ...]
    shapes: tuple[Sequence[int | str | None] | None, ...]
    left_out: tuple[tuple[str, str], ...]
    tied: tuple[str, ...]
    ours: tuple[tuple[str, int], ...]


def own_operators(model: onnx.ModelProto) -> Counter[str]:
    """Count the nodes of a model that run only after `ortops.register` or `onnx_models.portable.attach`, by operator.

    Nodes whose operator has a body in the model are not counted.
    """
    bodies = {function.name for function in model.functions if is_body(function)}
    nodes = (node for scope in (model, *model.functions) for node in iter_nodes(scope) if operator_of(node))
    return Counter(node.op_type for node in nodes if node.op_type not in bodies)


def operators_between(
    graph: GradientGraph, wrt: Collection[str], loss: str, context: DiffContext
) -> tuple[tuple[Coverage, int], ...]:
    """The operators between `wrt` and `loss` with their numbers of nodes."""
    above = reachable_from(graph, graph.proto.node, wrt, DiffContext(context.stop_at, context.through_rois))
    needed, nodes = {loss}, []
    for node in reversed(graph.proto.node):
        if not needed.isdisjoint(node.output) and not above.isdisjoint(input_names(node)):
            needed.update(input_names(node))
            nodes.append(node)
    names = Counter((node.op_type, normalize_domain(node.domain)) for node in reversed(nodes))
    return tuple((coverage_of(*name, graph.opsets.get(name[1], 1)), count) for name, count in names.items())


RULE, COMPOSITION, FUNCTION = "rule", "composition", "function of the specification"
ZERO, REFUSAL, NONE = "zero", "refused", "none"


@dataclass(frozen=True)
class Coverage:
    """How an operator is differentiated.

    domain: "" for ONNX's own.
    way: "rule"; "composition" of other operators; "function of the specification"; "zero" if the derivative is 0 wherever
        it exists; "refused" if there is no gradient; "none" if the operator is unknown.
    reason: the reason of a zero or a refusal, else "".
    """

    domain: str
    operator: str
    way: str
    reason: str = ""


def coverage_of(operator: str, domain: str, version: int) -> Coverage:
    """How an operator is differentiated at opset `version` of its domain."""
    key = domain, operator
    if key in ZEROS:
        return Coverage(*key, ZERO, ZEROS[key].reason)
    if key in REFUSED:
        return Coverage(*key, REFUSAL, REFUSED[key])
    if key in RULES:
        return Coverage(*key, RULE)
    if key in DECOMPOSITIONS:
        return Coverage(*key, COMPOSITION)
    node = onnx.NodeProto(op_type=operator, domain=domain)
    return Coverage(*key, FUNCTION if has_body(node, version) else NONE)


def coverage() -> list[Coverage]:
    """How each operator is differentiated: ONNX's operators at the newest opsets, then fused and this project's ones."""
    schemas = {
        (schema.domain, schema.name)
        for schema in onnx.defs.get_all_schemas()
        if schema.domain == ML or (schema.domain == "" and not schema.deprecated)
    }
    names = [*sorted(schemas), *sorted(COMPOSITIONS.keys() - schemas)]
    ways = [coverage_of(name, domain, onnx.defs.onnx_opset_version()) for domain, name in names]
    return ways + [coverage_of(operator.name, DOMAIN, DOMAIN_VERSION) for operator in OPERATORS]
