"""Build nodes by expressions: arithmetic on a `Value` adds nodes to its `Graph`.

All nodes are of ONNX's default domain, in a form that opset 18 and all later ones share.
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
"""The element type of a value; "other" for an input, whose type a body does not know."""

_DTYPES: dict[Kind, Any] = {"float": np.float32, "double": np.float64, "int64": np.int64, "bool": np.bool_}
_TYPES: dict[Kind, int] = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


class Graph:
    """The nodes of a function.

    `loop` builds the body of a `Loop`, which may use every outer value. Equal nodes are made once, so that an expression
    that occurs repeatedly is computed once.
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
        """Return an input of the function."""
        return Value(self, name, kind)

    def output(self, name: str, value: Value, like: Value) -> None:
        """Make a value an output, cast to the element type of `like`."""
        self._scopes[-1].append(helper.make_node("CastLike", [value.name, like.name], [name]))

    def constant(self, value: float | Sequence[int], kind: Kind) -> Value:
        """Return a constant: a number, or a list of numbers."""
        array = np.asarray(value, _DTYPES[kind])
        key = (kind, array.shape, array.tobytes())
        if key not in self._constants:
            made = Value(self, self._name(), kind)
            node = helper.make_node("Constant", [], [made.name], value=numpy_helper.from_array(array))
            self._constants[key] = made, node
        return self._constants[key][0]

    def attribute(self, name: str, kind: Literal["int", "float", "floats", "ints"]) -> Value:
        """Return the value of an attribute of the function."""
        key = ("attribute", name)
        if key not in self._constants:
            made = Value(self, self._name(), "float" if kind.startswith("float") else "int64")
            node = helper.make_node("Constant", [], [made.name])
            of_type = onnx.AttributeProto.AttributeType.Value(kind.upper())
            node.attribute.append(onnx.AttributeProto(name=f"value_{kind}", type=of_type, ref_attr_name=name))
            self._constants[key] = made, node
        return self._constants[key][0]

    def op(self, op_type: str, inputs: Sequence[Value], kind: Kind, **attributes: Any) -> Value:
        """Add a node and return its only output."""
        return self.ops(op_type, inputs, [kind], **attributes)[0]

    def ops(self, op_type: str, inputs: Sequence[Value], kinds: Sequence[Kind], **attributes: Any) -> list[Value]:
        """Add a node, unless an equal one exists, and return its outputs, of the element types `kinds`."""
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
        """Add a `Loop` and return the final loop-carried values, then the scan outputs.

        Args:
            trips: the number of iterations, int64[1].
            body: takes the iteration, int64[1], and the carried values, and returns the next carried values and the scan
                outputs.
            carried: the initial carried values.
        """
        index, condition = Value(self, self._name(), "int64"), Value(self, self._name(), "bool")
        inner = [Value(self, self._name(), value.kind) for value in carried]
        with self._scope() as nodes:
            kept, stacked = body(index.reshape(1), inner)
            outputs = [self.op("Identity", [value], value.kind) for value in (condition, *kept, *stacked)]
        graph = helper.make_graph(
            nodes,
            f"round_{index.name}",
            # ONNX Runtime requires the shapes of the first two.
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
    """A tensor in a graph, with its name and element type. Python numbers in expressions take that type."""

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
        """Divide integers that are not negative, rounding down."""
        return self._with("Div", other)

    def __mod__(self, other: Value | int) -> Value:
        """Return the remainder of integers that are not negative."""
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
        """Compare elementwise (Equal)."""
        return self._with("Equal", other, "bool")

    def __abs__(self) -> Value:
        return self._alone("Abs")

    def floor(self) -> Value:
        """Round down."""
        return self._alone("Floor")

    def ceil(self) -> Value:
        """Round up."""
        return self._alone("Ceil")

    def at_least(self, other: Value | float) -> Value:
        """Return the elementwise maximum."""
        return self._with("Max", other)

    def at_most(self, other: Value | float) -> Value:
        """Return the elementwise minimum."""
        return self._with("Min", other)

    def cast(self, kind: Kind) -> Value:
        """Convert to another element type."""
        return self if kind == self.kind else self.graph.op("Cast", [self], kind, to=_TYPES[kind])

    def where(self, yes: Value, no: Value | float) -> Value:
        """Select `yes` where this is true, else `no`."""
        return self.graph.op("Where", [self, yes, yes._number(no)], yes.kind)

    def reshape(self, *lengths: Value | int) -> Value:
        """Reshape; each length is a number or int64[1]. A single -1 flattens."""
        allow_zero = {} if -1 in [n for n in lengths if isinstance(n, int)] else {"allowzero": 1}
        return self.graph.op("Reshape", [self, shape(self.graph, *lengths)], self.kind, **allow_zero)

    def shaped_as(self, other: Value) -> Value:
        """Reshape to the shape of another value."""
        shape_of = self.graph.op("Shape", [other], "int64")
        return self.graph.op("Reshape", [self, shape_of], self.kind, allowzero=1)

    def unsqueeze(self, *axes: int) -> Value:
        """Insert axes of length 1; no axes are allowed as well."""
        if not axes:
            return self
        return self.graph.op("Unsqueeze", [self, self._axes(axes)], self.kind)

    def squeeze(self, *axes: int) -> Value:
        """Remove axes of length 1."""
        return self.graph.op("Squeeze", [self, self._axes(axes)], self.kind)

    def transpose(self, *order: int) -> Value:
        """Permute the axes."""
        made = self.graph.op("Transpose", [self], self.kind, perm=order)
        # ONNX Runtime 1.20 fuses this and a product into an operator that it lacks for double, but not across a Reshape.
        return made.shaped_as(made) if self.kind == "double" else made

    def gather(self, indices: Value, axis: int = 0) -> Value:
        """Take entries along one axis; indices must not be negative."""
        return self.graph.op("Gather", [self, indices], self.kind, axis=axis)

    def slice(self, axis: int, start: Value, end: Value) -> Value:
        """Take the entries start to end - 1 along one axis, int64[1] each."""
        return self.block({axis: (start, end)})

    def block(self, spans: Mapping[int, tuple[Value, Value]]) -> Value:
        """Take a block: for each axis in `spans` the entries start to end - 1, int64[1] each."""
        starts, ends = (concat(0, *values) for values in zip(*spans.values(), strict=True))
        return self.graph.op("Slice", [self, starts, ends, self._axes(list(spans))], self.kind)

    def sum(self, *axes: int) -> Value:
        """Sum over some axes and remove them."""
        return self._reduce("ReduceSum", axes)

    def max(self, *axes: int) -> Value:
        """Take the maximum over some axes and remove them; they must not be empty."""
        return self._reduce("ReduceMax", axes)

    def min(self, *axes: int) -> Value:
        """Take the minimum over some axes and remove them; they must not be empty."""
        return self._reduce("ReduceMin", axes)

    def __matmul__(self, other: Value) -> Value:
        return self._with("MatMul", other)

    def length(self, axis: int) -> Value:
        """Return the length of one axis, int64[1]."""
        return self.graph.op("Shape", [self], "int64", start=axis, end=axis + 1)

    @property
    def rank(self) -> Value:
        """The number of axes, int64[1]."""
        return self.graph.op("Shape", [self], "int64").length(0)

    def lengths(self, rank: int) -> list[Value]:
        """Return the lengths of all axes, int64[1] each. A tensor of another rank fails at run time."""
        return self.graph.op("Shape", [self], "int64").entries(rank)

    def lengths_up_to(self, rank: int) -> list[Value]:
        """Return the lengths of all axes, with leading 1s up to `rank`. More axes, or none, fail at run time."""
        lengths, one = self.graph.op("Shape", [self], "int64"), self.graph.constant([1], "int64")
        # Gathered by itself, so that a tensor without axes fails.
        first = lengths.gather(self.graph.constant([0], "int64"))
        return concat(0, ones(self.graph, rank - self.rank), first, lengths.slice(0, one, self.rank)).entries(rank)

    def entries(self, count: int, axis: int = 0) -> list[Value]:
        """Split an axis into entries of length 1. Another number of them fails at run time."""
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
    """Return a shape, int64; each length is a number or int64[1]."""
    if all(isinstance(length, int) for length in lengths):
        return graph.constant([length for length in lengths if isinstance(length, int)], "int64")
    return concat(0, *[n if isinstance(n, Value) else graph.constant([n], "int64") for n in lengths])


def concat(axis: int, *values: Value) -> Value:
    """Concatenate values along an axis."""
    if len(values) == 1:
        return values[0]
    return values[0].graph.op("Concat", values, values[0].kind, axis=axis)


def zeros(kind: Kind, first: Value, *lengths: Value | int) -> Value:
    """Return a tensor of zeros."""
    zero = numpy_helper.from_array(np.zeros(1, _DTYPES[kind]))
    return first.graph.op("ConstantOfShape", [shape(first.graph, first, *lengths)], kind, value=zero)


def ones(graph: Graph, count: Value) -> Value:
    """Return `count` ones, int64. A negative count fails at run time."""
    one = numpy_helper.from_array(np.ones(1, np.int64))
    return graph.op("ConstantOfShape", [count], "int64", value=one)


def arange(count: Value) -> Value:
    """Return 0 to count - 1, int64, for a count that is int64[1].

    It has integers because ONNX Runtime 1.31.1 refuses a `Range` of floats whose limit is a known length.
    """
    graph = count.graph
    ends = [graph.constant(0, "int64"), count.reshape(), graph.constant(1, "int64")]
    return graph.op("Range", ends, "int64")
