# SPDX-License-Identifier: MIT
"""Rules of If, Loop and Scan: the branch that is taken, and the iterations in reverse order.

A Loop or Scan gets further outputs, with what the gradient needs of each iteration; its other outputs stay as they are. The
branches of an If are computed again, and so is what changes its shape from one iteration of a Loop to the next.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnx_models.gradient.expand import taken_branch
from onnx_models.gradient.graph import GradientGraph, Node
from onnx_models.gradient.registry import Gradients, Incoming, Part, Zero, multi_output_rule
from onnx_models.gradient.rules.indexing import scatter_added
from onnx_models.gradient.subgraph import LOOP_INPUTS, ScanAxes, Subgraph, loop_body, scan_body, tensor_type
from onnx_models.tools.nodes import Length, NodeView
from onnx_models.tools.protos import assign, input_names, normalize_domain

_NOTHING = Zero("nothing in its subgraph depends on it")


@multi_output_rule("If")
def branch(graph: GradientGraph, node: Node, incoming: Incoming) -> Gradients:
    """One of two branches. The gradients of tensors that the taken branch does not depend on are 0."""
    taken = taken_branch(graph, node.proto, node.inputs[0])
    bodies: dict[str, tuple[Subgraph, dict[str, str]]] = {}
    for name in ("then_branch", "else_branch"):
        inner = node.attribute(name)
        body, gradients = Subgraph(graph, node, inner), {}
        if taken is None or taken == inner:
            seeds = {output: dy for output, dy in zip(body.outputs, incoming, strict=True) if dy is not None}
            gradients = node.reverse(body.graph, body.graph.proto.node, seeds, body.captured)
        bodies[name] = body, gradients
    names = sorted({name for _, gradients in bodies.values() for name in gradients})
    nothing = dict.fromkeys(node.captured, _NOTHING)
    if not names:
        return nothing
    branches = {
        branch: body.build([], [gradients.get(name) or body.graph.zeros(name) for name in names])
        for branch, (body, gradients) in bodies.items()
    }
    outputs = graph.ops("If", node.inputs[0], outputs=len(names), **branches)
    return {**nothing, **dict(zip(names, outputs, strict=True))}


@multi_output_rule("Scan")
def scan(graph: GradientGraph, node: Node, incoming: Incoming) -> Gradients:
    """Iterations along an axis of some tensors: the gradient is a Scan in the opposite direction."""
    axes = ScanAxes.of(node)
    states = len(node.inputs) - len(axes.inputs)
    body = scan_body(graph, node, axes)
    scanned = [body.inputs[i] for i in range(states, len(node.inputs)) if node.wants(i)]
    iteration = _Reversed(graph, node, body, incoming, body.inputs[:states], body.outputs, scanned)
    others = [*(iteration.entries[i] for i in iteration.carried), *iteration.summed, *iteration.scanned]
    for end, other in zip(iteration.ends, others, strict=False):  # ONNX Runtime needs the ranks of a Scan's outputs
        body.like(end, other)
    if not iteration.ends:
        return iteration.by_name([])
    kept = _kept(body, iteration.ends)
    by_shape = body.read_by_shape_alone(iteration.ends)
    for name, outer in zip(iteration.entries, node.inputs, strict=False):
        if name in by_shape:
            body.shapes[name] = graph.shape(outer)
    read = body.read(iteration.ends).difference(body.shapes)
    taped = [name for name in iteration.entries if name in read] + kept
    finals, tape, _ = _taped(graph, node, body, taped)
    # The name inside, the tensor outside, the axis and the direction of each tensor that the gradient iterates over.
    sides = [(body.shapes.get(name, name), tape[name], 0, 1) for name in taped]
    sides += [
        (name, outer, axis, 1 - direction)
        for name, outer, (axis, direction) in zip(body.inputs[states:], node.inputs[states:], axes.inputs, strict=True)
        if name in read
    ]
    sides += [
        (iteration.seeds[name], dy, axis, 1 - direction)
        for name, dy, (axis, direction) in zip(body.outputs[states:], incoming[states:], axes.outputs, strict=True)
        if dy is not None
    ]
    if not sides:  # a Scan needs at least one input to iterate over
        axis, direction = axes.inputs[0]
        sides = [(body.inputs[states], node.inputs[states], axis, 1 - direction)]
    inside, outside, side_axes, directions = map(list, zip(*sides, strict=True))
    stacked = [axes.inputs[body.inputs.index(name) - states] for name in iteration.scanned]
    stacked = [(axis, 1 - direction) for axis, direction in stacked] + len(iteration.rows) * [(0, 0)]
    outputs = graph.ops(
        "Scan",
        *iteration.starts(finals),
        *outside,
        outputs=len(iteration.ends),
        body=body.build([*iteration.states, *inside], iteration.ends, hoisted=True),
        num_scan_inputs=len(sides),
        scan_input_axes=side_axes,
        scan_input_directions=directions,
        scan_output_axes=[axis for axis, _ in stacked] or None,
        scan_output_directions=[direction for _, direction in stacked] or None,
    )
    return iteration.by_name(outputs)


@multi_output_rule("Loop")
def loop(graph: GradientGraph, node: Node, incoming: Incoming) -> Gradients:
    """Iterations whose number may be known at run time only: the gradient is a Loop over them in reverse order.

    A Scan would slice what it reads without copying it, but in ONNX Runtime it fails without iterations, and for states that
    change their shape.
    """
    body = loop_body(graph, node)
    iteration = _Reversed(graph, node, body, incoming, body.inputs[2:], body.outputs[1:])
    if not iteration.ends:
        return iteration.by_name([])
    kept = _kept(body, iteration.ends)
    read = body.read(iteration.ends)
    counter, *others = body.inputs
    by_shape = body.read_by_shape_alone(iteration.ends)
    for name in others:
        if name in by_shape:
            body.shapes[name] = body.new_input("shape")
    values = [name for name in others if name in read and name not in body.shapes]
    flattened = [name for name in values if name in iteration.entries and not body.is_fixed(name)]
    stacked = [counter, *(name for name in values if name not in flattened), *dict.fromkeys([*kept, *body.shapes])]
    finals, tape, flat_tapes = _taped(graph, node, body, stacked, flattened)
    number, goes_on = (body.new_input(name, tensor_type(kind, [])) for name, kind in LOOP_INPUTS)
    count = graph.op("Size", tape[counter])
    place = body.before("Sub", graph.op("Sub", count, graph.integer(1)), number)
    slices = {body.shapes.get(name, name): outer for name, outer in tape.items()}
    scan_outputs = zip(iteration.exits[len(iteration.entries) :], incoming[len(iteration.entries) :], strict=True)
    slices |= {iteration.seeds[name]: dy for name, dy in scan_outputs if dy is not None}
    for name, outer in slices.items():
        body.before("Gather", outer, place, output=name, axis=0)
    for name, flat_tape in flat_tapes.items():
        shape, start = (body.before("Gather", outer, place, axis=0) for outer in (flat_tape.shapes, flat_tape.starts))
        first = body.before("Reshape", start, graph.ints([1]))
        end = body.before("Add", first, body.before("ReduceProd", shape, keepdims=1))
        elements = body.before("Slice", flat_tape.elements, first, end, graph.ints([0]))
        body.before("Reshape", elements, shape, output=name, allowzero=1)
    outputs = graph.ops(
        "Loop",
        count,
        graph.tensor(np.array(True)),
        *iteration.starts(finals),
        outputs=len(iteration.ends),
        body=body.build([number, goes_on, *iteration.states], [goes_on, *iteration.ends], hoisted=True),
    )
    return iteration.by_name(outputs)


class _Reversed:
    """Reverse mode over the nodes of one iteration of a Loop or a Scan.

    Its states are the gradients of the states that are `carried`, and running sums of the gradients of the outer tensors
    `summed`. The gradients of other outer tensors are summed after the loop (`_Total`), from the stacked `rows`.

    entries: names of the states at the start of an iteration. exits: names of the states at its end, then of the scan
    outputs. seeds: by exits, names of their gradients. scanned: the scan inputs with a gradient. states, ends: names of the
    states at the start of a reversed iteration, and of all that it computes.
    """

    def __init__(
        self,
        graph: GradientGraph,
        node: Node,
        body: Subgraph,
        incoming: Incoming,
        entries: Sequence[str],
        exits: Sequence[str],
        scanned: Sequence[str] = (),
    ) -> None:
        self._graph, self._node, self._body, self._incoming = graph, node, body, incoming
        self.entries, self.exits = entries, exits
        self._first = body.inputs.index(entries[0]) if entries else 0
        others = [*body.captured, *scanned]
        self.carried = self._carried(others)
        whole = [*self.carried, *(i for i in range(len(entries), len(exits)) if incoming[i] is not None)]
        self.seeds = {exits[i]: body.new_input("state", body.graph.type_of(exits[i])) for i in whole}
        wrt = [*(entries[i] for i in self.carried), *others]
        self._found = node.reverse(body.graph, body.graph.proto.node, self.seeds, wrt)
        self._totals, self.rows = self._summed_later()
        self.summed = [name for name in body.captured if name in self._found and name not in self._totals]
        self.scanned = [name for name in scanned if name in self._found]
        sums = [body.new_input("sum", body.graph.type_of(name)) for name in self.summed]
        ends = [body.graph.op("Add", term, self._found[name]) for term, name in zip(sums, self.summed, strict=True)]
        # The shape of a state of a Loop may change; that of a Scan is known from its gradient.
        shapes = [self.seeds[exits[i]] if node.proto.op_type == "Scan" else entries[i] for i in self.carried]
        by_states = [
            self._found.get(entries[i]) or body.graph.zeros(shape)
            for i, shape in zip(self.carried, shapes, strict=True)
        ]
        self.states = [*(self.seeds[exits[i]] for i in self.carried), *sums]
        self.ends = [*by_states, *ends, *(self._found[name] for name in self.scanned), *self.rows]

    def _carried(self, others: Sequence[str]) -> list[int]:
        """The indices of the states that depend on tensors whose gradients are needed, and that the loss depends on."""

        def reached(*names: str) -> set[int]:
            """The indices of the outputs that depend on the tensors."""
            depending = self._node.reached(self._body.graph, self._body.graph.proto.node, names)
            return {i for i, name in enumerate(self.exits) if name in depending}

        count = len(self.entries)
        by_state = [reached(name) for name in self.entries]
        depending = {i for i in range(count) if self._node.wants(self._first + i)} | reached(*others)
        needed = {i for i, dy in enumerate(self._incoming) if dy is not None}
        for _ in range(count):
            depending = depending.union(*(by_state[i] for i in depending if i < count))
            needed |= {i for i, ends in enumerate(by_state) if not needed.isdisjoint(ends)}
        return [i for i in range(count) if i in depending and i in needed]

    def _summed_later(self) -> tuple[dict[str, _Total], list[str]]:
        """The totals by names of outer tensors, and the names of all of their operands."""
        named = ((name, self._found[name]) for name in self._body.captured if name in self._found)
        totals = {name: total for name, dy in named if (total := _Total.of(self._body, name, dy)) is not None}
        # A sum over axes is as cheap to add up in each iteration, unless the tensor is an operand of a product anyway.
        shared = {name for total in totals.values() if len(total.operands) > 1 for name in total.operands}
        totals = {name: total for name, total in totals.items() if shared.issuperset(total.operands)}
        return totals, list(dict.fromkeys(name for total in totals.values() for name in total.operands))

    def starts(self, finals: Sequence[str]) -> list[str]:
        """Names of the first states: the gradients of the final states, the tensors `finals`, and zeros for sums."""
        states = [self._incoming[i] or self._graph.zeros(finals[i]) for i in self.carried]
        return [*states, *map(self._graph.zeros, self.summed)]

    def by_name(self, outputs: Sequence[str]) -> dict[str, Part]:
        """The gradients that are needed by tensor name, summed for a tensor that the node reads as several inputs."""
        graph, node = self._graph, self._node
        names = [*(node.inputs[self._first + i] for i in self.carried), *self.summed]
        names += [node.inputs[self._body.inputs.index(name)] for name in self.scanned]
        parts = list(zip(names, outputs, strict=False))
        stacks = dict(zip(self.rows, outputs[len(names) :], strict=True)) if outputs else {}
        parts += [
            (name, total.sum(graph, [stacks[operand] for operand in total.operands]))
            for name, total in self._totals.items()
        ]
        by_tensor: dict[str, list[str]] = {}
        for name, part in parts:
            by_tensor.setdefault(name, []).append(part)
        wanted = [name for i, name in enumerate(node.inputs) if node.wants(i)]
        gradients: dict[str, Part] = dict.fromkeys([*wanted, *node.captured], _NOTHING)
        return gradients | {name: graph.total(terms) for name, terms in by_tensor.items() if name in gradients}


@dataclass(frozen=True)
class _FlatTape:
    """The values of a state of a Loop at the start of each iteration, flattened, because its shape may change.

    elements: all values, [n]. starts: the index of each iteration's first one, [iterations]. shapes: [iterations, rank].
    """

    elements: str
    starts: str
    shapes: str


def _taped(
    graph: GradientGraph, node: Node, body: Subgraph, stacked: Sequence[str], flattened: Sequence[str] = ()
) -> tuple[list[str], dict[str, str], dict[str, _FlatTape]]:
    """Add outputs to a Loop or a Scan, with the values of tensors of its body in each iteration.

    The tensors have the names that they have in the copy `body`. The shape of those in `flattened`, states of a Loop, may
    change. Returns the names of the node's own outputs, omitted ones included, and the new outputs by tensor.
    """
    other = copy.deepcopy(node.proto)
    other.output[:] = [name or graph.name("state") for name in other.output]
    finals = list(other.output)
    inner = next(attribute.g for attribute in other.attribute if attribute.name == "body")
    inside = (
        {name for inner_node in inner.node for name in inner_node.output}
        if node.proto.op_type == "Loop" or graph.is_new(node.proto)
        else set()
    )
    first: list[onnx.NodeProto] = []

    def new_node(nodes: list[onnx.NodeProto], op_type: str, *inputs: str, **attributes: Any) -> str:
        output = graph.name(op_type)
        nodes.append(onnx.helper.make_node(op_type, inputs, [output], name=output, **attributes))
        return output

    def stack(op_type: str, *inputs: str) -> str:
        """Add a scan output and return the name of the node's output."""
        nodes: list[onnx.NodeProto] = []
        # What a Loop computes, and is no output of it yet, can be one as it is. ONNX Runtime's Scan would compute it in the
        # memory of the stacked tensor, whose other alignment changes the last bits of vectorized functions; a new one may.
        is_free = op_type == "Identity" and inputs[0] in inside.difference(value.name for value in inner.output)
        inner.output.add(name=inputs[0] if is_free else new_node(nodes, op_type, *inputs))
        inner.node.extend(nodes)
        other.output.append(graph.name("tape"))
        return str(other.output[-1])

    def flat_tape(place: int, states: int) -> _FlatTape:
        """Add a state that holds the elements of another state in all iterations so far."""
        entry, after = inner.input[place].name, inner.output[place - 1].name
        line = onnx.numpy_helper.from_array(np.array([-1]))
        start = new_node(first, "Reshape", node.inputs[place], new_node(first, "Constant", value=line))
        so_far = inner.input.add(name=graph.name("line")).name
        nodes: list[onnx.NodeProto] = []
        elements = new_node(nodes, "Reshape", after, new_node(nodes, "Constant", value=line))
        longer = new_node(nodes, "Concat", so_far, elements, axis=0)
        sizes = [new_node(nodes, "Size", name) for name in (so_far, entry)]
        inner.node.extend(nodes)
        other.input.append(start)
        outputs = list(inner.output)
        assign(inner.output, [*outputs[: states + 1], onnx.ValueInfoProto(name=longer), *outputs[states + 1 :]])
        whole = graph.name("line")
        other.output.insert(states, whole)
        return _FlatTape(whole, stack("Sub", *sizes), stack("Shape", entry))

    tape = {}
    entries = [value for name, value in zip(body.inputs, inner.input, strict=True) if name in {*stacked, *flattened}]
    for entry in entries:
        if entry.type.WhichOneof("value") not in (None, "tensor_type"):
            raise ValueError(f"{node} has no gradient: the input {entry.name!r} of its body must be a tensor")
    for name in stacked:
        tape[name] = stack("Shape" if name in body.shapes else "Identity", body.originals[name])
    states = len(node.inputs) - 2
    flat_tapes = {name: flat_tape(body.inputs.index(name), states + i) for i, name in enumerate(flattened)}
    for attribute in other.attribute:
        if attribute.name in ("scan_output_axes", "scan_output_directions"):
            attribute.ints.extend(len(stacked) * [0])
    graph.replace(node.proto, [*first, other])
    return finals, tape, flat_tapes


def _kept(body: Subgraph, ends: Sequence[str]) -> list[str]:
    """The tensors of an iteration that are stored, or whose shapes are, rather than computed again, if `ends` need them.

    Storing a tensor means copying it twice. It is not done if computing it again would only move elements, or if a nested
    loop is computed again for its states.
    """
    nodes = [node for node in body.graph.proto.node if body.graph.replaced.keys().isdisjoint(node.output)]
    producers = {name: node for node in nodes for name in node.output if name in body.originals}
    by_rules = {name for node in body.graph.needed(ends) for name in input_names(node)}.union(ends)
    stored, by_shape = [], body.read_by_shape_alone(ends)
    for name in (name for name in producers if name in by_rules and name not in body.outputs[:1]):
        waiting, costs = [name], False
        while waiting and not costs:
            node = producers.get(waiting.pop())
            if node is not None and node.output[0] not in body.given:
                costs = node.op_type not in _MOVES
                waiting += input_names(node)
        if not costs:
            continue
        if name in by_shape:
            body.shapes[name] = body.new_input("shape")
        elif body.is_fixed(name):
            body.given[name] = body.graph.name("unused")
        else:
            continue
        stored.append(name)
        by_shape = body.read_by_shape_alone(ends)
    return stored


_MOVES = {
    "Constant", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Shape", "Size", "Slice", "Split", "Squeeze",
    "Transpose", "Unsqueeze",
}  # fmt: skip
"""Operators that move elements at most."""


@dataclass(frozen=True)
class _Total:
    """How to sum the gradient of an outer tensor over all iterations once they are done.

    This takes much less time than adding up tensors with the shape of the outer tensor in each iteration: it may be a large
    weight, or a whole tensor of which each iteration reads a slice. It needs memory for the operands of all iterations.

    operands: names of tensors of an iteration, whose shapes are the same in each. sum: from the graph and these tensors,
    stacked along a new first axis, to the sum of the gradient.
    """

    operands: Sequence[str]
    sum: Callable[[GradientGraph, Sequence[str]], str]

    @classmethod
    def of(cls, body: Subgraph, name: str, gradient: str) -> _Total | None:
        """The total of a `gradient` with respect to `name`; None if it has to be added up in each iteration."""
        node = body.graph.producer(gradient)
        while node is not None and node.op_type == "Reshape":
            node = body.graph.producer(node.input[0])
        if node is None or normalize_domain(node.domain):
            return None
        if node.op_type in ("Add", "Sum"):
            terms = [cls.of(body, name, term) for term in node.input]
            return None if None in terms else cls._of_terms([term for term in terms if term is not None])
        attributes = NodeView(node).attributes
        operands = list(node.input)
        numbers: list[Length] = []  # without iterations, a Loop in ONNX Runtime takes other lengths for 0
        lengths = [body.graph.lengths(operand) or [] for operand in operands]
        if node.op_type == "Gemm" and len(operands) == 2 and {**_GEMM, **attributes} == {**_GEMM, "transA": 1}:
            whole = [_flattened(body, operand) for operand in operands]
            lengths = [body.graph.lengths(tensor) or [] for tensor in whole]
            ranks = list(map(len, lengths))

            def product(graph: GradientGraph, stacks: Sequence[str]) -> str:
                rows = [graph.op("Flatten", stack, axis=rank) for stack, rank in zip(stacks, ranks, strict=True)]
                return graph.reshaped(graph.op("Gemm", *rows, transA=1), name)

            total = cls(whole, product)
            numbers = [shape[-1] for shape in lengths if shape]
        elif node.op_type == "ReduceSum" and attributes == {"keepdims": 0} and len(operands) == 2:
            axes = body.graph.constant(operands[1])
            if axes is None or (axes < 0).any():
                return None
            stacked_axes = [0, *(int(axis) + 1 for axis in axes)]
            total = cls(
                operands[:1],
                lambda graph, stacks: graph.reshaped(
                    graph.op("ReduceSum", stacks[0], graph.ints(stacked_axes), keepdims=0), name
                ),
            )
            numbers = [length for axis, length in enumerate(lengths[0]) if axis not in axes]
        elif node.op_type == "ScatterElements" and attributes == {"axis": 0, "reduction": b"add"}:
            flat = [body.graph.producer(operand) for operand in operands]
            if any(
                producer is None or producer.op_type != kind for producer, kind in zip(flat, _SCATTERED, strict=True)
            ):
                return None
            sources = [producer.input[0] for producer in flat[1:] if producer is not None]
            total = cls(sources, lambda graph, stacks: scatter_added(graph, name, *stacks))
        else:
            return None
        is_known = all(isinstance(length, int) for length in numbers) and all(map(body.is_fixed, total.operands))
        return total if is_known else None

    @classmethod
    def _of_terms(cls, terms: Sequence[_Total]) -> _Total:
        def whole(graph: GradientGraph, stacks: Sequence[str]) -> str:
            rest = iter(stacks)
            return graph.total([term.sum(graph, [next(rest) for _ in term.operands]) for term in terms])

        return cls([operand for term in terms for operand in term.operands], whole)


_GEMM = {"alpha": 1.0, "transA": 0, "transB": 0}
"""The defaults of Gemm; without C there is no beta to mind."""

_SCATTERED = ("Expand", "Reshape", "Reshape")
"""The operators that compute the inputs of ScatterElements in `scatter_added`: zeros, flat indices and flat values."""


def _flattened(body: Subgraph, matrix: str) -> str:
    """The tensor whose rows along its last axis are those of a matrix."""
    node = body.graph.producer(matrix)
    if node is None or node.op_type != "Flatten" or (lengths := body.graph.lengths(node.input[0])) is None:
        return matrix
    return str(node.input[0]) if [attribute.i for attribute in node.attribute] == [len(lengths) - 1] else matrix
