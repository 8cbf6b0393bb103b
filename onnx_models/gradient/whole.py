# SPDX-License-Identifier: MIT
"""Whole Jacobians: the backward or forward pass in the body of a Scan over the unit vectors that are its seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx

from onnx_models.gradient.graph import GradientGraph
from onnx_models.tools.protos import input_names


class Seeds:
    """The unit vectors of some tensors, one after another: number `index` is 1 at that element, and 0 elsewhere.

    With `per_sample`, there is a 1 at each index of the first axis, which is then not counted.
    """

    def __init__(self, graph: GradientGraph, names: Sequence[str], *, per_sample: bool) -> None:
        self._graph, self._first, self._ranges = graph, int(per_sample), dict[str, tuple[str, str]]()
        self.index = graph.name("seed")
        graph.declare(self.index, onnx.helper.make_tensor_type_proto(onnx.TensorProto.INT64, []).tensor_type)
        end = graph.integer(0)
        for name in names:
            size = self._size(name)
            start, end = end, graph.op("Add", end, size) if self._ranges else size
            self._ranges[name] = start, end
        self._is_one_tensor = len(names) == 1 and bool(elements(graph, names, self._first))
        # A Scan fails without iterations: tensors without elements get a row, which is not read.
        self._count = end if self._is_one_tensor else graph.op("Max", end, graph.integer(1))

    def unit(self, name: str) -> str:
        """Unit vector number `index` in the shape of a tensor: zeros if its 1 is in another tensor."""
        graph = self._graph
        places = graph.op("Range", *self._ranges[name], graph.integer(1))
        seed = graph.op("CastLike", graph.op("Equal", places, self.index), name)
        if not self._first:
            return graph.reshaped(seed, name)
        sample = graph.op("Concat", graph.ints([1]), graph.shape(name, 1), axis=0)
        return graph.op("Expand", graph.op("Reshape", seed, sample, allowzero=1), graph.shape(name))

    def scan(self, computed: Mapping[str, str]) -> dict[str, str]:
        """Compute tensors [number of seeds, elements] for all seeds. What does not depend on the seed is computed once.

        The tensors in `computed`, computed from `index`, have the keys of the result: names of tensors of their types.
        """
        graph = self._graph
        flat = {name: graph.flat(value) for name, value in computed.items()}
        inside, nodes = {self.index, *flat.values()}, []
        for node in graph.needed(flat.values()):
            if not inside.isdisjoint([*input_names(node), *node.output]):
                inside.update(node.output)
                nodes.append(node)
        entry = onnx.helper.make_tensor_value_info(self.index, onnx.TensorProto.INT64, [])
        ends = [
            onnx.helper.make_tensor_value_info(value, graph.element_type(name) or 0, [None])
            for name, value in flat.items()
        ]
        body = onnx.helper.make_graph(nodes, graph.name("body"), [entry], ends)
        numbers = graph.op("Range", graph.integer(0), self._count, graph.integer(1))
        rows = graph.ops("Scan", numbers, outputs=len(flat), body=body, num_scan_inputs=1)
        return dict(zip(flat, rows, strict=True))

    def block(self, rows: Mapping[str, str], y: str, x: str, *, by_outputs: bool) -> str:
        """The derivative of an output y by an input x, of the shape of y followed by that of x, from `rows` of `scan`.

        Per sample it lacks the first axis of x. `by_outputs` tells whether the seeds are of outputs, and not of inputs.
        """
        graph, first = self._graph, self._first
        name, of = (y, x) if by_outputs else (x, y)
        block = rows[of]
        if not self._is_one_tensor:
            start, end = (graph.op("Unsqueeze", end, graph.ints([0])) for end in self._ranges[name])
            block = graph.op("Slice", block, start, end, graph.ints([0]))
        if first:
            sizes = [graph.op("Reshape", self._size(tensor), graph.ints([1])) for tensor in (name, of)]
            lengths = graph.op("Concat", sizes[0], graph.shape(of, 0, 1), sizes[1], axis=0)
            block = graph.op("Reshape", block, lengths, allowzero=1)
        if first or not by_outputs:
            turned = {(0, 0): [1, 0], (1, 1): [1, 0, 2], (1, 0): [1, 2, 0]}[first, int(by_outputs)]
            block = graph.op("Transpose", block, perm=turned)
        shape = graph.op("Concat", graph.shape(y), graph.shape(x, first), axis=0)
        block = graph.op("Reshape", block, shape, allowzero=1)
        if graph.element_type(of) != graph.element_type(x):
            block = graph.op("CastLike", block, x)
        of_y, of_x = graph.lengths(y), graph.lengths(x)
        both = None if of_y is None or of_x is None else [*of_y, *of_x[first:]]
        graph.declare(block, onnx.helper.make_tensor_type_proto(graph.element_type(x) or 0, both).tensor_type)
        return block

    def _size(self, name: str) -> str:
        """The number of unit vectors of a tensor, int64 of rank 0."""
        known = elements(self._graph, [name], self._first)
        if known is not None:
            return self._graph.integer(known)
        return self._graph.op("ReduceProd", self._graph.shape(name, self._first), keepdims=0)


def elements(graph: GradientGraph, names: Sequence[str], first: int = 0) -> int | None:
    """The number of elements of tensors, without the axes before `first`; None if it is not known."""
    total = 0
    for name in names:
        if (lengths := graph.numbers(name, first)) is None:
            return None
        total += math.prod(lengths)
    return total
