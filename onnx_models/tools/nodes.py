# SPDX-License-Identifier: MIT
"""Read nodes, and make nodes of ONNX's own domain, by name or by expressions such as ``(x + 1) / y``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnx_models.tools.protos import label

if TYPE_CHECKING:
    from typing import Self


Length = int | str | None


class NodeView:
    """A node, with its inputs, outputs and attributes as Python values."""

    def __init__(self, proto: onnx.NodeProto) -> None:
        self.proto = proto
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
        """The attributes as ONNX's helper gives them: strings as bytes."""

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs, "" for an omitted one."""
        return list(self.proto.input)

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs, "" for an omitted one."""
        return list(self.proto.output)

    def input(self, i: int) -> str:
        """The name of input i, "" if it is omitted."""
        return self.proto.input[i] if i < len(self.proto.input) else ""

    def output(self, i: int) -> str:
        """The name of output i, "" if it is omitted."""
        return self.proto.output[i] if i < len(self.proto.output) else ""

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or the default; strings as str."""
        value = self.attributes.get(name, default)
        return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value

    def __str__(self) -> str:
        return label(self.proto)


class NodeBuilder:
    """Makes nodes whose outputs have new names.

    added: the nodes, in topological order. names: all names in use. truth: the `Value.kind` of comparisons, see there.

    Args:
        names: names in use already; new ones are added.
        suffix: what follows a new name's base, before a number.
        numbers: the numbers of new names.
    """

    truth: str | None = None

    def __init__(self, names: set[str], suffix: str, numbers: Iterator[int] | None = None) -> None:
        self.added: list[onnx.NodeProto] = []
        self.names, self._suffix = names, suffix
        self._numbers = itertools.count() if numbers is None else numbers

    def name(self, base: str) -> str:
        """Return a new name that begins with `base`."""
        name = next(name for i in self._numbers if (name := f"{base}{self._suffix}_{i}") not in self.names)
        self.names.add(name)
        return name

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and return the output's name. An input "" is omitted."""
        (output,) = self.ops(op_type, *inputs, outputs=1, **attributes)
        return output

    def ops(self, op_type: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """As `op` for a node with several outputs; returns their names."""
        names = [self.name(op_type) for _ in range(outputs)]
        self.add(onnx.helper.make_node(op_type, inputs, names, **attributes))
        return names

    def add(self, node: onnx.NodeProto) -> None:
        """Add a node whose outputs have names from `name`, or "" if they are omitted."""
        self.added.append(node)

    def tensor(self, value: np.ndarray[Any, Any]) -> str:
        """A constant of any shape and type."""
        return self.op("Constant", value=onnx.numpy_helper.from_array(value))

    def ints(self, values: Iterable[int]) -> str:
        """A constant of int64 [n]."""
        return self.tensor(np.array(list(values), np.int64).reshape(-1))

    def number(self, value: float, kind: str) -> str:
        """A constant of rank 0 for an expression of this `Value.kind`."""
        raise NotImplementedError

    def element_type(self, name: str) -> int | None:  # noqa: ARG002
        """A tensor's element type as a number of TensorProto.DataType; None if it is unknown."""
        return None

    def lengths(self, name: str) -> list[Length] | None:  # noqa: ARG002
        """A tensor's shape: an int, a symbolic name or None for each axis. None if the rank is unknown."""
        return None


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in an expression: + - * / < > and others between tensors and numbers add nodes.

    graph: the builder to add nodes to. name: name of the tensor.
    kind: the element type of numbers in the expression, as `NodeBuilder.number` takes it. The kind of a comparison is
        `NodeBuilder.truth`, or that of its first operand if this is None.
    """

    graph: NodeBuilder
    name: str
    kind: str

    def op(self, op_type: str, *others: Self | float, kind: str | None = None, **attributes: Any) -> Self:
        """Add a node whose first input is this tensor, and return its output, of the same kind unless given."""
        names = [self.of(other).name for other in others]
        return type(self)(self.graph, self.graph.op(op_type, self.name, *names, **attributes), kind or self.kind)

    def of(self, value: Self | float) -> Self:
        """The value itself, or a number as a constant."""
        return (
            value
            if isinstance(value, Value)
            else type(self)(self.graph, self.graph.number(value, self.kind), self.kind)
        )

    def compare(self, op_type: str, other: Self | float) -> Self:
        """Add a comparison with another tensor or number, such as Equal."""
        return self.op(op_type, other, kind=self.graph.truth)

    def __add__(self, other: Self | float) -> Self:
        return self.op("Add", other)

    def __radd__(self, other: float) -> Self:
        return self.of(other) + self

    def __sub__(self, other: Self | float) -> Self:
        return self.op("Sub", other)

    def __rsub__(self, other: float) -> Self:
        return self.of(other) - self

    def __mul__(self, other: Self | float) -> Self:
        return self.op("Mul", other)

    def __rmul__(self, other: float) -> Self:
        return self.of(other) * self

    def __truediv__(self, other: Self | float) -> Self:
        return self.op("Div", other)

    def __rtruediv__(self, other: float) -> Self:
        return self.of(other) / self

    def __neg__(self) -> Self:
        return self.op("Neg")

    def __abs__(self) -> Self:
        return self.op("Abs")

    def __and__(self, other: Self) -> Self:
        return self.op("And", other)

    def __lt__(self, other: Self | float) -> Self:
        return self.compare("Less", other)

    def __le__(self, other: Self | float) -> Self:
        return self.compare("LessOrEqual", other)

    def __gt__(self, other: Self | float) -> Self:
        return self.compare("Greater", other)

    def __ge__(self, other: Self | float) -> Self:
        return self.compare("GreaterOrEqual", other)

    def equals(self, other: Self | float) -> Self:
        """Compare elementwise."""
        return self.compare("Equal", other)


HALF = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def upcast(graph: NodeBuilder, name: str) -> str:
    """The tensor cast to float32 if it is float16 or bfloat16, else the tensor itself."""
    return graph.op("Cast", name, to=onnx.TensorProto.FLOAT) if graph.element_type(name) in HALF else name


def downcast(graph: NodeBuilder, name: str, like: str) -> str:
    """The tensor cast to the type of `like` if that is float16 or bfloat16; undoes `upcast`."""
    return graph.op("CastLike", name, like) if graph.element_type(like) in HALF else name
