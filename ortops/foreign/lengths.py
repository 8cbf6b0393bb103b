# SPDX-License-Identifier: MIT
"""The lengths of axes in a graph, and the integers computed from them, without the graph's inputs.

Exporters write shapes as nodes: Shape, Gather, Mul, Concat and others. Here a length that the graph leaves open is a random
number of 64 bits, and the nodes compute with it. Two expressions that give the same number are then equal for all inputs,
but for a chance of about 1 in 2**60, since sums and products are polynomials (the lemma of Schwartz and Zippel).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ortops.foreign.protos import attribute, normalize_domain

Values = np.ndarray[Any, Any]
"""Integers of any size: an array of dtype object."""

_MOST_BYTES = 4096
"""The size of the largest tensor that is read for the integers and factors in it."""

_SAME_SHAPE = {"Cast", "CastLike", "Identity", "LayerNormalization", "Relu", "Sigmoid", "Softmax"}
_BROADCAST = {"Add", "Div", "Mul", "Sub"}


def is_open(length: int) -> bool:
    """Whether a length depends on the graph's inputs."""
    return abs(length) >= 1 << 40


def constant_tensors(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """The initializers, and the tensors of Constant nodes, by name."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and isinstance(value := attribute(node, "value"), onnx.TensorProto):
            tensors[node.output[0]] = value
    return tensors


def small_constants(graph: onnx.GraphProto) -> dict[str, np.ndarray[Any, Any]]:
    """The values of small initializers and Constant nodes, by name."""
    constants = dict[str, np.ndarray[Any, Any]]()
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[:1] and node.attribute[0].name.startswith(_NUMBERS):
            constants[node.output[0]] = np.array(onnx.helper.get_attribute_value(node.attribute[0]))
    for name, tensor in constant_tensors(graph).items():
        if tensor.ByteSize() <= _MOST_BYTES and tensor.data_location != onnx.TensorProto.EXTERNAL:
            constants[name] = onnx.numpy_helper.to_array(tensor)
    return constants


_NUMBERS = ("value_int", "value_float")
"""What the names of attributes begin with that are numbers."""


class Lengths:
    """Shapes and integers of a graph's tensors, by name: `shapes` and `values`. Those that are unknown are missing.

    Args:
        graph: the graph, with nodes in topological order.
        constants: its small constants.
        ranks: numbers of axes of tensors whose shape the graph may not tell.
    """

    def __init__(
        self, graph: onnx.GraphProto, constants: Mapping[str, np.ndarray[Any, Any]], ranks: Mapping[str, int]
    ) -> None:
        self.shapes = {name: tuple(tensor.dims) for name, tensor in constant_tensors(graph).items()}
        self.shapes |= {name: value.shape for name, value in constants.items()}
        self.values: dict[str, Values] = {
            name: value.astype(object) for name, value in constants.items() if value.dtype.kind in "iu"
        }
        self._random = random.Random(0)  # noqa: S311  # not a secret
        self._ranks = ranks
        self._declared = {
            value.name: value.type.tensor_type.shape.dim
            for value in (*graph.input, *graph.value_info)
            if value.type.tensor_type.HasField("shape")
        }
        self._parameters: dict[str, int] = {}
        self._unsqueezed: dict[str, str] = {}
        self._scalars: dict[str, Values] = {}
        for value in graph.input:
            self._know(value.name, None)
        for node in graph.node:
            if not normalize_domain(node.domain) and node.op_type != "Constant":
                # ONNX Runtime reports a node that breaks its operator's rules.
                with contextlib.suppress(IndexError, TypeError, ValueError, ZeroDivisionError):
                    self._read(node)
            for name in node.output:
                if name in ranks and name not in self.shapes:
                    self._know(name, None)

    def _new(self) -> int:
        return self._random.getrandbits(63) | 1 << 63

    def _know(self, name: str, shape: Sequence[int] | None) -> None:
        """Set a tensor's shape: numbers that the graph declares, then `shape`, then other open lengths."""
        declared = self._declared.get(name, ())
        rank = len(shape) if shape is not None else len(declared) or self._ranks.get(name, 0)
        lengths = list(shape) if shape is not None else [self._new() for _ in range(rank)]
        for axis, dim in enumerate(declared if len(declared) == rank else ()):
            if dim.dim_value > 0:
                lengths[axis] = dim.dim_value
            elif dim.dim_param and shape is None:
                lengths[axis] = self._parameters.setdefault(dim.dim_param, lengths[axis])
        if rank:
            self.shapes[name] = tuple(lengths)

    def _read(self, node: onnx.NodeProto) -> None:
        """Compute the shapes and the integers of a node's outputs."""
        values = [self.values.get(name) for name in node.input]
        if (value := self._value(node, values)) is not None:
            self.values[node.output[0]], self.shapes[node.output[0]] = value, value.shape
        else:
            for output, name in enumerate(node.output):
                self._know(name, self._shape(node, values, output))

    def _value(self, node: onnx.NodeProto, values: list[Values | None]) -> Values | None:
        """The integers of a node's output; None if they are unknown."""
        op, first = node.op_type, values[0] if values else None
        if op == "Shape" and node.input[0] in self.shapes:
            part = self.shapes[node.input[0]][attribute(node, "start", 0) : attribute(node, "end")]
            return np.array(part, object)
        if op == "Unsqueeze" and first is None and _axes(node, values) == [0]:
            self._unsqueezed[node.output[0]] = node.input[0]
        if op == "Concat" and any(value is not None and value.ndim == 1 for value in values):
            # What is joined with lengths is a length.
            values = [
                self._length(name) if value is None else value for name, value in zip(node.input, values, strict=True)
            ]
            first = values[0]
        known = [value for value in values if value is not None]
        if first is None or len(known) < len(values):
            return None
        if op == "Unsqueeze" and first.size == 1:
            return first.reshape(-1)
        if op == "Mul":
            return np.asarray(first * known[1], object)
        if op == "Concat":
            return np.concatenate(known)
        if op == "Gather" and first.ndim == 1:
            return np.asarray(first[known[1].astype(int)], object)
        if op == "Slice" and first.ndim == 1:
            start, end, _, step = ([int(value[0]) for value in known[1:]] + [1])[:4]
            return None if is_open(start) else first[start:end:step]
        return None

    def _length(self, name: str) -> Values | None:
        """An open length as a tensor [1] if it is one number that the nodes compute from data."""
        scalar = self._unsqueezed.get(name, name if self.shapes.get(name) == (1,) else None)
        return None if scalar is None else self._scalars.setdefault(scalar, np.array([self._new()], object))

    def _shape(self, node: onnx.NodeProto, values: Sequence[Values | None], output: int) -> Sequence[int] | None:
        """The shape of an output of a node; None if it is unknown."""
        op, shapes = node.op_type, [self.shapes.get(name) for name in node.input]
        first = shapes[0] if shapes else None
        if op == "Reshape" and values[1] is not None:
            return self._reshaped(first, values[1].tolist(), attribute(node, "allowzero", 0))
        known = [shape for shape in shapes if shape is not None]
        if op in _BROADCAST and len(known) == len(shapes):
            return self._broadcast(known)
        if op == "MatMul" and len(known) == 2 and min(map(len, known)) > 1:
            return [*self._broadcast([shape[:-2] for shape in known]), known[0][-2], known[1][-1]]
        if first is None:
            return None
        axis = attribute(node, "axis", 0)
        if op in _SAME_SHAPE and output == 0:
            return first
        if op == "Transpose":
            return [first[axis] for axis in attribute(node, "perm")]
        if op == "Unsqueeze" and (axes := _axes(node, values)) is not None:
            rank, rest = len(first) + len(axes), iter(first)
            new = {axis % rank for axis in axes}
            return [1 if axis in new else next(rest) for axis in range(rank)]
        lengths, operand = list(first), values[1] if len(values) > 1 else None
        if op == "Gather" and operand is not None and operand.ndim == 0:
            del lengths[axis]
            return lengths
        if op == "Split":
            lengths[axis] = self._new() if operand is None else operand[output]
            return lengths
        if op == "Slice" and (cut := values[3]) is not None and len(cut) == 1:
            lengths[cut[0]] = self._new()
            return lengths
        if op == "Concat" and len(known) == len(shapes):
            lengths[axis] = sum(shape[axis] for shape in known)
            return lengths
        if op == "GridSample" and shapes[1] is not None:
            return (*first[:2], *shapes[1][1:-1])
        return None

    def _broadcast(self, shapes: Sequence[Sequence[int]]) -> list[int]:
        """The shape that operands of these shapes broadcast to; either of two open lengths may be 1."""
        shape = list[int]()
        for lengths in itertools.zip_longest(*map(reversed, shapes), fillvalue=1):
            others = {*lengths} - {1}
            fixed = [length for length in others if not is_open(length)]
            shape.append(fixed[0] if fixed else self._new() if len(others) > 1 else next(iter(others), 1))
        return shape[::-1]

    def _reshaped(self, shape: Sequence[int] | None, target: list[int], allowzero: int) -> Sequence[int]:
        for axis, length in enumerate(target):
            if length == 0 and not allowzero:
                target[axis] = self._new() if shape is None else shape[axis]
        if -1 in target:
            others, count = -math.prod(target), math.prod(shape or ())
            target[target.index(-1)] = count // others if shape is not None and count % others == 0 else self._new()
        return target


def _axes(node: onnx.NodeProto, values: Sequence[Values | None]) -> list[int] | None:
    axes = values[1].tolist() if len(values) > 1 and values[1] is not None else attribute(node, "axes")
    return None if axes is None else list(axes)
