"""Copies of nodes and of subgraphs under new names, since nested scopes may not reuse a name."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence

import onnx

from onnx_models.gradient.folding import known_value
from onnx_models.gradient.graph import Graph
from onnx_models.tools.protos import normalize_domain, subgraphs


def clone_nodes(
    graph: Graph, nodes: Sequence[onnx.NodeProto], names: dict[str, str], outputs: Sequence[str]
) -> list[str]:
    """Add copies of nodes with new names for their outputs; return the new names of `outputs`.

    An If whose condition is known is replaced by the nodes of the branch: inference would not find the ranks of its outputs
    if the branches differ in them.

    Args:
        graph: the graph to add nodes to.
        nodes: in topological order.
        names: new names of outer tensors, where these change.
        outputs: names of outputs of the nodes, or "".
    """
    names = dict(names)
    for node in nodes:
        branch = taken_branch(graph, node, names.get(node.input[0], node.input[0])) if node.input else None
        if branch is None:
            graph.add(_copy(graph, node, names))
        else:
            made = zip(node.output, inline_graph(graph, branch, names), strict=True)
            names.update({name: other for name, other in made if name})
    return [names.get(name, name) for name in outputs]


def inline_graph(graph: Graph, inner: onnx.GraphProto, names: dict[str, str]) -> list[str]:
    """Add copies of the nodes of a branch, its initializers as constants; return the new names of its outputs."""
    constants = {tensor.name: graph.tensor(onnx.numpy_helper.to_array(tensor)) for tensor in inner.initializer}
    return clone_nodes(graph, inner.node, {**names, **constants}, [value.name for value in inner.output])


def taken_branch(graph: Graph, node: onnx.NodeProto, condition: str) -> onnx.GraphProto | None:
    """The branch that an If takes if its condition is known; else, and for other nodes, None."""
    if (normalize_domain(node.domain), node.op_type) != ("", "If"):
        return None
    value = known_value(graph, condition)
    if value is None:
        return None
    name = "then_branch" if value.all() else "else_branch"
    branch = next(attribute.g for attribute in node.attribute if attribute.name == name)
    return None if branch.sparse_initializer else branch


def clone_graph(graph: Graph, inner: onnx.GraphProto, names: dict[str, str], base: str = "body") -> onnx.GraphProto:
    """A copy of a subgraph with new names.

    Each output is computed by a node of the copy, and no two outputs are the same tensor.

    Args:
        graph: the enclosing graph.
        inner: the subgraph to copy.
        names: new names of outer tensors, where these change; the new names of the subgraph's own tensors are added.
        base: prefix of new names.
    """
    made = onnx.GraphProto(name=graph.name(base))
    for value in inner.input:
        made.input.add().CopyFrom(value)
        names[value.name] = made.input[-1].name = graph.name(base)
    for tensor in inner.initializer:
        made.initializer.add().CopyFrom(tensor)
        if tensor.name not in {value.name for value in inner.input}:
            names[tensor.name] = graph.name(base)
        made.initializer[-1].name = names[tensor.name]
    for sparse in inner.sparse_initializer:
        made.sparse_initializer.add().CopyFrom(sparse)
        names[sparse.values.name] = made.sparse_initializer[-1].values.name = graph.name(base)
    made.node.extend([_copy(graph, node, names) for node in inner.node])
    inside = {name for node in inner.node for name in node.output}
    times = Counter(value.name for value in inner.output)
    for value in inner.output:
        name = names.get(value.name, value.name)
        if value.name not in inside or times[value.name] > 1:
            source, name = name, graph.name(base)
            made.node.append(onnx.helper.make_node("Identity", [source], [name], name=name))
        made.output.add().CopyFrom(value)
        made.output[-1].name = name
    return made


def _copy(graph: Graph, node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    """A copy of a node with new names for its outputs, which are added to `names`, and for those of its subgraphs."""
    made = copy.deepcopy(node)
    made.input[:] = [names.get(name, name) for name in node.input]
    for subgraph in subgraphs([made]):
        subgraph.CopyFrom(clone_graph(graph, subgraph, dict(names), node.op_type))
    for i, name in enumerate(node.output):
        if name:
            names[name] = made.output[i] = graph.name(node.op_type)
    made.name = next(filter(None, made.output), "")
    return made
