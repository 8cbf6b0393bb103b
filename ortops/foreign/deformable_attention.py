# SPDX-License-Identifier: MIT
"""Finds deformable attention written in standard nodes, as PyTorch exports it, and puts MSDeformAttn in its place.

The standard nodes of one attention, for L levels, M heads and P points:

    value [N, S, M, D]  --Slice or Split-->  [N, H*W, M, D]  --Reshape, Transpose, Reshape-->  X [N*M, D, H, W]
    locations [N, Q, M, L, P, 2]  --*2, -1, Gather, Transpose, Reshape-->  grid [N*M, Q, P, 2]
    GridSample (X, grid) of each level  --Unsqueeze, Concat, Reshape or Concat alone-->  [N*M, D, Q, L*P]
    weights [N, Q, M, L, P]  --Transpose, Reshape-->  [N*M, 1, Q, L*P]
    Mul  --ReduceSum-->  [N*M, D, Q]  --Reshape-->  [N, M*D, Q]  --Transpose-->  Y [N, Q, M*D]

In the variants, value is cut as [N, S, M*D], [N*M, D, S] or [N, M, D, S], and locations [N, Q, M, L*P, 2] are split after
the Reshape, also into different numbers of points. Where an optimizer has folded them, the weights [N*M, 1, Q, L*P], or the
grids [N*M, Q, P, 2] of all levels, are constants. Anything else stays as it is. Shapes that depend on the graph's inputs
may be equal without a proof; MSDeformAttn then compares them when it runs.

Source: Deformable DETR (models/ops/functions/ms_deform_attn_func.py, ms_deform_attn_core_pytorch), mmcv
(multi_scale_deformable_attn_pytorch), transformers 5, RT-DETRv2 and D-FINE, as PyTorch 2.13 exports them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ortops.foreign.lengths import Lengths, Values, constant_tensors, is_open, small_constants
from ortops.foreign.protos import attribute, import_domain, normalize_domain, unused_name
from ortops.spec import DOMAIN_VERSION


def fuse(model: onnx.ModelProto, domain: str) -> int:
    """Put a MSDeformAttn node of `domain` in place of each deformable attention in a model's graph; return their number."""
    graph, search = model.graph, _Search(model.graph)
    candidates = [search.attention(index, node) for index, node in enumerate(graph.node)]
    attentions = [attention for attention in candidates if attention is not None]
    if not attentions:
        return 0
    ranks = {name: rank for attention in attentions for name, rank in attention.ranks if name}
    lengths = Lengths(graph, search.constants, ranks)
    added = {each.last: each.nodes(search, lengths, domain) for each in attentions if each.fits(lengths)}
    if added:
        needed, read = search.needed(added)
        nodes = [(*added.get(i, ()), *((node,) if i in needed else ())) for i, node in enumerate(graph.node)]
        kept = [node for group in nodes for node in group]
        del graph.node[:]
        graph.node.extend(kept)
        read.update(value.name for value in graph.input)
        for index in reversed(range(len(graph.initializer))):
            if graph.initializer[index].name not in read:
                del graph.initializer[index]
        import_domain(model, domain, DOMAIN_VERSION)
    return len(added)


@dataclass(frozen=True, slots=True)
class _Level:
    """How X of a level is cut from the value.

    source: the tensor that is cut. flat: the input of the last Reshape. target: the shape that this gets.
    way: "Slice", "Split" or "" if the level is the whole value; the axis; the number of nodes that exchange pixels and
        channels later: Reshape and Transpose, Transpose alone, or none.
    place: the start of Slice, or the output of Split and the number of outputs.
    """

    source: str
    flat: str
    target: str
    way: tuple[str, int | None, int]
    place: Any


@dataclass(frozen=True, slots=True)
class _Attention:
    """One deformable attention.

    last: the index of its last node, the Transpose.
    value, heads_axis: the value before it is cut, [N, S, M, D]; [N, M, D, S] if heads_axis is 1; [N, S, M*D] if it is 0.
    locations, points: [N, Q, M, L, P, 2], or [N, Q, M, sum of points, 2] if points has a number for each level; "" if the
        grids are constants.
    weights, rank: [N, Q, M, L, P], or [N, Q, M, sum of points] if rank is 4; "" if `weighted` is a constant.
    grids, weighted, sampled, summed: tensors after Reshape, whose shapes are checked.
    """

    last: int
    levels: Sequence[_Level]
    value: str
    heads_axis: int
    locations: str
    points: Sequence[int]
    grids: Sequence[str]
    weights: str
    rank: int
    weighted: str
    sampled: str
    summed: str

    @property
    def ranks(self) -> list[tuple[str, int]]:
        """The numbers of axes of its inputs."""
        return [
            (self.value, 4 if self.heads_axis else 3),
            (self.locations, 5 if self.points else 6),
            (self.weights, self.rank),
        ]

    def _inputs(self, lengths: Lengths) -> list[tuple[int, ...]]:
        """The shapes of value, locations and weights; () if a shape is unknown."""
        value, locations, weights = (lengths.shapes.get(name, ()) for name, _ in self.ranks)
        if self.locations and self.weights:
            return [value, locations, weights]
        target = lengths.values.get(self.levels[0].target, np.zeros(2, object)).tolist()
        heads = value[self.heads_axis] if self.heads_axis and value else value[-1] // target[1] if target[1] else 0
        grid, weighted = (lengths.shapes.get(name, (0,)) for name in (self.grids[0], self.weighted))
        if heads < 1 or is_open(heads) or any(shape[0] % heads for shape in (grid, weighted)):
            return [(), (), ()]
        if not self.locations:
            locations = (grid[0] // heads, grid[1], heads, len(self.levels), *grid[2:])
        if not self.weights:
            weights = (weighted[0] // heads, weighted[2], heads, weighted[3])
        return [value, locations, weights]

    def fits(self, lengths: Lengths) -> bool:
        """Whether the shapes are those of deformable attention, as far as the graph tells them.

        MSDeformAttn compares the shapes of its inputs. So their lengths may stand for each other, and where a Reshape keeps
        the number of elements, one length of its output follows from the others.
        """
        shapes = lengths.shapes
        value, locations, weights = self._inputs(lengths)
        targets = [lengths.values.get(level.target, np.zeros(0, object)) for level in self.levels]
        if [len(shape) for shape in (value, locations, weights)] != [rank for _, rank in self.ranks]:
            return False
        if any(target.shape != (4,) or min(target[2:]) < 1 for target in targets):
            return False
        depth = value[self.heads_axis + 1] if self.heads_axis else targets[0][1]
        batches, queries = {value[0], locations[0], weights[0]}, {locations[1], weights[1]}
        heads = {locations[2], weights[2]} | ({value[self.heads_axis]} if self.heads_axis else set())
        counts, points = {len(self.levels)}, set[int]()
        totals = {sum(self.points), locations[3]} if self.points else set[int]()
        if not self.points:
            counts, points = counts | {locations[3]}, {locations[4]}
        if self.rank == 5:
            counts, points = counts | {weights[3]}, points | {weights[4]}
        totals |= {weights[3]} if self.rank == 4 else set()
        totals |= {count * size for count in counts for size in points} if not self.points else set()
        rows, maps = {depth * m for m in heads}, {n * m for n in batches for m in heads}
        if not self.heads_axis and (value[2] not in rows or all(map(is_open, heads))):
            return False
        first, channels, last = shapes.get(self.summed, (0, 0, 0))
        return (
            all(map(_agree, (batches, heads, queries, counts, points, totals)))
            and all(target[1] == depth for target in targets)
            and all(
                self._fits_level(*pair, lengths, batches, maps, rows) for pair in zip(self.levels, targets, strict=True)
            )
            and all(
                _ends(shapes.get(grid), queries, totals if self.points else points, {2, locations[-1]})
                for grid in self.grids
            )
            and _ends(shapes.get(self.weighted), {1}, queries, totals)
            and _ends(shapes.get(self.sampled), {depth}, queries, totals)
            and (last in queries and (first in batches or channels in rows))
        )

    def _fits_level(
        self, level: _Level, target: Values, lengths: Lengths, batches: set[int], maps: set[int], rows: set[int]
    ) -> bool:
        flat = lengths.shapes.get(level.flat, ())
        if level.way[2]:
            return len(flat) == 3 and (flat[0] in batches) + (flat[1] in rows) + (flat[2] == target[2] * target[3]) > 1
        return len(flat) == 4 if self.heads_axis == 1 else _ends(flat, {target[1]}, {flat[-1]}) and flat[0] in maps

    def nodes(self, search: _Search, lengths: Lengths, domain: str) -> list[onnx.NodeProto]:
        """The nodes that compute the output of the Transpose."""
        last, count, points = search.nodes[self.last], len(self.levels), max(self.points, default=0)
        graph = _Nodes(last.output[0], search.names)
        value = self.value if self.heads_axis != 1 else graph.op("Transpose", self.value, perm=[0, 3, 1, 2])
        _, locations_shape, weights_shape = self._inputs(lengths)
        heads = min(locations_shape[2], weights_shape[2])
        if not self.heads_axis:
            value = graph.op("Reshape", value, graph.constant([0, 0, heads, -1]))
        locations = graph.op("CastLike", self._locations(graph, search, lengths), value)
        weights = self.weights or graph.weights(self.weighted, weights_shape)
        if len(set(self.points)) > 1:
            # Additional points are off the map, and have the weight 0.
            total, firsts = sum(self.points), np.cumsum([0, *self.points[:-1]])
            order = [
                first + i if i < size else total
                for first, size in zip(firsts, self.points, strict=True)
                for i in range(points)
            ]
            places, off_map = graph.constant(order), graph.op("CastLike", graph.constant(np.float32(2)), value)
            locations = graph.op("Pad", locations, graph.constant([0] * 8 + [1, 0]), off_map)
            locations = graph.op("Gather", locations, places, axis=3)
            weights = graph.op("Gather", graph.op("Pad", weights, graph.constant([0] * 7 + [1])), places, axis=3)
        if points:
            locations = graph.op("Reshape", locations, graph.constant([0, 0, 0, count, points, 2]))
        if self.rank == 4:
            weights = graph.op("Reshape", weights, graph.constant([0, 0, 0, count, points or -1]))
        inputs = [value, *self._maps(graph, lengths), locations, weights]
        graph.added.append(onnx.helper.make_node("MSDeformAttn", inputs, last.output, last.name, domain=domain))
        return graph.added

    def _locations(self, graph: _Nodes, search: _Search, lengths: Lengths) -> str:
        """The locations. Reference points and normalizers get the axes of heads and points before the sum and the division.

        ONNX Runtime broadcasts [N, Q, 1, L, 1, 2] and [1, 1, 1, L, 1, 2] two numbers at a time. Encoders have a sum and a
        division in each layer: with expanded operands a whole Deformable DETR takes 0.94 of the time.
        """
        if not self.locations:
            return graph.locations(self.grids, self._inputs(lengths)[1])
        for reference, quotient in search.operands(self.locations, "Add"):
            division = search.chain(quotient, "Div") or search.chain(quotient, "Cast", "Div")
            if division and len(lengths.shapes.get(division[-1].input[0], ())) == 6:
                offsets, normalizer = division[-1].input
                axes = graph.op("Shape", offsets, start=2, end=6)
                expanded = graph.op("Div", offsets, graph.op("Expand", normalizer, axes))
                if len(division) > 1:
                    expanded = graph.op("Cast", expanded, to=attribute(division[0], "to"))
                one, count = graph.constant([1]), graph.op("Shape", offsets, start=4, end=5)
                points = graph.op("Concat", one, count, one, axis=0)
                return graph.op("Add", graph.op("Expand", reference, points), expanded)
        return self.locations

    def _maps(self, graph: _Nodes, lengths: Lengths) -> tuple[str, str]:
        """The tensors spatial_shapes and level_start_index; "" for levels that follow each other and fill the value."""
        sizes = [lengths.values[level.target][2:] for level in self.levels]
        if not any(is_open(length) for size in sizes for length in size):
            shapes = graph.constant(np.array(sizes))
        else:
            joined = graph.op("Concat", *(level.target for level in self.levels), axis=0)
            rows = graph.op("Reshape", joined, graph.constant([len(self.levels), 4]))
            shapes = graph.op("Gather", rows, graph.constant([2, 3]), axis=1)
        if self.levels[0].way[0] != "Slice":
            return shapes, ""
        starts = graph.op("Concat", *(level.place for level in self.levels), axis=0)
        return shapes, graph.op("Cast", starts, to=onnx.TensorProto.INT64)


def _agree(lengths: Iterable[int]) -> bool:
    """Whether lengths may be equal: at most one of them does not depend on the graph's inputs."""
    return len({length for length in lengths if not is_open(length)}) <= 1


def _ends(shape: Sequence[int] | None, *lengths: set[int]) -> bool:
    """Whether each length of a shape after the first one is one of those that it may be."""
    return (
        bool(shape) and len(shape or ()) == len(lengths) + 1 and all(map(set.__contains__, lengths, (shape or ())[1:]))
    )


class _Nodes:
    """Makes nodes whose outputs have new names: `added`."""

    def __init__(self, base: str, names: set[str]) -> None:
        self.added: list[onnx.NodeProto] = []
        self._base, self._names = base, names

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = unused_name(f"{self._base}/{op_type}", self._names)
        self.added.append(onnx.helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def locations(self, grids: Sequence[str], shape: Sequence[int]) -> str:
        """The locations of constant grids [N*M, Q, P, 2], whose shape is [N, Q, M, L, P, 2]."""
        joined = self.op("Concat", *grids, axis=2)
        half, one = (self.op("CastLike", self.constant(np.float32(number)), joined) for number in (0.5, 1))
        rows = self.op("Reshape", self.op("Mul", self.op("Add", joined, one), half), self.heads_first(shape))
        return self.op("Transpose", rows, perm=[0, 2, 1, 3, 4, 5])

    def weights(self, constant: str, shape: Sequence[int]) -> str:
        """The weights of a constant [N*M, 1, Q, L*P], whose shape is [N, Q, M, L*P]."""
        return self.op("Transpose", self.op("Reshape", constant, self.heads_first(shape)), perm=[0, 2, 1, 3])

    def heads_first(self, shape: Sequence[int]) -> str:
        """The shape [N, Q, M, ...] with M before Q, as a constant."""
        batch, queries, heads, *rest = shape
        return self.constant([batch, heads, queries, *rest])

    def constant(self, value: Any) -> str:
        array = np.array(value, np.float32 if isinstance(value, np.float32) else np.int64)
        return self.op("Constant", value=onnx.numpy_helper.from_array(array))


class _Search:
    """Walks over a graph's nodes from their outputs to their inputs.

    kept: names of the graph's outputs, and of tensors that subgraphs read.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.nodes, self.constants = list(graph.node), small_constants(graph)
        self._ranks = {name: len(tensor.dims) for name, tensor in constant_tensors(graph).items()}
        self.kept = {value.name for value in graph.output}
        self._producers: dict[str, int] = {}
        self._readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for index, node in enumerate(self.nodes):
            self._producers |= dict.fromkeys(node.output, index)
            for name in node.input:
                self._readers[name].append(node)
            self.kept.update(_names_read(node))
        self.names = {*self._producers, *self._readers, *self.kept, *(tensor.name for tensor in graph.initializer)}

    def needed(self, added: Mapping[int, Sequence[onnx.NodeProto]]) -> tuple[set[int], set[str]]:
        """The nodes, by index, and the tensors that the outputs depend on, with added nodes in place of others."""
        needed, names, seen = set[int](), set(self.kept), set[str]()
        while names:
            name = names.pop()
            if name in seen:
                continue
            seen.add(name)
            index = self._producers.get(name)
            if index is None:
                continue
            if index not in added:
                needed.add(index)
            names.update(read for node in added.get(index, self.nodes[index : index + 1]) for read in node.input)
        return needed, seen

    def chain(self, name: str, *op_types: str) -> list[onnx.NodeProto]:
        """The node that computes a tensor, the one that computes its first input, and so on, if of these operators."""
        nodes = list[onnx.NodeProto]()
        for op_type in op_types:
            node = self.nodes[self._producers.get(name, 0)]
            if name not in node.output or node.op_type != op_type or normalize_domain(node.domain):
                return []
            nodes.append(node)
            name = node.input[0]
        return nodes

    def operands(self, name: str, op_type: str) -> list[tuple[str, str]]:
        """The two inputs of the node that computes a tensor, in both orders; none if it is of another operator."""
        return [(a, b) for node in self.chain(name, op_type) for a, b in (node.input, node.input[::-1])]

    def _ints(self, node: onnx.NodeProto, index: int, name: str = "") -> list[int] | None:
        """Constant integers of a node, from an input or an attribute."""
        if len(node.input) <= index:
            return list(attribute(node, name, ())) or None
        value = self.constants.get(node.input[index])
        return None if value is None else list(value.reshape(-1).tolist())

    def _is_private(self, name: str) -> bool:
        """Whether one node alone reads a tensor, beside nodes that read its shape."""
        return sum(node.op_type != "Shape" for node in self._readers[name]) == 1 and name not in self.kept

    def attention(self, index: int, node: onnx.NodeProto) -> _Attention | None:
        """The deformable attention that ends with a node."""
        if node.op_type != "Transpose" or attribute(node, "perm") != [0, 2, 1]:
            return None
        chain = self.chain(node.output[0], "Transpose", "Reshape", "ReduceSum", "Mul")
        if not chain or not all(self._is_private(inner.output[0]) for inner in chain[1:]):
            return None
        _, summed, total, product = chain
        if attribute(total, "keepdims", 1) or self._ints(total, 1, "axes") not in ([-1], [3]):
            return None
        for sampled, weighted in (product.input, product.input[::-1]):
            samples, chain = self._samples(sampled), self.chain(weighted, "Reshape", "Transpose")
            weights, perm = chain[1].input[0] if chain else "", attribute(chain[1], "perm") if chain else [0, 2, 1, 3]
            is_known = bool(chain) or self._ranks.get(weighted) == 4
            if not samples or not is_known or perm not in ([0, 2, 1, 3, 4], [0, 2, 1, 3]):
                continue
            levels = [level for sample in samples if (level := self._level(sample.input[0]))]
            value = self._value(levels, len(samples))
            grids = [sample.input[1] for sample in samples]
            locations = {self._location(grid, i, len(grids)) for i, grid in enumerate(grids)}
            base, points, joined = locations.pop() if len(locations) == 1 else ("", (), "")
            if value and (base or all(self._ranks.get(grid) == 4 for grid in grids)):
                grids = [joined] if points else grids
                reshaped = (weighted, sampled, summed.output[0])
                return _Attention(index, levels, *value, base, points, grids, weights, len(perm), *reshaped)
        return None

    def _samples(self, name: str) -> list[onnx.NodeProto] | None:
        """The GridSample nodes of all levels, whose samples are joined in a tensor [N*M, D, Q, L*P]."""
        reshape = self.chain(name, "Reshape")
        parts = list(reshape[0].input[:1] if reshape else [name])
        if joined := self.chain(parts[0], "Concat"):
            if attribute(joined[0], "axis") not in ((-2, 3) if reshape else (-1, 3)):
                return None
            parts += joined[0].input
        private = [name, *parts]
        parts = parts[1:] or parts
        if reshape:
            unsqueezes = [self.chain(part, "Unsqueeze") for part in parts]
            if not all(nodes and self._ints(nodes[0], 1) in ([-2], [3]) for nodes in unsqueezes):
                return None
            parts = [nodes[0].input[0] for nodes in unsqueezes]
        samples = [node for part in parts for node in self.chain(part, "GridSample")]
        is_inner = len(samples) == len(parts) and all(map(self._is_private, (*private, *parts)))
        return samples if is_inner and all(map(_is_bilinear, samples)) else None

    def _level(self, name: str) -> _Level | None:
        """How a GridSample's X is cut from the value."""
        chain = self.chain(name, "Reshape", "Transpose", "Reshape") or self.chain(name, "Reshape", "Transpose")
        if not chain or attribute(chain[1], "perm") != [0, 2, 1]:
            chain = self.chain(name, "Reshape")
        if not chain:
            return None
        exchanged = len(chain) - 1
        piece, flat, target = chain[-1].input[0], chain[0].input[0], chain[0].input[1]
        cuts = self.chain(piece, "Split") or self.chain(piece, "Slice")
        if not cuts:
            return _Level(piece, flat, target, ("", None, exchanged), None)
        cut = cuts[0]
        if cut.op_type == "Split":
            place = (list(cut.output).index(piece), len(cut.output))
            return _Level(cut.input[0], flat, target, ("Split", attribute(cut, "axis", 0), exchanged), place)
        axes, start = self._ints(cut, 3), self.constants.get(cut.input[1], np.array(0))
        if not axes or len(axes) > 1 or start.min() < 0 or (len(cut.input) > 4 and self._ints(cut, 4) != [1]):
            return None
        return _Level(cut.input[0], flat, target, ("Slice", axes[0], exchanged), cut.input[1])

    def _value(self, levels: Sequence[_Level], count: int) -> tuple[str, int] | None:
        """The value that all levels are cut from, and the axis of its heads."""
        if len(levels) != count or len({(level.source, level.way) for level in levels}) > 1:
            return None
        source, (cut, axis, exchanged) = levels[0].source, levels[0].way
        if not cut and count > 1:
            return None
        if cut == "Split" and [level.place for level in levels] != [(i, count) for i in range(count)]:
            return None
        if exchanged:
            return (source, 2 if exchanged == 2 else 0) if axis in (1, None) else None
        flat = self.chain(source, "Reshape", "Transpose")
        if axis in (2, -1, None) and flat and attribute(flat[1], "perm") == [0, 2, 3, 1]:
            return flat[1].input[0], 2
        return (source, 1) if axis in (3, -1) else None

    def _location(self, name: str, level: int, count: int) -> tuple[str, tuple[int, ...], str]:
        """The locations of which a level's grid is 2 * locations - 1; "" if it is another grid.

        If the grids of all levels are split from one tensor, its name is the third value, and the second one the sizes.
        """
        factor, offset, steps, points, joined = 1.0, 0.0, list[str](), tuple[int, ...](), ""
        for _ in range(_MOST_STEPS):
            if (factor, offset) == (2, -1) and steps in (_GATHERED, _SPLIT):
                return name, points, joined
            node, output = self.nodes[self._producers.get(name, 0)], name
            if name not in node.output or normalize_domain(node.domain) or not node.input:
                break
            numbers, op, name = [self.constants.get(other) for other in node.input], node.op_type, node.input[0]
            if op in ("Mul", "Add") and numbers[1] is None:
                name, numbers = node.input[1], numbers[::-1]
            if op in ("Mul", "Sub", "Add"):
                number = numbers[1]
                if number is None or number.shape not in ((), (1,)):
                    break
                offset += {"Mul": 0, "Sub": -factor, "Add": factor}[op] * number.item()
                factor *= number.item() if op == "Mul" else 1
            elif op == "Split":
                points, joined = tuple(self._ints(node, 1, "split") or ()), name
                if len(points) != count or attribute(node, "axis", 0) not in (-2, 2) or node.output[level] != output:
                    break
                steps.append(op)
            elif op == "Gather":
                if attribute(node, "axis", 0) != 3 or numbers[1] is None or numbers[1].ndim or numbers[1] != level:
                    break
                steps.append(op)
            elif op == "Reshape" or (op == "Transpose" and attribute(node, "perm") == [0, 2, 1, 3, 4]):
                steps.append(op)
            elif op != "Cast" or attribute(node, "to") not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
                break
        return "", (), ""


_GATHERED, _SPLIT = ["Reshape", "Transpose", "Gather"], ["Split", "Reshape", "Transpose"]
"""The nodes between a grid and its locations, beside those that compute 2 * locations - 1."""

_MOST_STEPS = 12
"""The largest number of nodes between a grid and its locations."""


def _names_read(node: onnx.NodeProto) -> Iterator[str]:
    """All names that a node's subgraphs read."""
    for proto in node.attribute:
        for graph in (proto.g, *proto.graphs):
            yield from (value.name for value in graph.output)
            for inner in graph.node:
                yield from (*inner.input, *_names_read(inner))


def _is_bilinear(node: onnx.NodeProto) -> bool:
    """Whether a GridSample node samples as deformable attention does."""
    is_linear = attribute(node, "mode", "linear") in ("linear", "bilinear")
    return is_linear and attribute(node, "padding_mode", "zeros") == "zeros" and not attribute(node, "align_corners", 0)
