# SPDX-License-Identifier: MIT
"""The graph of a body, that of the nodes in place of one node of a model, and the expressions that add nodes to them.

All nodes are of ONNX's default domain, in a form that opset 18 and all later ones share.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnx_models.tools import nodes
from onnx_models.tools.nodes import NodeBuilder
from onnx_models.tools.protos import needed

Kind = str
"""The element type of a value: float, double, int64 or bool; "other" for an input, whose type a body does not know."""

DTYPES: dict[str, Any] = {"float": np.float32, "double": np.float64, "int64": np.int64, "bool": np.bool_}
_TYPES: dict[str, int] = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}
_KINDS = {number: kind for kind, number in _TYPES.items()}

_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
"""The second operand that does not change the first, by operator."""

_MAX_ELEMENTS = 64
"""The largest length of a `Range` that becomes a constant."""


class BodyGraph(NodeBuilder):
    """The nodes of a function.

    `loop` builds the body of a `Loop`, which may use every outer value. Equal nodes are made once, so that an expression
    that occurs repeatedly is computed once.
    """

    truth = "bool"

    def __init__(self) -> None:
        super().__init__(set(), "", itertools.count(1))
        self._constants: dict[tuple[object, ...], tuple[Value, onnx.NodeProto]] = {}
        self._known: list[dict[tuple[object, ...], list[str]]] = [{}]

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        """All nodes, constants first."""
        return [node for _, node in self._constants.values()] + self.added

    def input(self, name: str, kind: Kind = "other") -> Value:
        """Return an input of the function."""
        return Value(self, name, kind)

    def output(self, name: str, value: Value, like: Value) -> None:
        """Make a value an output, cast to the element type of `like`."""
        self.add(helper.make_node("CastLike", [value.name, like.name], [name]))

    def constant(self, value: float | Sequence[int], kind: Kind) -> Value:
        """Return a constant: a number, or a list of numbers."""
        array = np.asarray(value, DTYPES[kind])
        key = (kind, array.shape, array.tobytes())
        if key not in self._constants:
            constant = self._value(kind)
            node = helper.make_node("Constant", [], [constant.name], value=numpy_helper.from_array(array))
            self._constants[key] = constant, node
        return self._constants[key][0]

    def number(self, value: float, kind: Kind) -> str:
        """Return the name of a constant; see `constant`."""
        return self.constant(value, kind).name

    def attribute(self, name: str, kind: Literal["int", "float", "floats", "ints"]) -> Value:
        """Return the value of an attribute of the function."""
        key = ("attribute", name)
        if key not in self._constants:
            constant = self._value("float" if kind.startswith("float") else "int64")
            node = helper.make_node("Constant", [], [constant.name])
            of_type = onnx.AttributeProto.AttributeType.Value(kind.upper())
            node.attribute.append(onnx.AttributeProto(name=f"value_{kind}", type=of_type, ref_attr_name=name))
            self._constants[key] = constant, node
        return self._constants[key][0]

    def ops(self, op_type: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Add a node, unless an equal one exists, and return the names of its outputs."""
        key = (op_type, *inputs, *map(str, attributes.items()))
        for known in self._known:
            if key in known:
                return known[key]
        self._known[-1][key] = super().ops(op_type, *inputs, outputs=outputs, **attributes)
        return self._known[-1][key]

    def loop(
        self,
        trips: Value,
        body: Callable[[Value, list[Value]], tuple[list[Value], list[Value]]],
        carried: Sequence[Value] = (),
    ) -> list[Value]:
        """Add a `Loop` of `trips` iterations, int64[1]; return the final loop-carried values, then the scan outputs.

        `body` takes the iteration, int64[1], and the carried values, and returns the next ones and the scan outputs.
        """
        index, condition = self._value("int64"), self._value("bool")
        inner = [self._value(value.kind) for value in carried]
        outer, self.added = self.added, []
        self._known.append({})
        kept, stacked = body(index.reshape(1), inner)
        outputs = [value.op("Identity") for value in (condition, *kept, *stacked)]
        nodes, self.added = self.added, outer
        self._known.pop()
        graph = helper.make_graph(
            nodes,
            f"round_{index.name}",
            # ONNX Runtime requires the shapes of the first two.
            [helper.make_tensor_value_info(v.name, _TYPES[v.kind], []) for v in (index, condition)]
            + [helper.make_tensor_value_info(v.name, _TYPES[v.kind], None) for v in inner],
            [helper.make_tensor_value_info(v.name, _TYPES[v.kind], None) for v in outputs],
        )
        first = [trips.reshape(), self.constant(True, "bool"), *carried]
        names = self.ops("Loop", *(value.name for value in first), outputs=len(outputs) - 1, body=graph)
        return [Value(self, name, value.kind) for name, value in zip(names, outputs[1:], strict=True)]

    def name(self, base: str) -> str:  # noqa: ARG002
        """Return a new name. Names in a function cannot collide with the model's."""
        return f"v{next(self._numbers)}"

    def _value(self, kind: Kind) -> Value:
        return Value(self, self.name(""), kind)


@dataclass(frozen=True, eq=False)
class Value(nodes.Value):
    """A tensor in a body. Its kind is its element type."""

    graph: BodyGraph

    def __floordiv__(self, other: Value | int) -> Value:
        """Divide integers that are not negative, rounding down."""
        return self.op("Div", other)

    def __mod__(self, other: Value | int) -> Value:
        """Return the remainder of integers that are not negative."""
        return self.op("Mod", other)

    def floor(self) -> Value:
        """Round down."""
        return self.op("Floor")

    def ceil(self) -> Value:
        """Round up."""
        return self.op("Ceil")

    def at_least(self, other: Value | float) -> Value:
        """Return the elementwise maximum."""
        return self.op("Max", other)

    def at_most(self, other: Value | float) -> Value:
        """Return the elementwise minimum."""
        return self.op("Min", other)

    def cast(self, kind: Kind) -> Value:
        """Convert to another element type."""
        return self if kind == self.kind else self.op("Cast", kind=kind, to=_TYPES[kind])

    def where(self, yes: Value, no: Value | float) -> Value:
        """Select `yes` where this is true, else `no`."""
        return self.op("Where", yes, yes.of(no), kind=yes.kind)

    def reshape(self, *lengths: Value | int) -> Value:
        """Reshape; each length is a number or int64[1]. A single -1 flattens."""
        allow_zero: dict[str, Any] = {} if -1 in [n for n in lengths if isinstance(n, int)] else {"allowzero": 1}
        return self.op("Reshape", shape(self.graph, *lengths), **allow_zero)

    def shaped_as(self, other: Value) -> Value:
        """Reshape to the shape of another value."""
        return self.op("Reshape", other.shape(), allowzero=1)

    def shape(self) -> Value:
        """Return the shape, int64."""
        return self.op("Shape", kind="int64")

    def unsqueeze(self, *axes: int) -> Value:
        """Insert axes of length 1; no axes are allowed as well."""
        if not axes:
            return self
        return self.op("Unsqueeze", self._axes(axes))

    def squeeze(self, *axes: int) -> Value:
        """Remove axes of length 1."""
        return self.op("Squeeze", self._axes(axes))

    def transpose(self, *order: int) -> Value:
        """Permute the axes."""
        transposed = self.op("Transpose", perm=order)
        # ONNX Runtime 1.20 fuses this and a product into an operator that it lacks for double, but not across a Reshape.
        return transposed.shaped_as(transposed) if self.kind == "double" else transposed

    def gather(self, indices: Value, axis: int = 0) -> Value:
        """Take entries along one axis; indices must not be negative."""
        return self.op("Gather", indices, axis=axis)

    def slice(self, axis: int, start: Value, end: Value) -> Value:
        """Take the entries start to end - 1 along one axis, int64[1] each."""
        return self.block({axis: (start, end)})

    def block(self, spans: Mapping[int, tuple[Value, Value]]) -> Value:
        """Take a block: for each axis in `spans` the entries start to end - 1, int64[1] each."""
        starts, ends = (concat(0, *values) for values in zip(*spans.values(), strict=True))
        return self.op("Slice", starts, ends, self._axes(list(spans)))

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
        return self.op("MatMul", other)

    def length(self, axis: int) -> Value:
        """Return the length of one axis, int64[1]."""
        return self.op("Shape", kind="int64", start=axis, end=axis + 1)

    @property
    def rank(self) -> Value:
        """The number of axes, int64[1]."""
        return self.shape().length(0)

    def lengths(self, rank: int) -> list[Value]:
        """Return the lengths of all axes, int64[1] each. A tensor of another rank fails at run time."""
        return self.shape().entries(rank)

    def lengths_up_to(self, rank: int) -> list[Value]:
        """Return the lengths of all axes, with leading 1s up to `rank`. More axes, or none, fail at run time."""
        lengths, one = self.shape(), self.graph.constant([1], "int64")
        # Gathered separately, so that a tensor without axes fails.
        first = lengths.gather(self.graph.constant([0], "int64"))
        return concat(0, ones(rank - self.rank), first, lengths.slice(0, one, self.rank)).entries(rank)

    def entries(self, count: int, axis: int = 0) -> list[Value]:
        """Split an axis into entries of length 1. Another number of them fails at run time."""
        each = self.graph.constant([1] * count, "int64")
        names = self.graph.ops("Split", self.name, each.name, outputs=count, axis=axis)
        return [Value(self.graph, name, self.kind) for name in names]

    def _axes(self, axes: Sequence[int]) -> Value:
        return self.graph.constant(axes, "int64")

    def _reduce(self, op_type: str, axes: Sequence[int]) -> Value:
        return self.op(op_type, self._axes(axes), keepdims=0)


def shape(graph: BodyGraph, *lengths: Value | int) -> Value:
    """Return a shape, int64; each length is a number or int64[1]."""
    if all(isinstance(length, int) for length in lengths):
        return graph.constant([length for length in lengths if isinstance(length, int)], "int64")
    return concat(0, *[n if isinstance(n, Value) else graph.constant([n], "int64") for n in lengths])


def concat(axis: int, *values: Value) -> Value:
    """Concatenate values along an axis."""
    if len(values) == 1:
        return values[0]
    return values[0].op("Concat", *values[1:], axis=axis)


def zeros(kind: Kind, first: Value, *lengths: Value | int) -> Value:
    """Return a tensor of zeros."""
    zero = numpy_helper.from_array(np.zeros(1, DTYPES[kind]))
    return shape(first.graph, first, *lengths).op("ConstantOfShape", kind=kind, value=zero)


def ones(count: Value) -> Value:
    """Return `count` ones, int64. A negative count fails at run time."""
    element = numpy_helper.from_array(np.ones(1, np.int64))
    return count.op("ConstantOfShape", value=element)


def arange(count: Value) -> Value:
    """Return 0 to count - 1, int64, for a count that is int64[1].

    It has integers because ONNX Runtime 1.31.1 refuses a `Range` of floats whose limit is a known length.
    """
    graph = count.graph
    start, end = graph.constant(0, "int64"), count.reshape()
    return start.op("Range", end, graph.constant(1, "int64"))


class InlinedGraph(BodyGraph):
    """The nodes in place of one node of a model. Constants and known lengths are folded.

    New names begin with `prefix` and are added to `names`, all names in the model. `types` are the known ones.
    """

    def __init__(self, names: set[str], types: Mapping[str, onnx.TypeProto.Tensor], opset: int, prefix: str) -> None:
        super().__init__()
        self.names, self._types, self._opset, self._prefix = names, types, opset, prefix
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._outputs: list[str] = []

    def name(self, base: str) -> str:  # noqa: ARG002
        """Return a new name."""
        name = next(name for i in self._numbers if (name := f"{self._prefix}/{i}") not in self.names)
        self.names.add(name)
        return name

    def input(self, name: str, kind: Kind = "other") -> Value:
        """Return a tensor of the model that the node reads."""
        known = self._types.get(name)
        return super().input(name, kind if known is None else _KINDS.get(known.elem_type, kind))

    def output(self, name: str, value: Value, like: Value) -> None:
        """Make a value an output of the node, in the element type of `like`."""
        self._outputs.append(name)
        known = self._types.get(like.name)
        if known is None or known.elem_type == onnx.TensorProto.UNDEFINED:
            super().output(name, value, like)
        elif value.kind == like.kind:
            self.add(helper.make_node("Identity", [value.name], [name]))
        else:
            self.add(helper.make_node("Cast", [value.name], [name], to=known.elem_type))

    def nodes_of_outputs(self) -> list[onnx.NodeProto]:
        """Return the nodes that the outputs depend on."""
        return needed(self.nodes, self._outputs)

    def constant(self, value: Any, kind: Kind) -> Value:
        """Return a constant, of a number or an array."""
        constant = super().constant(value, kind)
        self._arrays.setdefault(constant.name, np.asarray(value, DTYPES[kind]))
        return constant

    def ops(self, op_type: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """As `BodyGraph.ops`, but no node is added if its result is known or equals one of its inputs."""
        known = [self._arrays.get(name) for name in inputs]
        if op_type == "Shape":
            lengths = self._lengths(inputs[0])[attributes.get("start", 0) : attributes.get("end")]
            if lengths and None not in lengths:
                return [self.constant(lengths, "int64").name]
        elif all(array is not None for array in known) and _is_small(op_type, known):
            return [
                self.constant(array, _kind(array)).name for array in self._computed(op_type, known, outputs, attributes)
            ]
        elif op_type == "Where" and (condition := known[0]) is not None and condition.all() == condition.any():
            return [inputs[1 if condition.all() else 2]]
        elif op_type == "And":
            for array, other in ((known[0], 1), (known[1], 0)):
                if array is not None and array.all():
                    return [inputs[other]]
        elif op_type in _NEUTRAL and known[1] is not None and known[1].ndim == 0 and known[1] == _NEUTRAL[op_type]:
            return [inputs[0]]
        return super().ops(op_type, *inputs, outputs=outputs, **attributes)

    def _computed(
        self, op_type: str, arrays: Sequence[Any], outputs: int, attributes: Mapping[str, Any]
    ) -> list[np.ndarray[Any, Any]]:
        """Return the results of a node for known inputs."""
        names = [f"{i}" for i in range(len(arrays))]
        node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], **attributes)
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(node, opsets={"": self._opset}).run(
                None, dict(zip(names, arrays, strict=True))
            )
        return [np.asarray(result) for result in results]

    def _lengths(self, name: str) -> list[int | None]:
        """Return the lengths of a tensor, None for unknown ones; none at all if even the rank is unknown."""
        known = self._types.get(name)
        if known is None or not known.HasField("shape"):
            return []
        return [dim.dim_value if dim.HasField("dim_value") else None for dim in known.shape.dim]


def _is_small(op_type: str, arrays: Sequence[Any]) -> bool:
    """Return whether a result is not much larger than the arrays from which it is computed."""
    return op_type not in ("ConstantOfShape", "Expand", "Range") or (op_type == "Range" and arrays[1] <= _MAX_ELEMENTS)


def _kind(array: np.ndarray[Any, Any]) -> Kind:
    return next(kind for kind, dtype in DTYPES.items() if array.dtype == dtype)
