"""Expressions that write nodes: arithmetic on `Value` appends to the `Graph` it belongs to.

Only operators of ONNX's default domain are written, as opset 18 and every later one have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Kind = Literal["float", "double", "int64", "bool", "other"]
"""The element type of a value; other for that of an input, which a body does not know."""

_DTYPES: dict[Kind, Any] = {"float": np.float32, "double": np.float64, "int64": np.int64, "bool": np.bool_}
_TYPES: dict[Kind, int] = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


class Graph:
    """The nodes of a function in the making.

    Those of a `Loop` are written within `loop`; they may use every value from outside. No node is written twice, so that
    what an expression says repeatedly is computed once.
    """

    def __init__(self) -> None:
        self._constants: dict[tuple[object, ...], tuple[Value, onnx.NodeProto]] = {}
        self._scopes: list[list[onnx.NodeProto]] = [[]]
        self._known: list[dict[tuple[object, ...], list[Value]]] = [{}]
        self._count = 0

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        """All nodes, constants first."""
        return [node for _, node in self._constants.values()] + self._scopes[0]

    def input(self, name: str, kind: Kind = "other") -> Value:
        """A value that the function is given."""
        return Value(self, name, kind)

    def output(self, name: str, value: Value, like: Value) -> None:
        """Makes a value an output, in the element type of another."""
        self._scopes[-1].append(helper.make_node("CastLike", [value.name, like.name], [name]))

    def constant(self, value: float | Sequence[int], kind: Kind) -> Value:
        """A number, or a list of them."""
        array = np.asarray(value, _DTYPES[kind])
        key = (kind, array.shape, array.tobytes())
        if key not in self._constants:
            made = Value(self, self._name(), kind)
            node = helper.make_node("Constant", [], [made.name], value=numpy_helper.from_array(array))
            self._constants[key] = made, node
        return self._constants[key][0]

    def attribute(self, name: str, kind: Literal["int", "float", "floats", "ints"]) -> Value:
        """The value of an attribute of the function's nodes."""
        key = ("attribute", name)
        if key not in self._constants:
            made = Value(self, self._name(), "float" if kind.startswith("float") else "int64")
            node = helper.make_node("Constant", [], [made.name])
            of_type = onnx.AttributeProto.AttributeType.Value(kind.upper())
            node.attribute.append(onnx.AttributeProto(name=f"value_{kind}", type=of_type, ref_attr_name=name))
            self._constants[key] = made, node
        return self._constants[key][0]

    def op(self, op_type: str, inputs: Sequence[Value], kind: Kind, **attributes: Any) -> Value:
        """The only output of a new node."""
        return self.ops(op_type, inputs, [kind], **attributes)[0]

    def ops(self, op_type: str, inputs: Sequence[Value], kinds: Sequence[Kind], **attributes: Any) -> list[Value]:
        """The outputs of a node, whose element types are `kinds`; of one that there is already if it is the same."""
        key = (op_type, *(value.name for value in inputs), *map(str, attributes.items()))
        for known in self._known:
            if key in known:
                return known[key]
        made = [Value(self, self._name(), kind) for kind in kinds]
        names = [value.name for value in made]
        self._scopes[-1].append(helper.make_node(op_type, [value.name for value in inputs], names, **attributes))
        self._known[-1][key] = made
        return made

    def loop(
        self,
        trips: Value,
        body: Callable[[Value, list[Value]], tuple[list[Value], list[Value]]],
        carried: Sequence[Value] = (),
    ) -> list[Value]:
        """What a `Loop` leaves in the carried values, and the values of all rounds stacked.

        Args:
            trips: int64[1], the number of rounds.
            body: from the number of the round, int64[1], and the carried values to the next carried values and those
                that are stacked.
            carried: the first carried values.
        """
        index, condition = Value(self, self._name(), "int64"), Value(self, self._name(), "bool")
        inner = [Value(self, self._name(), value.kind) for value in carried]
        with self._scope() as nodes:
            kept, stacked = body(index.reshape(1), inner)
            outputs = [self.op("Identity", [value], value.kind) for value in (condition, *kept, *stacked)]
        graph = helper.make_graph(
            nodes,
            f"round_{index.name}",
            # ONNX Runtime wants to know the shape of the first two.
            [helper.make_tensor_value_info(v.name, _TYPES[v.kind], []) for v in (index, condition)]
            + [helper.make_tensor_value_info(v.name, _TYPES[v.kind], None) for v in inner],
            [helper.make_tensor_value_info(v.name, _TYPES[v.kind], None) for v in outputs],
        )
        first = [trips.reshape(), self.constant(True, "bool"), *carried]
        return self.ops("Loop", first, [value.kind for value in outputs[1:]], body=graph)

    @contextmanager
    def _scope(self) -> Iterator[list[onnx.NodeProto]]:
        self._scopes.append([])
        self._known.append({})
        yield self._scopes[-1]
        self._scopes.pop()
        self._known.pop()

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in a graph, known by name and element type; numbers that it meets take its type."""

    graph: Graph
    name: str
    kind: Kind

    def __add__(self, other: Value | float) -> Value:
        return self._with("Add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._with("Sub", other)

    def __rsub__(self, other: float) -> Value:
        return self._number(other) - self

    def __mul__(self, other: Value | float) -> Value:
        return self._with("Mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._with("Div", other)

    def __floordiv__(self, other: Value | int) -> Value:
        """Of integers that are not negative."""
        return self._with("Div", other)

    def __mod__(self, other: Value | int) -> Value:
        """Of integers that are not negative."""
        return self._with("Mod", other)

    def __lt__(self, other: Value | float) -> Value:
        return self._with("Less", other, "bool")

    def __le__(self, other: Value | float) -> Value:
        return self._with("LessOrEqual", other, "bool")

    def __gt__(self, other: Value | float) -> Value:
        return self._with("Greater", other, "bool")

    def __ge__(self, other: Value | float) -> Value:
        return self._with("GreaterOrEqual", other, "bool")

    def __and__(self, other: Value) -> Value:
        return self._with("And", other)

    def equals(self, other: Value | float) -> Value:
        """Where two values are equal."""
        return self._with("Equal", other, "bool")

    def __abs__(self) -> Value:
        return self._alone("Abs")

    def floor(self) -> Value:
        """The next integer below."""
        return self._alone("Floor")

    def ceil(self) -> Value:
        """The next integer above."""
        return self._alone("Ceil")

    def at_least(self, other: Value | float) -> Value:
        """The larger of two."""
        return self._with("Max", other)

    def at_most(self, other: Value | float) -> Value:
        """The smaller of two."""
        return self._with("Min", other)

    def cast(self, kind: Kind) -> Value:
        """In another element type."""
        return self if kind == self.kind else self.graph.op("Cast", [self], kind, to=_TYPES[kind])

    def where(self, yes: Value, no: Value | float) -> Value:
        """One or the other, as this is true or not."""
        return self.graph.op("Where", [self, yes, yes._number(no)], yes.kind)

    def reshape(self, *lengths: Value | int) -> Value:
        """In another shape, each length a number or int64[1]; a single -1 for a list of all elements."""
        allow_zero = {} if -1 in [n for n in lengths if isinstance(n, int)] else {"allowzero": 1}
        return self.graph.op("Reshape", [self, shape(self.graph, *lengths)], self.kind, **allow_zero)

    def shaped_as(self, other: Value) -> Value:
        """In the shape of another value."""
        shape_of = self.graph.op("Shape", [other], "int64")
        return self.graph.op("Reshape", [self, shape_of], self.kind, allowzero=1)

    def unsqueeze(self, *axes: int) -> Value:
        """With new axes of length 1 at these places, which may be none."""
        if not axes:
            return self
        return self.graph.op("Unsqueeze", [self, self._axes(axes)], self.kind)

    def squeeze(self, *axes: int) -> Value:
        """Without these axes, whose length must be 1."""
        return self.graph.op("Squeeze", [self, self._axes(axes)], self.kind)

    def transpose(self, *order: int) -> Value:
        """With its axes in this order."""
        made = self.graph.op("Transpose", [self], self.kind, perm=order)
        # ONNX Runtime 1.20 fuses this and a product to an operator that it has not for double; not across a Reshape.
        return made.shaped_as(made) if self.kind == "double" else made

    def gather(self, indices: Value, axis: int = 0) -> Value:
        """Along one axis, the entries of these indices, which must not be negative."""
        return self.graph.op("Gather", [self, indices], self.kind, axis=axis)

    def slice(self, axis: int, start: Value, end: Value) -> Value:
        """Along one axis, the entries from start to before end, int64[1] each."""
        return self.part({axis: (start, end)})

    def part(self, spans: Mapping[int, tuple[Value, Value]]) -> Value:
        """Along some axes, the entries from the first to before the second, int64[1] each; all of them in one copy."""
        starts, ends = (concat(0, *values) for values in zip(*spans.values(), strict=True))
        return self.graph.op("Slice", [self, starts, ends, self._axes(list(spans))], self.kind)

    def sum(self, *axes: int) -> Value:
        """Over some axes, which go."""
        return self._reduce("ReduceSum", axes)

    def max(self, *axes: int) -> Value:
        """The largest over some axes, which go; they must not be empty."""
        return self._reduce("ReduceMax", axes)

    def min(self, *axes: int) -> Value:
        """The smallest over some axes, which go; they must not be empty."""
        return self._reduce("ReduceMin", axes)

    def __matmul__(self, other: Value) -> Value:
        return self._with("MatMul", other)

    def length(self, axis: int) -> Value:
        """The length of one axis, int64[1]."""
        return self.graph.op("Shape", [self], "int64", start=axis, end=axis + 1)

    @property
    def rank(self) -> Value:
        """The number of axes, int64[1]."""
        return self.graph.op("Shape", [self], "int64").length(0)

    def lengths(self, rank: int) -> list[Value]:
        """The lengths of all axes, int64[1] each. A tensor of another rank fails at run time."""
        return self.graph.op("Shape", [self], "int64").entries(rank)

    def lengths_up_to(self, rank: int) -> list[Value]:
        """The lengths of all axes after as many of 1 as make them `rank`. More axes, or none, fail at run time."""
        lengths, one = self.graph.op("Shape", [self], "int64"), self.graph.constant([1], "int64")
        # Apart from the others, so that a tensor without axes fails.
        first = lengths.gather(self.graph.constant([0], "int64"))
        return concat(0, ones(self.graph, rank - self.rank), first, lengths.slice(0, one, self.rank)).entries(rank)

    def entries(self, count: int, axis: int = 0) -> list[Value]:
        """The entries along an axis, each with length 1. Another number of them fails at run time."""
        each = self.graph.constant([1] * count, "int64")
        return self.graph.ops("Split", [self, each], [self.kind] * count, axis=axis)

    def _axes(self, axes: Sequence[int]) -> Value:
        return self.graph.constant(axes, "int64")

    def _number(self, other: Value | float) -> Value:
        return other if isinstance(other, Value) else self.graph.constant(other, self.kind)

    def _alone(self, op_type: str) -> Value:
        return self.graph.op(op_type, [self], self.kind)

    def _with(self, op_type: str, other: Value | float, kind: Kind | None = None) -> Value:
        second = self._number(other)
        if second.kind != self.kind:
            raise TypeError(f"{op_type} of {self.kind} and {second.kind}")
        return self.graph.op(op_type, [self, second], kind or self.kind)

    def _reduce(self, op_type: str, axes: Sequence[int]) -> Value:
        return self.graph.op(op_type, [self, self._axes(axes)], self.kind, keepdims=0)


def shape(graph: Graph, *lengths: Value | int) -> Value:
    """A shape of lengths that are numbers or int64[1]."""
    if all(isinstance(length, int) for length in lengths):
        return graph.constant([length for length in lengths if isinstance(length, int)], "int64")
    return concat(0, *[n if isinstance(n, Value) else graph.constant([n], "int64") for n in lengths])


def concat(axis: int, *values: Value) -> Value:
    """Several values one after the other along an axis."""
    if len(values) == 1:
        return values[0]
    return values[0].graph.op("Concat", values, values[0].kind, axis=axis)


def zeros(kind: Kind, first: Value, *lengths: Value | int) -> Value:
    """Zeros in a shape."""
    zero = numpy_helper.from_array(np.zeros(1, _DTYPES[kind]))
    return first.graph.op("ConstantOfShape", [shape(first.graph, first, *lengths)], kind, value=zero)


def ones(graph: Graph, count: Value) -> Value:
    """A list of int64 ones. A negative number of them fails at run time."""
    one = numpy_helper.from_array(np.ones(1, np.int64))
    return graph.op("ConstantOfShape", [count], "int64", value=one)


def arange(count: Value) -> Value:
    """0, 1 and so on, as many as count, int64[1], says.

    Of integers: a `Range` of floats whose limit is a length is refused by ONNX Runtime 1.31.1 where that length is known.
    """
    graph = count.graph
    ends = [graph.constant(0, "int64"), count.reshape(), graph.constant(1, "int64")]
    return graph.op("Range", ends, "int64")
