"""Copies of nodes and of graphs under new names, so that no name is made twice in scopes that are in each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import onnx

from onnx_models.gradient.folding import known_value
from onnx_models.gradient.graph import Graph
from onnx_models.walk import normal_domain, subgraphs


def clone_nodes(
    graph: Graph, nodes: Sequence[onnx.NodeProto], names: dict[str, str], outputs: Sequence[str]
) -> list[str]:
    """Add copies of nodes, what they make under new names; those of the outputs.

    Of an If on a condition that is known the nodes of its branch are added in its place: of what it makes, inference
    would not find the ranks where the branches differ in them.

    Args:
        graph: where they are added.
        nodes: each after those that it reads from.
        names: for each tensor that the nodes read from outside, the name of what they shall read, if it is another.
        outputs: names of tensors that the nodes make, or "".
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
    """Add copies of the nodes of a graph without inputs, its initializers as constants; the names of its outputs."""
    constants = {tensor.name: graph.tensor(onnx.numpy_helper.to_array(tensor)) for tensor in inner.initializer}
    return clone_nodes(graph, inner.node, {**names, **constants}, [value.name for value in inner.output])


def taken_branch(graph: Graph, node: onnx.NodeProto, condition: str) -> onnx.GraphProto | None:
    """The branch that an If takes on a condition, where it is known; None where it is not, or for another node."""
    if (normal_domain(node.domain), node.op_type) != ("", "If"):
        return None
    value = known_value(graph, condition)
    if value is None:
        return None
    name = "then_branch" if value.all() else "else_branch"
    branch = next(attribute.g for attribute in node.attribute if attribute.name == name)
    return None if branch.sparse_initializer else branch


def clone_graph(graph: Graph, inner: onnx.GraphProto, names: dict[str, str], base: str = "body") -> onnx.GraphProto:
    """A copy of a graph inside of a node, with new names for what it makes.

    Each of its outputs is made by a node of the copy, and no two are the same tensor.

    Args:
        graph: the graph with the node.
        inner: the graph to copy.
        names: for tensors that it reads from outside, what the copy shall read, if it is another; names of the copy by
            those of the original are added.
        base: beginning of new names.
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
    """A copy of a node, with new names for what it and its subgraphs make; the former are added to `names`."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [names.get(name, name) for name in node.input]
    for subgraph in subgraphs([made]):
        subgraph.CopyFrom(clone_graph(graph, subgraph, dict(names), node.op_type))
    for i, name in enumerate(node.output):
        if name:
            names[name] = made.output[i] = graph.name(node.op_type)
    made.name = next(filter(None, made.output), "")
    return made
