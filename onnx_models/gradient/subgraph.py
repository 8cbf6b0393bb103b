# SPDX-License-Identifier: MIT
"""Copies of subgraphs (branches of If, bodies of Loop and Scan) that the nodes of gradients can be appended to."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnx_models.gradient.expand import clone_graph, taken_branch
from onnx_models.gradient.graph import GradientGraph, Node
from onnx_models.gradient.registry import RANDOM
from onnx_models.tools.nodes import Length
from onnx_models.tools.protos import input_names, iter_nodes, label, needed, normalize_domain, outer_names, subgraphs

_MAX_LOOP_DEPTH = 3
"""The deepest nesting at which the ranks of an inner Loop are inferred."""


class Subgraph:
    """A copy of a subgraph of a node under new names, with nodes to be appended; `types` are those of its inputs."""

    def __init__(
        self,
        graph: GradientGraph,
        node: Node,
        inner: onnx.GraphProto,
        types: Sequence[onnx.TypeProto.Tensor | None] = (),
    ) -> None:
        self.node, self._outside = node, graph
        self.first: list[onnx.NodeProto] = []
        """Nodes that precede those of the copy, because they compute its inputs."""
        self.shapes: dict[str, str] = {}
        """Names of shape tensors for the tensors of which only the shape is read."""
        self.given: dict[str, str] = {}
        """New names for the copy's results, by the names of tensors that inputs or nodes of `first` now provide instead."""
        names: dict[str, str] = {}
        proto = clone_graph(graph, inner, names, node.proto.op_type)
        self.originals = {new: old for old, new in names.items()}
        """Names of tensors in the original subgraph, by their names in the copy."""
        self.graph = GradientGraph(proto, graph.opsets, graph)
        self.inputs = [value.name for value in proto.input]
        self.outputs = [value.name for value in proto.output]
        outside = outer_names(proto)
        for name in outside:
            graph.type_of(name)  # inferred by the graph that contains its producer
        for name in self.outputs:
            self.graph.declare(name, None)
        for name, kind in zip(self.inputs, types, strict=True):
            self.graph.declare(name, kind)
        self.graph.infer(proto.node)
        infer_subgraph_ranks(self.graph, proto.node)
        wanted = {*node.captured, *(name for i, name in enumerate(node.inputs) if node.wants(i))}
        self.captured = [name for name in sorted(outside) if name in wanted]
        """Names of the outer tensors that the subgraph reads and whose gradients are needed."""
        fixed = (length for name in [*self.inputs, *outside] for length in self.graph.lengths(name) or [])
        self._fixed_lengths = {length for length in fixed if isinstance(length, str)}

    def new_input(self, base: str, kind: onnx.TypeProto.Tensor | None = None) -> str:
        """The name of an additional input."""
        name = self.graph.name(base)
        self.graph.declare(name, kind)
        return name

    def like(self, name: str, other: str) -> str:
        """Set a tensor's type to that of another if inference does not find its rank; returns its name."""
        kind = self.graph.type_of(other)
        if kind is not None and self.graph.lengths(name) is None:
            self.graph.declare(name, kind)
        return name

    def is_fixed(self, name: str) -> bool:
        """Whether a tensor is known to have the same shape in each iteration."""
        lengths = self.graph.lengths(name)
        return lengths is not None and all(isinstance(n, int) or n in self._fixed_lengths for n in lengths)

    def before(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node before those of the copy, and return the name of its output."""
        output = output or self.graph.name(op_type)
        self.first.append(onnx.helper.make_node(op_type, inputs, [output], name=output, **attributes))
        return output

    def build(self, inputs: Sequence[str], outputs: Sequence[str], *, hoisted: bool = False) -> onnx.GraphProto:
        """The graph with these inputs and outputs, and no more nodes than the outputs need.

        If `hoisted`, what the new nodes compute from outer tensors alone is computed outside, once. Nodes of the copy stay,
        since they may fail in a loop that has no iterations.
        """
        self._check_drawn(outputs)
        inside = {name for node in self._nodes() for name in node.output}
        body, names = onnx.GraphProto(name=self.graph.name("body")), []
        for name in outputs:
            # ONNX Runtime requires that each output of a graph is computed by a node of that graph.
            is_inside = name in inside and name not in names
            names.append(name if is_inside else self.graph.op("Identity", name))
        nodes = needed(self._nodes(), names)
        body.node.extend(self._without_hoisted(nodes, {*inputs, *names}) if hoisted else nodes)
        read = {name for node in body.node for name in input_names(node)}
        body.initializer.extend(tensor for tensor in self.graph.proto.initializer if tensor.name in read)
        body.sparse_initializer.extend(
            tensor for tensor in self.graph.proto.sparse_initializer if tensor.values.name in read
        )
        for values, ends in ((body.input, inputs), (body.output, names)):
            for name in ends:
                self._declare(values.add(name=name))
        return body

    def read(self, outputs: Iterable[str]) -> set[str]:
        """Names of all tensors that the computation of these outputs reads."""
        outputs = set(outputs)
        return outputs.union(*(input_names(node) for node in needed(self._nodes(), outputs)))

    def read_by_shape_alone(self, outputs: Iterable[str]) -> set[str]:
        """Names of the tensors of which the computation of these outputs reads the shape, but not the values."""
        by_shape, by_value = set[str](), set(outputs)
        for node in needed(self._nodes(), by_value):
            (by_shape if node.op_type == "Shape" else by_value).update(input_names(node))
        return by_shape - by_value

    def _without_hoisted(self, nodes: Sequence[onnx.NodeProto], inside: Iterable[str]) -> Iterator[onnx.NodeProto]:
        """Add the nodes that can be computed outside to the outer graph, and return the others."""
        kept = {tensor.name for tensor in self.graph.proto.initializer}
        kept |= {tensor.values.name for tensor in self.graph.proto.sparse_initializer}
        kept.update(inside, (name for node in self._copied() for name in node.output if node.op_type != "Constant"))
        for node in nodes:
            if kept.isdisjoint([*input_names(node), *node.output]) and not any(subgraphs([node])):
                self._outside.add(node)
            else:
                kept.update(node.output)
                yield node

    def _with_shapes(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """The node, or a Slice of a given shape tensor in place of Shape."""
        if node.op_type != "Shape" or node.input[0] not in self.shapes:
            return node
        bounds = {attribute.name: attribute.i for attribute in node.attribute}
        bounds = {"start": 0, "end": np.iinfo(np.int64).max, **bounds}
        inputs = [self.shapes[node.input[0]], *(self._outside.ints([bounds[name]]) for name in ("start", "end"))]
        return onnx.helper.make_node("Slice", inputs, node.output, name=node.name)

    def _nodes(self) -> list[onnx.NodeProto]:
        return [*self.first, *map(self._with_shapes, [*self._copied(), *self.graph.added])]

    def _copied(self) -> list[onnx.NodeProto]:
        """The nodes of the copy, with the new names in `given`."""
        nodes = self.graph.with_replaced()
        return [self._without_given(node) if self.given else node for node in nodes]

    def _without_given(self, node: onnx.NodeProto) -> onnx.NodeProto:
        if self.given.keys().isdisjoint(node.output):
            return node
        renamed = copy.deepcopy(node)
        renamed.output[:] = [self.given.get(name, name) for name in node.output]
        renamed.name = next(filter(None, renamed.output))
        return renamed

    def _declare(self, value: onnx.ValueInfoProto) -> None:
        """Declare a tensor's type, but only if its rank is known: ONNX Runtime handles a missing type better."""
        kind = self.graph.type_of(value.name)
        if kind is not None and kind.elem_type and kind.HasField("shape"):
            value.type.tensor_type.CopyFrom(kind)

    def _check_drawn(self, outputs: Sequence[str]) -> None:
        copied = {name for node in self.graph.with_replaced() for name in node.output}
        for node in needed(self._nodes(), set(outputs)):
            for inner in iter_nodes([node]) if not copied.isdisjoint(node.output) else ():
                if normalize_domain(inner.domain) == "" and (inner.op_type in RANDOM or self._is_training(inner)):
                    raise ValueError(
                        f"{self.node} has no gradient: {label(inner)} in its subgraph draws random numbers, "
                        "which the gradient cannot reproduce"
                    )

    def _is_training(self, node: onnx.NodeProto) -> bool:
        if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
            return False
        value = self.graph.constant(node.input[2])
        return value is None or bool(value.any())


LOOP_INPUTS = (("number", onnx.TensorProto.INT64), ("goes_on", onnx.TensorProto.BOOL))
"""Names and element types of the first two inputs of a Loop's body."""


def loop_body(graph: GradientGraph, node: Node) -> Subgraph:
    """A Loop's body; of the shapes of its states it knows the lengths that no iteration changes."""
    inner = node.attribute("body")
    kinds = [tensor_type(kind, []) for _, kind in LOOP_INPUTS]
    for i, value in enumerate(inner.input[:2]):
        if value.type.tensor_type.HasField("shape"):
            kinds[i] = value.type.tensor_type
    kinds += [graph.type_of(name) for name in node.inputs[2:]]
    while True:
        body = Subgraph(graph, node, inner, kinds)
        after = kinds[:2] + [body.graph.type_of(name) for name in body.outputs[1 : len(kinds) - 1]]
        common = [_common(*pair) for pair in zip(kinds, after, strict=True)]
        if common == kinds:
            return body
        kinds = common


@dataclass(frozen=True)
class ScanAxes:
    """The (axis, direction) of each scan input and each scan output; direction 1 begins at the end."""

    inputs: Sequence[tuple[int, int]]
    outputs: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, node: Node) -> ScanAxes:
        """The axes and directions of a Scan."""
        inputs = node.attribute("num_scan_inputs")
        counts = {"input": inputs, "output": len(node.attribute("body").output) - len(node.inputs) + inputs}
        sides = []
        for side, count in counts.items():
            values = (node.attribute(f"scan_{side}_{what}") or count * [0] for what in ("axes", "directions"))
            sides.append(list(zip(*values, strict=True)))
        return cls(*sides)


def scan_body(graph: GradientGraph, node: Node, axes: ScanAxes) -> Subgraph:
    """A Scan's body."""
    states = len(node.inputs) - len(axes.inputs)
    kinds = [graph.type_of(name) for name in node.inputs[:states]]
    kinds += [slice_type(graph, name, axis) for name, (axis, _) in zip(node.inputs[states:], axes.inputs, strict=True)]
    # A session needs the ranks of a Scan's outputs: use those that the body declares if the outer graph has none.
    for i, value in enumerate(node.attribute("body").input):
        kind, declared = kinds[i], value.type.tensor_type
        if kind is not None and not kind.HasField("shape") and declared.HasField("shape"):
            kinds[i] = tensor_type(kind.elem_type, [None] * len(declared.shape.dim))
    return Subgraph(graph, node, node.attribute("body"), kinds)


def infer_subgraph_ranks(graph: GradientGraph, nodes: Sequence[onnx.NodeProto]) -> None:
    """Infer ranks that ONNX's inference does not find: of outputs of Loop and Scan, and of If with a known condition.

    A loop may stack shapes, whose lengths are ranks as well. Deeply nested loops are left out: each level multiplies how
    often the innermost one is visited. `nodes` are all nodes of the graph, which gets the types.
    """
    while _depth(graph) <= _MAX_LOOP_DEPTH:
        ranked: dict[str, onnx.TypeProto.Tensor] = {}
        for proto in nodes:
            if proto.op_type in ("If", "Loop", "Scan") and not normalize_domain(proto.domain):
                names = [name for name in proto.output if name and _lacks_rank(graph.type_of(name))]
                types = dict(zip(proto.output, _output_types(graph, proto), strict=True)) if names else {}
                ranked |= {name: kind for name in names if not _lacks_rank(kind := types[name])}
        if not ranked:
            return
        for name, kind in ranked.items():
            graph.declare(name, kind)
        graph.infer(nodes, ranked)


def _depth(graph: GradientGraph) -> int:
    return 0 if graph.outer is None else 1 + _depth(graph.outer)


def _output_types(graph: GradientGraph, proto: onnx.NodeProto) -> list[onnx.TypeProto.Tensor | None]:
    node = Node(proto, graph.opsets[""])
    if proto.op_type == "If":
        branch = taken_branch(graph, proto, proto.input[0])
        if branch is None:
            return [None] * len(proto.output)
        body = Subgraph(graph, node, branch)
        return [body.graph.type_of(name) for name in body.outputs]
    if proto.op_type == "Scan":
        axes = ScanAxes.of(node)
        body = scan_body(graph, node, axes)
        finals = [body.graph.type_of(name) for name in body.outputs[: len(node.inputs) - len(axes.inputs)]]
        stacked = zip(body.outputs[len(finals) :], axes.outputs, strict=True)
        return finals + [_stacked_type(body.graph, name, axis) for name, (axis, _) in stacked]
    body = loop_body(graph, node)
    states = len(body.inputs) - 2
    finals = [
        _common(graph.type_of(outer), body.graph.type_of(name))
        for outer, name in zip(node.inputs[2:], body.outputs[1:], strict=False)
    ]
    return finals + [_stacked_type(body.graph, name, 0) for name in body.outputs[1 + states :]]


def _lacks_rank(kind: onnx.TypeProto.Tensor | None) -> bool:
    """Whether a rank is missing: that of a tensor, or that of the tensors whose shapes it may be."""
    if kind is None or not kind.HasField("shape"):
        return True
    lengths = kind.shape.dim
    return kind.elem_type == onnx.TensorProto.INT64 and len(lengths) == 2 and not lengths[1].HasField("dim_value")


def tensor_type(kind: int | None, lengths: Sequence[Length] | None) -> onnx.TypeProto.Tensor | None:
    """The type of a tensor; None if its element type is unknown."""
    if kind is None:
        return None
    return onnx.helper.make_tensor_type_proto(kind, lengths).tensor_type


def slice_type(graph: GradientGraph, name: str, axis: int) -> onnx.TypeProto.Tensor | None:
    """The type of a slice of a tensor at one index of an axis."""
    lengths = graph.lengths(name)
    if lengths is not None:
        del lengths[axis]
    return tensor_type(graph.element_type(name), lengths)


def _stacked_type(graph: GradientGraph, name: str, axis: int) -> onnx.TypeProto.Tensor | None:
    """The type of tensors like one, stacked along a new axis."""
    lengths = graph.lengths(name)
    if lengths is not None:
        lengths.insert(axis % (len(lengths) + 1), None)
    return tensor_type(graph.element_type(name), lengths)


def _common(a: onnx.TypeProto.Tensor | None, b: onnx.TypeProto.Tensor | None) -> onnx.TypeProto.Tensor | None:
    """The most specific type that covers two types; None if the element types differ."""
    if a is None or b is None or a.elem_type != b.elem_type:
        return None
    common = onnx.TypeProto.Tensor(elem_type=a.elem_type)
    if a.HasField("shape") and b.HasField("shape") and len(a.shape.dim) == len(b.shape.dim):
        common.shape.SetInParent()
        for before, after in zip(a.shape.dim, b.shape.dim, strict=True):
            common.shape.dim.add().CopyFrom(before if before == after else onnx.TensorShapeProto.Dimension())
    return common
