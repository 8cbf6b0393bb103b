"""A graph that grows at its end: what a rule needs to write the nodes of a gradient."""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx

from onnx_models.tools import inferred, node_checker
from onnx_models.walk import label, names_in, subgraphs, with_inner
from ortops.spec import DOMAIN, DOMAIN_VERSION

Length = int | str | None

_MOST_FOLDED = 1024
"""How many elements a constant may have that shape inference is shown."""


class Reverse(Protocol):
    """Reverse mode with what is wanted of the whole model, and with its findings."""

    def __call__(
        self, graph: Graph, nodes: Sequence[onnx.NodeProto], seeds: Mapping[str, str], wrt: Collection[str]
    ) -> dict[str, str]:
        """Add nodes that compute gradients; their names by those of `wrt` that have one."""

    def reached(self, graph: Graph, nodes: Sequence[onnx.NodeProto], wrt: Collection[str]) -> set[str]:
        """The tensors that depend on `wrt` in a way that has a derivative."""


class Node:
    """A node whose gradient is wanted.

    proto: the node itself. version: the opset of its domain that the model imports.
    wanted: for each input, whether its gradient is.
    captured: names of the tensors from outside that the node's subgraphs read and whose gradients are wanted.
    reverse: reverse mode over nodes inside of it; None for a node that is not to be differentiated.
    """

    def __init__(
        self,
        proto: onnx.NodeProto,
        version: int,
        wanted: Sequence[bool],
        captured: Sequence[str] = (),
        reverse: Reverse | None = None,
    ) -> None:
        self.proto, self.version, self.wanted, self.captured = proto, version, wanted, captured
        self._reverse = reverse
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

    def output(self, i: int) -> str:
        """The name of output i, "" where the node does not have it."""
        return self.proto.output[i] if i < len(self.proto.output) else ""

    def wants(self, i: int) -> bool:
        """Whether the gradient of input i is wanted."""
        return i < len(self.wanted) and self.wanted[i]

    @property
    def reverse(self) -> Reverse:
        """Reverse mode over other nodes, as in `onnx_models.gradient.backward`, for a rule that needs it."""
        if self._reverse is None:
            raise ValueError(f"{self} is not being differentiated")
        return self._reverse

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, strings as str, or the default."""
        value = self._attributes.get(name, default)
        return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value

    def __str__(self) -> str:
        return label(self.proto)


@dataclass
class _Known:
    """What is known of the tensors that a graph may read.

    names: all that are taken, in the whole model. numbers: for new names.
    types, producers, initializers: of tensors, by name. constants: names by value. shapes: names by what they are the shape of.
    masks: by the names of gradients by what Where chooses, the conditions outside of which they are 0.
    """

    names: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    types: MutableMapping[str, onnx.TypeProto.Tensor] = field(default_factory=dict)
    producers: MutableMapping[str, onnx.NodeProto] = field(default_factory=dict)
    initializers: MutableMapping[str, onnx.TensorProto] = field(default_factory=dict)
    constants: MutableMapping[bytes, str] = field(default_factory=dict)
    shapes: MutableMapping[tuple[str, int, int | None], str] = field(default_factory=dict)
    masks: MutableMapping[str, tuple[str, ...]] = field(default_factory=dict)

    def inner(self) -> _Known:
        """The same for a graph inside: it knows what the outer one does, and keeps its own to itself."""
        tables = (self.types, self.producers, self.initializers, self.constants, self.shapes, self.masks)
        return _Known(self.names, self.numbers, *(ChainMap({}, table) for table in tables))


class Graph:
    """A graph of a model, or of a node in it, and nodes to be added at its end.

    Args:
        proto: the graph, with inferred types and shapes; it is read only.
        opsets: version of each domain that the model imports.
        outer: the graph around it, whose tensors it may read; None for that of a model.
    """

    def __init__(self, proto: onnx.GraphProto, opsets: Mapping[str, int], outer: Graph | None = None) -> None:
        self.proto, self.opsets, self.outer = proto, opsets, outer
        self.check: Callable[[onnx.NodeProto], None] = node_checker(opsets) if outer is None else outer.check
        """Raises ValueError where a node without subgraphs breaks a rule of its operator's schema."""
        self.added: list[onnx.NodeProto] = []
        """The new nodes, each after those that it reads from."""
        self.replaced: dict[int, Sequence[onnx.NodeProto]] = {}
        """By places in `proto.node`, nodes that take the place of the one there."""
        self.known: _Known = outer.known.inner() if outer else _Known()
        known = self.known
        known.names.update(names_in(proto))
        known.types.update({value.name: value.type.tensor_type for value in _values(proto)})
        for tensor in proto.initializer:
            kind = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
            known.types[tensor.name] = kind.tensor_type
        known.producers.update({name: node for node in proto.node for name in node.output if name})
        fed = {value.name for value in proto.input}
        known.initializers.update({tensor.name: tensor for tensor in proto.initializer if tensor.name not in fed})

    # Adding nodes.

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
        self.added.append(node)
        self.known.producers.update({name: node for name in node.output if name})

    def replay(self, node: Node, *inputs: str) -> str:
        """Add a copy of a node of the model that has one output and other inputs; the output's name."""
        name = self.name(node.proto.op_type)
        made = onnx.helper.make_node(node.proto.op_type, inputs, [name], name=name, domain=node.proto.domain)
        made.attribute.extend(node.proto.attribute)
        self.add(made)
        return name

    def replace(self, node: onnx.NodeProto, others: Sequence[onnx.NodeProto]) -> None:
        """Put other nodes in the place of one of `proto`, or of a new one, with its outputs and perhaps more."""
        new = next((i for i, one in enumerate(self.added) if one is node), None)
        if new is None:
            place = next(i for i, one in enumerate(self.proto.node) if one is node or one == node)
            self.replaced[place] = others
        else:
            self.added[new : new + 1] = others
        self.known.producers.update({name: other for other in others for name in other.output if name})

    def with_replaced(self) -> list[onnx.NodeProto]:
        """The nodes of `proto`, those that were replaced by what is in their place."""
        return [one for i, node in enumerate(self.proto.node) for one in self.replaced.get(i, [node])]

    def name(self, base: str) -> str:
        """A name that nothing in the model has."""
        return self.reserve(
            next(n for n in (f"{base}_grad_{i}" for i in self.known.numbers) if n not in self.known.names)
        )

    def reserve(self, name: str) -> str:
        """Take a name.

        Raises:
            ValueError: something in the model has it.
        """
        if name in self.known.names:
            raise ValueError(
                f"the model has a tensor {name!r} already: the name must be free, or names as a mapping must give another"
            )
        self.known.names.add(name)
        return name

    # What is known of tensors.

    def producer(self, name: str) -> onnx.NodeProto | None:
        """The node that makes a tensor, None for an input or an initializer."""
        return self.known.producers.get(name)

    def type_of(self, name: str) -> onnx.TypeProto.Tensor | None:
        """What is known of a tensor's element type and shape, of a new one by shape inference over new nodes."""
        if name not in self.known.types and (producer := self.known.producers.get(name)) is not None:
            if self.outer is not None and self.outer.producer(name) is producer:
                return self.outer.type_of(name)
            self.infer_added([producer])
        return self.known.types.get(name)

    def element_type(self, name: str) -> int | None:
        """ONNX's number of a tensor's element type, None where it is not known."""
        kind = self.type_of(name)
        return (kind.elem_type or None) if kind is not None else None

    def lengths(self, name: str) -> list[Length] | None:
        """A tensor's shape: numbers, names, or None where a length is not known; None where the rank is not."""
        kind = self.type_of(name)
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

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """The value of a constant of the model; None where it is none, or lies outside the model's file."""
        node = self.known.producers.get(name)
        if node is not None:
            return _value_of(node.attribute[0]) if node.op_type == "Constant" and node.attribute else None
        tensor = self.known.initializers.get(name)
        return None if tensor is None else _array(tensor)

    def inherit_type(self, gradient: str, name: str) -> None:
        """Enter that the gradient by a tensor has its type and shape, where inference over new nodes tells less."""
        kind, own = self.type_of(name), self.known.types.get(gradient)
        is_whole = own is not None and own.HasField("shape") and all(dim.HasField("dim_value") for dim in own.shape.dim)
        if kind is not None and kind.HasField("shape") and not is_whole:
            self.known.types[gradient] = kind

    def is_constant(self, name: str) -> bool:
        """Whether a tensor has the same value in all runs: a session computes what follows from it once."""
        node = self.known.producers.get(name)
        return name in self.known.initializers or (node is not None and node.op_type == "Constant")

    def infer_added(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Infer types and shapes of what new nodes make, and of what they are made from."""
        places = {id(node): place for place, node in enumerate(self.added)}
        behind: dict[int, onnx.NodeProto] = {}
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if id(node) not in behind:
                behind[id(node)] = node
                producers = (self.known.producers.get(name) for name in reads(node) if self._is_behind(name))
                waiting += [producer for producer in producers if producer is not None and id(producer) in places]
        self.infer(sorted(behind.values(), key=lambda node: places.get(id(node), -1)))

    def infer(self, nodes: Sequence[onnx.NodeProto], more: Mapping[str, onnx.TypeProto.Tensor] | None = None) -> None:
        """Infer types and shapes of what nodes make, each of which is after those that it reads from.

        Args:
            nodes: the nodes.
            more: types that inference would not find. Of the lengths names are left out that the nodes read nothing of.
        """
        model = self.fragment(nodes)
        # Lengths that inference gives a name to have another one in each model that it sees, which has to be a new one.
        renamed = {dim.dim_param: dim.dim_param for dim in _named_lengths(model.graph)}
        for name, kind in (more or {}).items():
            value = model.graph.value_info.add(name=name)
            value.type.tensor_type.CopyFrom(kind)
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param not in renamed:
                    dim.ClearField("dim_param")
        found = inferred(model, data_prop=True).graph
        for dim in _named_lengths(found):
            if dim.dim_param not in renamed:
                renamed[dim.dim_param] = f"{dim.dim_param}_{next(self.known.numbers)}"
            dim.dim_param = renamed[dim.dim_param]
        for value in _values(found):
            earlier = self.known.types.get(value.name)
            if earlier is None or not earlier.HasField("shape"):
                self.known.types[value.name] = value.type.tensor_type
        for node in nodes:  # what inference does not find is asked for once
            for name in filter(None, node.output):
                self.known.types.setdefault(name, onnx.TypeProto.Tensor())

    def _is_behind(self, name: str) -> bool:
        """Whether inference has to see how a tensor is made: its type is unknown, or it may be a shape."""
        kind = self.known.types.get(name)
        return kind is None or (kind.elem_type == onnx.TensorProto.INT64 and len(kind.shape.dim) <= 1)

    def fragment(self, nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
        """Nodes as a model: its inputs are the tensors that they read, small constants are initializers."""
        made = onnx.ModelProto(ir_version=onnx.IR_VERSION)
        opsets = {DOMAIN: DOMAIN_VERSION, **self.opsets}  # new nodes are of our domain where the model has none of it
        made.opset_import.extend(onnx.helper.make_opsetid(*item) for item in opsets.items())
        graph = made.graph
        graph.name = "fragment"
        graph.node.extend(nodes)
        forget_lengths_inside(graph)
        inside = {name for node in nodes for name in node.output}
        for name in sorted({name for node in nodes for name in reads(node)} - inside):
            if self.outer is not None and name not in self.known.types:
                self.outer.type_of(name)  # so that it is learnt by the graph that has its producer
            value = self.constant(name)
            if value is not None and value.size <= _MOST_FOLDED:
                graph.initializer.append(onnx.numpy_helper.from_array(value, name))
            elif (kind := self.known.types.get(name)) is not None and kind.elem_type:
                graph.input.add(name=name).type.tensor_type.CopyFrom(kind)
        return made

    # Tensors that rules often need.

    def shape(self, name: str, start: int = 0, end: int | None = None) -> str:
        """The shape of a tensor, or a part of it, as a tensor, int64: a constant where it is known."""
        lengths = self.lengths(name)
        if lengths is not None and all(isinstance(length, int) for length in lengths[start:end]):
            return self.ints([length for length in lengths[start:end] if isinstance(length, int)])
        part = {"start": start} if start else {}
        part |= {} if end is None else {"end": end}
        key = name, start, end
        if key not in self.known.shapes:
            self.known.shapes[key] = self.op("Shape", name, **part)
        return self.known.shapes[key]

    def ints(self, values: Iterable[int]) -> str:
        """A constant of int64 [n]."""
        return self.tensor(np.array(list(values), np.int64).reshape(-1))

    def tensor(self, value: np.ndarray[Any, Any]) -> str:
        """A constant of any shape and type."""
        return self._constant(onnx.numpy_helper.from_array(value))

    def number(self, value: float, like: str) -> str:
        """A constant of rank 0 and of the element type of another tensor."""
        kind = self.element_type(like)
        number = self._constant(onnx.helper.make_tensor("value", kind or onnx.TensorProto.DOUBLE, (), [value]))
        return number if kind is not None else self.op("CastLike", number, like)

    def _constant(self, tensor: onnx.TensorProto) -> str:
        key = tensor.SerializeToString(deterministic=True)
        if key not in self.known.constants:
            self.known.constants[key] = self.op("Constant", value=tensor)
        return self.known.constants[key]

    def zeros(self, like: str) -> str:
        """Zeros of the shape and the element type of another tensor."""
        shape = self.shape(like)
        made = self.op("Expand", self.number(0.0, like), shape)
        self.known.shapes[made, 0, None] = shape
        return made

    def masked(self, condition: str, name: str, like: str) -> str:
        """A tensor where a condition holds, zeros (of the element type of `like`) elsewhere."""
        return self.keep_masks(self.op("Where", condition, name, self.number(0.0, like)), name)

    def selected(self, condition: str, name: str, like: str) -> str:
        """As `masked`, for a gradient of what Where chooses by this condition; that is kept in mind for `remasked`."""
        made = self.masked(condition, name, like)
        self.known.masks[made] = (*self.known.masks.get(name, ()), condition)
        return made

    def remasked(self, name: str, gradient: str, like: str) -> str:
        """What was made of a gradient element by element, 0 where Where did not choose what that is the gradient by.

        A derivative may be infinite or no number there, as that of log(x) in Where(x > 0, log(x), 0): times 0 it would be
        no number. A gradient that just happens to be 0 is no such case: an infinite derivative shows. Relu, Clip and others
        are none either, as in PyTorch: a mask costs about as much as a product.
        """
        for condition in self.known.masks.get(gradient, ()):
            name = self.selected(condition, name, like)
        return name

    def without_nan(self, name: str, gradient: str, like: str) -> str:
        """A tensor with 0 for NaN, but for what Where chooses of it, where the gradient is by that choice."""
        for condition in self.known.masks.get(gradient, ()):
            number = self.op("Not", self.op("IsNaN", name))
            name = self.masked(self.op("Or", condition, number), name, like)
        return name

    def keep_masks(self, name: str, *gradients: str) -> str:
        """The tensor, made of these gradients, which is 0 where each of them is by the same choices of Where."""
        first, *others = (self.known.masks.get(gradient, ()) for gradient in gradients)
        shared = tuple(one for one in first if all(one in masks for masks in others))
        if shared:
            self.known.masks[name] = shared
        return name

    def reshaped(self, name: str, like: str) -> str:
        """A tensor in the shape of another."""
        # allowzero: a length of 0 is one, not a length to be copied.
        return self.op("Reshape", name, self.shape(like), allowzero=1)

    def needed(self, names: Collection[str]) -> list[onnx.NodeProto]:
        """Those of the new nodes, each after what it reads from, that tensors of these names depend on."""
        return needed(self.added, names)


def needed(nodes: Sequence[onnx.NodeProto], names: Collection[str]) -> list[onnx.NodeProto]:
    """Those of some nodes, each after what it reads from, that tensors of these names depend on."""
    wanted, found = set(names), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(reads(node))
            found.append(node)
    return found[::-1]


def _value_of(constant: onnx.AttributeProto) -> np.ndarray[Any, Any] | None:
    """The value of a Constant node, from the one attribute that it has."""
    if constant.name == "value":
        return _array(constant.t)
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    kind = kinds.get(constant.name)
    return None if kind is None else np.array(onnx.helper.get_attribute_value(constant), kind)


def _array(tensor: onnx.TensorProto) -> np.ndarray[Any, Any] | None:
    return None if tensor.data_location == onnx.TensorProto.EXTERNAL else onnx.numpy_helper.to_array(tensor)


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.value_info
    yield from graph.input
    yield from graph.output


def forget_lengths_inside(graph: onnx.GraphProto) -> None:
    """Leave of the shapes that graphs inside of nodes declare the ranks alone: lengths may be older than those of inputs."""
    for node in with_inner(graph.node):
        for inner in subgraphs([node]):
            del inner.value_info[:]
            for value in (*inner.input, *inner.output):
                for length in value.type.tensor_type.shape.dim:
                    length.Clear()


def _named_lengths(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for value in _values(graph):
        yield from (dim for dim in value.type.tensor_type.shape.dim if dim.dim_param)


def reads(node: onnx.NodeProto) -> Collection[str]:
    """Names of the tensors that a node reads, those that its subgraphs take from outside included."""
    names = {name for name in node.input if name}
    for graph in subgraphs([node]):
        names |= captured(graph)
    return names


def captured(graph: onnx.GraphProto) -> set[str]:
    """Names of the tensors from outside that a graph of a node reads."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {sparse.values.name for sparse in graph.sparse_initializer}
    names = set()
    for node in graph.node:
        names |= set(reads(node)) - own
        own.update(node.output)
    return names | {value.name for value in graph.output if value.name not in own}
