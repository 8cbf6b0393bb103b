"""The graph that rules append the nodes of gradients to, with what is known of its tensors."""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx

from onnx_models.attributes import CUSTOM, unknown_among
from onnx_models.gradient.ours import DOMAIN, DOMAIN_VERSION
from onnx_models.nodes import NodeBuilder, Value
from onnx_models.onnx_tools import constant_attribute, infer_shapes, node_checker
from onnx_models.traversal import iter_nodes, label, subgraphs, tensor_names

Length = int | str | None

_MAX_FOLDED = 1024
"""The most elements of a constant whose value is given to shape inference."""


class Reverse(Protocol):
    """Reverse mode with the options of the whole model."""

    def __call__(
        self, graph: Graph, nodes: Sequence[onnx.NodeProto], seeds: Mapping[str, str], wrt: Collection[str]
    ) -> dict[str, str]:
        """Add nodes that compute gradients; return the names of the gradients that exist, by names in `wrt`."""

    def reached(self, graph: Graph, nodes: Sequence[onnx.NodeProto], wrt: Collection[str]) -> set[str]:
        """The names of all tensors that depend on `wrt` through differentiable operators."""


class Node:
    """A node to differentiate.

    proto: the node itself. version: the opset of its domain that the model imports.
    wanted: for each input, whether its gradient is needed.
    captured: names of the outer tensors that the node's subgraphs read and whose gradients are needed.
    reverse: reverse mode for the nodes of its subgraphs; None for a node that is not differentiated.
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

    def wants(self, i: int) -> bool:
        """Whether the gradient of input i is needed."""
        return i < len(self.wanted) and self.wanted[i]

    @property
    def reverse(self) -> Reverse:
        """Reverse mode over other nodes, see `onnx_models.gradient.backward`."""
        if self._reverse is None:
            raise ValueError(f"{self} is not being differentiated")
        return self._reverse

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or the default; strings as str."""
        value = self._attributes.get(name, default)
        return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value

    def __str__(self) -> str:
        return label(self.proto)


@dataclass
class _Known:
    """What is known of the tensors in scope of a graph.

    names: all names in use in the whole model. numbers: a counter for new names.
    types, producers, initializers: by tensor name. constants: names of constants by value.
    shapes: names of shape tensors by (tensor, start, end).
    masks: for gradients of the inputs of Where, the names of the conditions outside of which the gradient is 0.
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
        """The scope of a subgraph: it sees what is known here, and adds to its own tables only."""
        tables = (self.types, self.producers, self.initializers, self.constants, self.shapes, self.masks)
        return _Known(self.names, self.numbers, *(ChainMap({}, table) for table in tables))


class Graph(NodeBuilder):
    """The graph of a model, or a subgraph, with nodes to be appended.

    Args:
        proto: the graph, with inferred types and shapes; not modified.
        opsets: version of each domain that the model imports.
        outer: the enclosing graph of a subgraph; None for the graph of a model.
    """

    def __init__(self, proto: onnx.GraphProto, opsets: Mapping[str, int], outer: Graph | None = None) -> None:
        self.proto, self.opsets, self.outer = proto, opsets, outer
        # A model need not import our domain, nor that of a user's gradient operator.
        self._opsets = {
            DOMAIN: DOMAIN_VERSION,
            **dict.fromkeys((domain for domain, _ in CUSTOM), DOMAIN_VERSION),
            **opsets,
        }
        self.check: Callable[[onnx.NodeProto], None] = node_checker(self._opsets) if outer is None else outer.check
        """Raises ValueError if a node without subgraphs does not match its operator's schema."""
        self.replaced: dict[str, Sequence[onnx.NodeProto]] = {}
        """The nodes that replace a node of `proto`, by the name of its first output."""
        self._new: dict[int, onnx.NodeProto] = {}
        """The members of `added` by identity."""
        self.known: _Known = outer.known.inner() if outer else _Known()
        known = self.known
        super().__init__(known.names, "_grad", known.numbers)
        known.names.update(tensor_names(proto))
        known.types.update({value.name: value.type.tensor_type for value in _values(proto)})
        for tensor in proto.initializer:
            kind = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
            known.types[tensor.name] = kind.tensor_type
        known.producers.update({name: node for node in proto.node for name in node.output if name})
        fed = {value.name for value in proto.input}
        known.initializers.update({tensor.name: tensor for tensor in proto.initializer if tensor.name not in fed})

    # Adding nodes.

    def add(self, node: onnx.NodeProto) -> None:
        """Add a node whose outputs have names from `name`, or "" if they are omitted; without a name it gets the first."""
        node.name = node.name or _first_output(node)
        if node.op_type == "Constant" and not node.domain:
            value = constant_attribute(node.attribute[0])
            del node.attribute[:]
            node.attribute.append(value)
        super().add(node)
        self._new[id(node)] = node
        self.known.producers.update({name: node for name in node.output if name})
        if self.known.masks:
            self._keep_masks(node)

    def replay(self, node: Node, *inputs: str) -> str:
        """Add a copy of a single-output node with other inputs, and return the output's name."""
        name = self.name(node.proto.op_type)
        made = onnx.helper.make_node(node.proto.op_type, inputs, [name], domain=node.proto.domain)
        made.attribute.extend(node.proto.attribute)
        self.add(made)
        return name

    def replace(self, node: onnx.NodeProto, others: Sequence[onnx.NodeProto]) -> None:
        """Replace a node of `proto`, or a new one, by other nodes that have all of its outputs."""
        if id(node) in self._new:
            place = next(i for i, one in enumerate(self.added) if one is node)
            self.added[place : place + 1] = others
            self._new |= {id(other): other for other in others}
        else:
            self.replaced[_first_output(node)] = others
        self.known.producers.update({name: other for other in others for name in other.output if name})

    def is_new(self, node: onnx.NodeProto) -> bool:
        """Whether a node was added, and is not one of `proto`."""
        return id(node) in self._new

    def with_replaced(self) -> list[onnx.NodeProto]:
        """The nodes of `proto` after all replacements."""
        if not self.replaced:
            return list(self.proto.node)
        return [one for node in self.proto.node for one in self.replaced.get(_first_output(node), [node])]

    def reserve(self, name: str) -> str:
        """Mark a name as in use, and return it.

        Raises:
            ValueError: the name is in use already.
        """
        if name in self.known.names:
            raise ValueError(
                f"the model has a tensor {name!r} already: choose another name with a mapping, as in wrt={{'x': 'dx'}}"
            )
        self.known.names.add(name)
        return name

    # Types, shapes and values of tensors.

    def producer(self, name: str) -> onnx.NodeProto | None:
        """The node that computes a tensor; None for an input or an initializer."""
        return self.known.producers.get(name)

    def type_of(self, name: str) -> onnx.TypeProto.Tensor | None:
        """What is known of a tensor's type; runs shape inference for a new tensor."""
        if name not in self.known.types and (producer := self.known.producers.get(name)) is not None:
            if self.outer is not None and self.outer.producer(name) is producer:
                return self.outer.type_of(name)
            self.infer_added([producer])
        return self.known.types.get(name)

    def element_type(self, name: str) -> int | None:
        """A tensor's element type as a number of TensorProto.DataType; None if it is unknown."""
        kind = self.type_of(name)
        return (kind.elem_type or None) if kind is not None else None

    def lengths(self, name: str) -> list[Length] | None:
        """A tensor's shape: an int, a symbolic name or None for each axis. None if the rank is unknown."""
        kind = self.type_of(name)
        if kind is None or not kind.HasField("shape"):
            return None
        return [getattr(dim, which) if (which := dim.WhichOneof("value")) else None for dim in kind.shape.dim]

    def rank(self, name: str, node: Node) -> int:
        """The rank of a tensor.

        Raises:
            ValueError: shape inference does not find it; the message names `node`.
        """
        lengths = self.lengths(name)
        if lengths is None:
            raise ValueError(
                f"{node}: the rank of {name!r} must be known, and shape inference does not find it"
                + unknown_among(self._before(name))
            )
        return len(lengths)

    def _before(self, name: str) -> Iterator[onnx.NodeProto]:
        """The nodes that a tensor of unknown rank depends on through others of unknown rank."""
        waiting, known = [name], {name}
        while waiting:
            node = self.known.producers.get(waiting.pop())
            if node is not None and self.lengths(_first_output(node)) is None:
                yield node
                new = set(input_names(node)) - known
                known |= new
                waiting += new

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """The value of a constant; None if the tensor is not a constant, or if its data is external."""
        node = self.known.producers.get(name)
        if node is not None:
            return _value_of(node.attribute[0]) if node.op_type == "Constant" and node.attribute else None
        tensor = self.known.initializers.get(name)
        return None if tensor is None else _array(tensor)

    def inherit_type(self, gradient: str, name: str) -> None:
        """Set a gradient's type and shape to those of its tensor, unless its whole shape is inferred already."""
        kind, own = self.type_of(name), self.known.types.get(gradient)
        is_whole = own is not None and own.HasField("shape") and all(dim.HasField("dim_value") for dim in own.shape.dim)
        if kind is not None and kind.HasField("shape") and not is_whole:
            self.known.types[gradient] = kind

    def is_constant(self, name: str) -> bool:
        """Whether a tensor is an initializer or a Constant, so that a session folds what is computed from it."""
        node = self.known.producers.get(name)
        return name in self.known.initializers or (node is not None and node.op_type == "Constant")

    def infer_added(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Infer types and shapes of the outputs of new nodes, and of the new tensors that these depend on."""
        behind: dict[int, onnx.NodeProto] = {}  # in topological order
        waiting = list(reversed(nodes))
        while waiting:
            node = waiting[-1]
            producers = (self.known.producers.get(name) for name in input_names(node) if self._is_behind(name))
            missing = [one for one in producers if id(one) in self._new and id(one) not in behind]
            waiting += [one for one in missing if one is not None]
            if not missing:
                behind[id(node)] = waiting.pop()
        self.infer(list(behind.values()))

    def infer(self, nodes: Sequence[onnx.NodeProto], more: Mapping[str, onnx.TypeProto.Tensor] | None = None) -> None:
        """Infer types and shapes of the outputs of nodes.

        Args:
            nodes: in topological order.
            more: types that inference would not find. Symbolic lengths that no input of the nodes has are dropped.
        """
        model = self.fragment(nodes)
        # Inference names unknown lengths anew in each model that it is given: the names have to be made unique here.
        renamed = {dim.dim_param: dim.dim_param for dim in _named_lengths(model.graph)}
        for name, kind in (more or {}).items():
            value = model.graph.value_info.add(name=name)
            value.type.tensor_type.CopyFrom(kind)
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param not in renamed:
                    dim.ClearField("dim_param")
        found = infer_shapes(model, data_prop=True).graph
        for dim in _named_lengths(found):
            if dim.dim_param not in renamed:
                renamed[dim.dim_param] = f"{dim.dim_param}_{next(self.known.numbers)}"
            dim.dim_param = renamed[dim.dim_param]
        for value in _values(found):
            earlier = self.known.types.get(value.name)
            if earlier is None or not earlier.HasField("shape"):
                self.known.types[value.name] = value.type.tensor_type
        for node in nodes:  # do not infer again what was not found
            for name in filter(None, node.output):
                self.known.types.setdefault(name, onnx.TypeProto.Tensor())

    def _is_behind(self, name: str) -> bool:
        """Whether inference needs the node that computes a tensor: its type is unknown, or it may be a shape."""
        kind = self.known.types.get(name)
        return kind is None or (kind.elem_type == onnx.TensorProto.INT64 and len(kind.shape.dim) <= 1)

    def fragment(self, nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
        """A model of some nodes. Its inputs are the tensors that they read; small constants are initializers."""
        made = onnx.ModelProto(ir_version=onnx.IR_VERSION)
        made.opset_import.extend(onnx.helper.make_opsetid(*item) for item in self._opsets.items())
        graph = made.graph
        graph.name = "fragment"
        graph.node.extend(nodes)
        forget_lengths_inside(graph)
        inside = {name for node in nodes for name in node.output}
        for name in sorted({name for node in nodes for name in input_names(node)} - inside):
            if self.outer is not None and name not in self.known.types:
                self.outer.type_of(name)  # inferred by the graph that contains its producer
            value = self.constant(name)
            if value is not None and value.size <= _MAX_FOLDED:
                graph.initializer.append(onnx.numpy_helper.from_array(value, name))
            elif (kind := self.known.types.get(name)) is not None and kind.elem_type:
                graph.input.add(name=name).type.tensor_type.CopyFrom(kind)
        return made

    # Constants, shapes and masks.

    def shape(self, name: str, start: int = 0, end: int | None = None) -> str:
        """The shape of a tensor, or lengths start to end of it, as an int64 tensor; a constant if it is known."""
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
        made = self.op("Expand", self.number(0.0, like), shape)
        self.known.shapes[made, 0, None] = shape
        return made

    def masked(self, condition: str, name: str, like: str) -> str:
        """The tensor `name` where the condition holds, and zeros (of the element type of `like`) elsewhere."""
        return self.op("Where", condition, name, self.number(0.0, like))

    def selected(self, condition: str, name: str, like: str) -> str:
        """As `masked`, for the gradient of an input of Where; the condition is remembered for `remasked`."""
        made = self.masked(condition, name, like)
        self.known.masks[made] = (*self.known.masks.get(name, ()), condition)
        return made

    def remasked(self, name: str, gradient: str, like: str) -> str:
        """Mask a tensor, computed elementwise from a gradient, with the conditions of Where that mask the gradient.

        A derivative may be infinite or NaN where Where did not select its input, as that of log(x) in
        Where(x > 0, log(x), 0); 0 times it would be NaN. A gradient that only happens to be 0 is not masked: an infinite
        derivative shows. Relu, Clip and others do not mask either, as in PyTorch: a mask costs about as much as a product.
        """
        for condition in self.known.masks.get(gradient, ()):
            if condition not in self.known.masks.get(name, ()):
                name = self.selected(condition, name, like)
        return name

    def without_nan(self, name: str, gradient: str, like: str) -> str:
        """The tensor with 0 for NaN wherever a Where that masks the gradient did not select it."""
        for condition in self.known.masks.get(gradient, ()):
            number = self.op("Not", self.op("IsNaN", name))
            name = self.masked(self.op("Or", condition, number), name, like)
        return name

    def _keep_masks(self, node: onnx.NodeProto) -> None:
        """Remember the masks of a new tensor that is 0 wherever those that it is computed from are masked."""
        terms = list(node.input)
        if node.op_type in ("Cast", "CastLike", "Neg"):
            del terms[1:]
        elif node.op_type == "Mul":
            factor = self.constant(terms.pop())
            if factor is None or not np.isfinite(factor.astype(np.float64)).all():
                return
        elif node.op_type == "Where":
            terms = [name for name in terms[1:] if (value := self.constant(name)) is None or value.any()]
        elif node.op_type != "Sum":
            return
        first, *others = [self.known.masks.get(name, ()) for name in terms] or [()]
        if shared := tuple(one for one in first if all(one in masks for masks in others)):
            self.known.masks[node.output[0]] = shared

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

    def needed(self, names: Collection[str]) -> list[onnx.NodeProto]:
        """The new nodes that these tensors depend on, in topological order."""
        return needed(self.added, names)


@dataclass(frozen=True, eq=False)
class Expr(Value):
    """A tensor in an expression of a rule. Its kind is the name of a tensor with the element type of numbers."""

    graph: Graph

    def where(self, condition: Expr, other: Expr | float) -> Expr:
        """This tensor where the condition holds, and the other elsewhere."""
        return condition.op("Where", self, self.of(other), kind=self.kind)


def needed(nodes: Sequence[onnx.NodeProto], names: Collection[str]) -> list[onnx.NodeProto]:
    """The members of `nodes` that these tensors depend on; both in topological order."""
    wanted, found = set(names), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(input_names(node))
            found.append(node)
    return found[::-1]


def _first_output(node: onnx.NodeProto) -> str:
    return next(filter(None, node.output), "")


def _value_of(constant: onnx.AttributeProto) -> np.ndarray[Any, Any] | None:
    """The value of a Constant node, given its attribute; None for strings and sparse tensors."""
    value = constant_attribute(constant)
    return _array(value.t) if value.name == "value" else None


def _array(tensor: onnx.TensorProto) -> np.ndarray[Any, Any] | None:
    return None if tensor.data_location == onnx.TensorProto.EXTERNAL else onnx.numpy_helper.to_array(tensor)


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.value_info
    yield from graph.input
    yield from graph.output


def forget_lengths_inside(graph: onnx.GraphProto) -> None:
    """Clear the lengths that subgraphs declare, and keep the ranks: the lengths may not fit the model's inputs."""
    for node in iter_nodes(graph):
        for inner in subgraphs([node]):
            del inner.value_info[:]
            for value in (*inner.input, *inner.output):
                for length in value.type.tensor_type.shape.dim:
                    length.Clear()


def _named_lengths(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for value in _values(graph):
        yield from (dim for dim in value.type.tensor_type.shape.dim if dim.dim_param)


def input_names(node: onnx.NodeProto) -> Collection[str]:
    """Names of the tensors that a node reads, including the outer tensors that its subgraphs read."""
    names = {name for name in node.input if name}
    for graph in subgraphs([node]):
        names |= outer_names(graph)
    return names


def outer_names(graph: onnx.GraphProto) -> set[str]:
    """Names of the outer tensors that a subgraph reads."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {sparse.values.name for sparse in graph.sparse_initializer}
    names = set()
    for node in graph.node:
        names |= set(input_names(node)) - own
        own.update(node.output)
    return names | {value.name for value in graph.output if value.name not in own}
