# SPDX-License-Identifier: MIT
"""The graph that rules append the nodes of gradients to, and the nodes that are differentiated."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnx_models.gradient.tensors import Tensors
from onnx_models.tools.nodes import Length, NodeView, Value
from onnx_models.tools.protos import assign, needed
from onnx_models.tools.types import constant_attribute


class Masks:
    """By tensor name, the conditions of Where: the tensor is 0 where one of them is false.

    A derivative may be infinite or NaN where Where did not select its input, such as that of log(x) in
    Where(x > 0, log(x), 0); 0 times it would be NaN. A gradient that only happens to be 0 is not masked: an infinite
    derivative shows. Relu, Clip and others do not mask either, as in PyTorch: a mask costs about as much as a product.
    """

    def __init__(self, graph: Tensors, known: MutableMapping[str, tuple[str, ...]] | None = None) -> None:
        self._graph, self._masks = graph, ChainMap({}, {} if known is None else known)

    def inner(self, graph: Tensors) -> Masks:
        """The masks in a subgraph: it sees those that are known here, and adds to its own."""
        return Masks(graph, self._masks)

    def selected(self, condition: str, name: str, like: str) -> str:
        """The gradient of an input of Where: `name` where the condition holds, else zeros of the element type of `like`."""
        selected = self._graph.op("Where", condition, name, self._graph.number(0.0, like))
        self._masks[selected] = (*self._masks.get(name, ()), condition)
        return selected

    def remasked(self, name: str, gradient: str, like: str) -> str:
        """Mask a tensor that is computed elementwise from a gradient like the gradient itself."""
        for condition in self._masks.get(gradient, ()):
            if condition not in self._masks.get(name, ()):
                name = self.selected(condition, name, like)
        return name

    def without_nan(self, name: str, gradient: str, like: str) -> str:
        """The tensor, with 0 in place of NaN wherever a Where that masks the gradient did not select it."""
        graph = self._graph
        for condition in self._masks.get(gradient, ()):
            kept = graph.op("Or", condition, graph.op("Not", graph.op("IsNaN", name)))
            name = graph.op("Where", kept, name, graph.number(0.0, like))
        return name

    def keep(self, node: onnx.NodeProto) -> None:
        """Remember the masks of a new tensor that is 0 wherever its inputs are masked."""
        if not self._masks:
            return
        terms = list(node.input)
        if node.op_type in ("Cast", "CastLike", "Neg"):
            del terms[1:]
        elif node.op_type == "Mul":
            factor = self._graph.constant(terms.pop())
            if factor is None or not np.isfinite(factor.astype(np.float64)).all():
                return
        elif node.op_type == "Where":
            terms = [name for name in terms[1:] if (value := self._graph.constant(name)) is None or value.any()]
        elif node.op_type not in ("Add", "Sum"):
            return
        first, *others = [self._masks.get(name, ()) for name in terms] or [()]
        if shared := tuple(mask for mask in first if all(mask in masks for masks in others)):
            self._masks[node.output[0]] = shared


Reverse = Callable[["GradientGraph", Sequence[onnx.NodeProto], Mapping[str, str], Collection[str]], dict[str, str]]
"""Adds nodes that compute the gradients of nodes, from those of their outputs; returns the ones by some tensors, by name."""

Reached = Callable[["GradientGraph", Sequence[onnx.NodeProto], Collection[str]], set[str]]
"""Finds the names of all tensors that depend on some by differentiable nodes."""


class Node(NodeView):
    """A node to differentiate.

    proto: the node itself. version: the opset of its domain that the model imports.
    wanted: for each input, whether its gradient is needed.
    captured: names of the outer tensors that the node's subgraphs read and whose gradients are needed.
    reverse, reached: reverse mode for the nodes of its subgraphs, with the options of the whole model.
    """

    def __init__(
        self,
        proto: onnx.NodeProto,
        version: int,
        wanted: Sequence[bool] = (),
        captured: Sequence[str] = (),
        reverse: Reverse = lambda *_: {},
        reached: Reached = lambda *_: set(),
    ) -> None:
        super().__init__(proto)
        self.version, self.wanted, self.captured, self.reverse, self.reached = (
            version,
            wanted,
            captured,
            reverse,
            reached,
        )

    def wants(self, i: int) -> bool:
        """Whether the gradient of input i is needed."""
        return i < len(self.wanted) and self.wanted[i]


class GradientGraph(Tensors):
    """The graph of a model, or a subgraph, with nodes to be appended; the arguments are those of `Tensors`."""

    def __init__(self, proto: onnx.GraphProto, opsets: Mapping[str, int], outer: GradientGraph | None = None) -> None:
        super().__init__(proto, opsets, outer)
        self.masks: Masks = outer.masks.inner(self) if outer else Masks(self)
        """The masks of gradients that Where sets to 0."""
        self.replaced: dict[str, Sequence[onnx.NodeProto]] = {}
        """The nodes that replace a node of `proto`, by the name of its first output."""

    def add(self, node: onnx.NodeProto) -> None:
        """Add a node whose outputs have names from `name`, or "" if they are omitted; without a name it gets the first."""
        node.name = node.name or _first_output(node)
        if node.op_type == "Constant" and not node.domain:
            assign(node.attribute, [constant_attribute(node.attribute[0])])
        super().add(node)
        self.masks.keep(node)

    def replay(self, node: Node, *inputs: str) -> str:
        """Add a copy of a single-output node with other inputs, and return the output's name."""
        name = self.name(node.proto.op_type)
        node_copy = onnx.helper.make_node(node.proto.op_type, inputs, [name], domain=node.proto.domain)
        node_copy.attribute.extend(node.proto.attribute)
        self.add(node_copy)
        return name

    def replace(self, node: onnx.NodeProto, others: Sequence[onnx.NodeProto]) -> None:
        """Replace a node of `proto`, or a new one, by other nodes that have all of its outputs."""
        if self.is_new(node):
            place = next(i for i, added in enumerate(self.added) if added is node)
            self.added[place : place + 1] = others
            self._new |= {id(other): other for other in others}
        else:
            self.replaced[_first_output(node)] = others
        self._set_producers(others)

    def with_replaced(self) -> list[onnx.NodeProto]:
        """The nodes of `proto` after all replacements."""
        if not self.replaced:
            return list(self.proto.node)
        return [other for node in self.proto.node for other in self.replaced.get(_first_output(node), [node])]

    def reserve(self, name: str) -> str:
        """Mark a name as in use, and return it."""
        if name in self.names:
            raise ValueError(
                f"the model has a tensor {name!r} already: choose another name with a mapping, as in wrt={{'x': 'dx'}} "
                "(--name x dx)"
            )
        self.names.add(name)
        return name

    def shape(self, name: str, start: int = 0, end: int | None = None) -> str:
        """The shape of a tensor, or lengths start to end of it, as an int64 tensor; a constant if it is known."""
        if (numbers := self.numbers(name, start, end)) is not None:
            return self.ints(numbers)
        part = {"start": start} if start else {}
        part |= {} if end is None else {"end": end}
        key = name, start, end
        if key not in self.known.shapes:
            self.known.shapes[key] = self.op("Shape", name, **part)
        return self.known.shapes[key]

    def integer(self, value: int) -> str:
        """A constant of int64 []."""
        return self.tensor(np.array(value, np.int64))

    def counted(self, count: str) -> str:
        """The numbers from 0 to `count` - 1, int64; `count` is an int64 tensor of rank 0."""
        return self.op("Range", self.integer(0), count, self.integer(1))

    def tensor(self, value: np.ndarray[Any, Any]) -> str:
        """A constant of any shape and type."""
        return self._constant(onnx.numpy_helper.from_array(value))

    def number(self, value: float, kind: str) -> str:
        """A constant of rank 0 and of the element type of another tensor."""
        like, element_type = kind, self.element_type(kind)
        number = self._constant(onnx.helper.make_tensor("value", element_type or onnx.TensorProto.DOUBLE, (), [value]))
        return number if element_type is not None else self.op("CastLike", number, like)

    def _constant(self, tensor: onnx.TensorProto) -> str:
        key = tensor.SerializeToString(deterministic=True)
        if key not in self.known.constants:
            self.known.constants[key] = self.op("Constant", value=tensor)
        return self.known.constants[key]

    def zeros(self, like: str) -> str:
        """Zeros with the shape and element type of another tensor."""
        shape = self.shape(like)
        zeros = self.op("Expand", self.number(0.0, like), shape)
        self.known.shapes[zeros, 0, None] = shape
        return zeros

    def masked(self, condition: str, name: str, like: str) -> str:
        """The tensor `name` where the condition holds, and zeros (of the element type of `like`) elsewhere."""
        return self.op("Where", condition, name, self.number(0.0, like))

    def total(self, terms: Sequence[str]) -> str:
        """The sum of one or more tensors of one shape."""
        if len(terms) == 1:
            return terms[0]
        # ONNX Runtime (1.32 at least) fuses a Gemm and a Sum of two, and fails if a factor is the third output of a node.
        return self.op("Add" if len(terms) == 2 else "Sum", *terms)

    def reshaped(self, name: str, like: str) -> str:
        """A tensor in the shape of another."""
        value = self.constant(name)
        if value is not None and list(value.shape) == self.lengths(like):
            return name
        return self.in_shape(name, self.shape(like))

    def joined(self, *lengths: str | int) -> str:
        """Int64 tensors of rank 1, and numbers, one after the other: a shape."""
        parts = [self.ints([length]) if isinstance(length, int) else length for length in lengths]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def in_shape(self, name: str, *lengths: str | int) -> str:
        """A tensor in a shape that is given as in `joined`; a length of 0 means 0, and not a length to copy."""
        return self.op("Reshape", name, self.joined(*lengths), allowzero=1)

    def flat(self, name: str) -> str:
        """A tensor with all elements along one axis."""
        return self.op("Reshape", name, self.ints([-1]))

    def needed(self, names: Collection[str]) -> list[onnx.NodeProto]:
        """The new nodes that these tensors depend on, in topological order."""
        return needed(self.added, names)


@dataclass(frozen=True, eq=False)
class Expr(Value):
    """A tensor in an expression of a rule. Its kind is the name of a tensor with the element type of numbers."""

    graph: GradientGraph

    def where(self, condition: Expr, other: Expr | float) -> Expr:
        """This tensor where the condition holds, and the other elsewhere."""
        return condition.op("Where", self, self.of(other), kind=self.kind)


def _first_output(node: onnx.NodeProto) -> str:
    return next(filter(None, node.output), "")


def sum_to(graph: GradientGraph, gradient: str, source: str, output: str) -> str:
    """Sum a gradient, of the shape of `output`, over the axes along which `source` was broadcast to that shape."""
    axes = _axes(graph.lengths(source), graph.lengths(output))
    if axes is None:
        # A leading axis of length 1 is added and summed: a sum over no axis at all is an error in onnxruntime 1.20 if
        # the tensor is empty or has rank 0.
        whole = graph.op("Unsqueeze", gradient, graph.ints([0]))
        summed = graph.op("ReduceSum", whole, _axes_at_run_time(graph, whole, source), keepdims=1)
    elif axes:
        summed = graph.op("ReduceSum", gradient, graph.ints(axes), keepdims=0)
    else:
        return gradient
    return graph.reshaped(summed, source)


def _axes(source: list[Length] | None, output: list[Length] | None) -> list[int] | None:
    """The axes to sum, [] if the shapes are equal, None if that is only known at run time."""
    if source is None or output is None or len(output) < len(source):
        return None
    missing = len(output) - len(source)
    axes = list(range(missing))
    for axis, (before, after) in enumerate(zip(source, output[missing:], strict=True), missing):
        if (before is not None and before == after) or (isinstance(before, int) and before != 1):
            continue  # a length other than 1 is not broadcast, so `after` is the same even if it is unknown
        if before != 1:
            return None
        axes.append(axis)
    return axes


def _axes_at_run_time(graph: GradientGraph, gradient: str, source: str) -> str:
    shape, one = graph.shape(source), graph.ints([1])
    missing = graph.op("Sub", graph.op("Size", graph.op("Shape", gradient)), graph.op("Size", shape))
    ones = graph.op("Expand", one, graph.op("Reshape", missing, graph.ints([1])))
    padded = graph.op("Concat", ones, shape, axis=0)
    return graph.flat(graph.op("NonZero", graph.op("Equal", padded, one)))
