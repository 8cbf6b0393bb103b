"""A graph that grows at its end: what a rule needs to write the nodes of a gradient."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx

from onnx_models.walk import label, subgraphs
from ortops.spec import DOMAIN, DOMAIN_VERSION

Length = int | str | None


class Node:
    """A node whose gradient is wanted.

    proto: the node itself. version: the opset of its domain that the model imports.
    wanted: for each input, whether its gradient is.
    """

    def __init__(self, proto: onnx.NodeProto, version: int, wanted: Sequence[bool]) -> None:
        self.proto, self.version, self.wanted = proto, version, wanted
        self._attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs, "" for an absent one."""
        return list(self.proto.input)

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs, "" for an unwanted one."""
        return list(self.proto.output)

    def input(self, i: int) -> str:
        """The name of input i, "" where the node does not have it."""
        return self.proto.input[i] if i < len(self.proto.input) else ""

    def wants(self, i: int) -> bool:
        """Whether the gradient of input i is wanted."""
        return i < len(self.wanted) and self.wanted[i]

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, strings as str, or the default."""
        value = self._attributes.get(name, default)
        return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value

    def __str__(self) -> str:
        return label(self.proto)


class Graph:
    """A model's graph, and nodes to be added at its end.

    Args:
        model: with inferred types and shapes; it is read, and changed by `finish` only.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._new: list[onnx.NodeProto] = []
        self._names = set(_names(model.graph))
        self._numbers = itertools.count()
        self._shapes: dict[str, str] = {}
        self._types = {value.name: value.type.tensor_type for value in _values(model.graph)}
        for tensor in model.graph.initializer:
            kind = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
            self._types[tensor.name] = kind.tensor_type

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output of ONNX's own domain; the output's name. An input "" is absent."""
        (output,) = self.ops(op_type, *inputs, outputs=1, **attributes)
        return output

    def ops(self, op_type: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """As `op`, for a node with several outputs."""
        names = [self.name(op_type) for _ in range(outputs)]
        self.add(onnx.helper.make_node(op_type, inputs, names, name=names[0], **attributes))
        return names

    def add(self, node: onnx.NodeProto) -> None:
        """Add a node whose outputs have names from `name`, or "" for the unwanted ones."""
        self._new.append(node)

    def name(self, base: str) -> str:
        """A name that nothing in the model has."""
        return self.reserve(next(n for n in (f"{base}_grad_{i}" for i in self._numbers) if n not in self._names))

    def reserve(self, name: str) -> str:
        """Take a name.

        Raises:
            ValueError: something in the model has it.
        """
        if name in self._names:
            raise ValueError(f"the model has a tensor {name!r} already: the name is needed for a gradient")
        self._names.add(name)
        return name

    def element_type(self, name: str) -> int | None:
        """ONNX's number of a tensor's element type, None where it is not known."""
        kind = self._types.get(name)
        return (kind.elem_type or None) if kind is not None else None

    def lengths(self, name: str) -> list[Length] | None:
        """A tensor's shape: numbers, names, or None where a length is not known; None where the rank is not."""
        kind = self._types.get(name)
        if kind is None or not kind.HasField("shape"):
            return None
        return [getattr(dim, which) if (which := dim.WhichOneof("value")) else None for dim in kind.shape.dim]

    def rank(self, name: str, node: Node) -> int:
        """The rank of a tensor that a rule has to know.

        Raises:
            ValueError: shape inference does not find it.
        """
        lengths = self.lengths(name)
        if lengths is None:
            raise ValueError(f"{node}: the rank of {name!r} must be known, and shape inference does not find it")
        return len(lengths)

    def shape(self, name: str) -> str:
        """The shape of a tensor as a tensor, int64."""
        if name not in self._shapes:
            self._shapes[name] = self.op("Shape", name)
        return self._shapes[name]

    def again(self, node: Node, *inputs: str) -> str:
        """Add a copy of a node of the model that has one output and other inputs; the output's name."""
        name = self.name(node.proto.op_type)
        made = onnx.helper.make_node(node.proto.op_type, inputs, [name], name=name, domain=node.proto.domain)
        made.attribute.extend(node.proto.attribute)
        self.add(made)
        return name

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """The value of a constant of the model; None where it is none, or lies outside the model's file."""
        if any(value.name == name for value in self._model.graph.input):
            return None
        for node in self._model.graph.node:
            if node.op_type == "Constant" and name in node.output:
                return _value_of(node.attribute[0]) if node.attribute else None
        tensors = (tensor for tensor in self._model.graph.initializer if tensor.name == name)
        return next(map(_array, tensors), None)

    def ints(self, values: Sequence[int]) -> str:
        """A constant of int64 [n]."""
        return self.op("Constant", value=onnx.numpy_helper.from_array(np.array(values, np.int64).reshape(-1)))

    def number(self, value: float, like: str) -> str:
        """A constant of rank 0 and of the element type of another tensor."""
        kind = self.element_type(like)
        tensor = onnx.helper.make_tensor("value", kind or onnx.TensorProto.DOUBLE, (), [value])
        number = self.op("Constant", value=tensor)
        return number if kind is not None else self.op("CastLike", number, like)

    def zeros(self, like: str) -> str:
        """Zeros of the shape and the element type of another tensor."""
        return self.op("Expand", self.number(0.0, like), self.shape(like))

    def masked(self, condition: str, name: str, like: str) -> str:
        """A tensor where a condition holds, zeros (of the element type of `like`) elsewhere."""
        return self.op("Where", condition, name, self.number(0.0, like))

    def reshaped(self, name: str, like: str) -> str:
        """A tensor in the shape of another."""
        # allowzero: a length of 0 is one, not a length to be copied.
        return self.op("Reshape", name, self.shape(like), allowzero=1)

    def finish(self, outputs: Iterable[tuple[str, str, str]]) -> onnx.ModelProto:
        """The model with those of the added nodes that the outputs need, and the outputs.

        Args:
            outputs: for each the name of its value, its own, and the tensor it is like.
        """
        graph, outputs = self._model.graph, list(outputs)
        self._new = _needed(self._new, {value for value, _, _ in outputs})
        graph.node.extend(self._new)
        for value, name, like in outputs:
            graph.node.add().CopyFrom(onnx.helper.make_node("Identity", [value], [name], name=name))
            info = graph.output.add(name=name)
            info.type.tensor_type.CopyFrom(self._types[like])
        opsets = self._model.opset_import
        if any(node.domain == DOMAIN for node in self._new) and all(item.domain != DOMAIN for item in opsets):
            opsets.append(onnx.helper.make_opsetid(DOMAIN, DOMAIN_VERSION))
        return self._model


def _value_of(constant: onnx.AttributeProto) -> np.ndarray[Any, Any] | None:
    """The value of a Constant node, from the one attribute that it has."""
    if constant.name == "value":
        return _array(constant.t)
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    kind = kinds.get(constant.name)
    return None if kind is None else np.array(onnx.helper.get_attribute_value(constant), kind)


def _array(tensor: onnx.TensorProto) -> np.ndarray[Any, Any] | None:
    return None if tensor.data_location == onnx.TensorProto.EXTERNAL else onnx.numpy_helper.to_array(tensor)


def _needed(nodes: Sequence[onnx.NodeProto], names: set[str]) -> list[onnx.NodeProto]:
    """Those of the nodes, each after what it reads from, that tensors of these names depend on."""
    needed = []
    for node in reversed(nodes):
        if not names.isdisjoint(node.output):
            names.update(reads(node))
            needed.append(node)
    return needed[::-1]


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.value_info
    yield from graph.input
    yield from graph.output


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """All names of tensors in a graph and its subgraphs."""
    for value in _values(graph):
        yield value.name
    for tensor in graph.initializer:
        yield tensor.name
    for sparse in graph.sparse_initializer:
        yield sparse.values.name
    for node in graph.node:
        yield from node.input
        yield from node.output
        for subgraph in subgraphs([node]):
            yield from _names(subgraph)


def reads(node: onnx.NodeProto) -> Collection[str]:
    """Names of the tensors that a node reads, those that its subgraphs take from outside (and their own) included."""
    names = {name for name in node.input if name}
    for graph in subgraphs([node]):
        for inner in graph.node:
            names.update(reads(inner))
        names.update(value.name for value in graph.output)
    return names
