# SPDX-License-Identifier: MIT
"""What is known about the tensors of a growing graph: types, shapes, constants and the nodes that compute them."""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnx_models.gradient.ours import DOMAIN, DOMAIN_VERSION
from onnx_models.tools.attributes import CUSTOM, unknown_among
from onnx_models.tools.nodes import Length, NodeBuilder
from onnx_models.tools.protos import input_names, label, normalize_domain, tensor_names
from onnx_models.tools.types import constant_attribute, forget_lengths_inside, infer_shapes, node_checker

if TYPE_CHECKING:
    from typing import Self

_MAX_FOLDED = 1024
"""The most elements of a constant whose value is given to shape inference, or folded."""

_MAX_STEPS = 1000
_COMPUTED = {
    "Abs", "Add", "And", "Cast", "Concat", "Div", "Equal", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less",
    "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum",
    "Reshape", "Slice", "Squeeze", "Sub", "Unsqueeze", "Where", "Xor",
}  # fmt: skip
"""The operators to fold; their outputs are not much larger than their inputs."""


@dataclass
class _Known:
    """What is known in a scope.

    numbers: a counter for new names. types, producers, initializers: by tensor name. constants: names of constants by value.
    shapes: names of shape tensors by (tensor, start, end).
    """

    numbers: Iterator[int] = field(default_factory=itertools.count)
    types: MutableMapping[str, onnx.TypeProto.Tensor] = field(default_factory=dict)
    producers: MutableMapping[str, onnx.NodeProto] = field(default_factory=dict)
    initializers: MutableMapping[str, onnx.TensorProto] = field(default_factory=dict)
    constants: MutableMapping[bytes, str] = field(default_factory=dict)
    shapes: MutableMapping[tuple[str, int, int | None], str] = field(default_factory=dict)

    def inner(self) -> _Known:
        """The scope of a subgraph: it sees what is known here, and adds to its own tables only."""
        tables = (self.types, self.producers, self.initializers, self.constants, self.shapes)
        return _Known(self.numbers, *(ChainMap({}, table) for table in tables))


class Tensors(NodeBuilder):
    """The tensors in scope of a graph `proto` with inferred types; those of new ones are inferred when they are asked for.

    opsets: version of each domain that the model imports. outer: the enclosing graph of a subgraph.
    """

    def __init__(self, proto: onnx.GraphProto, opsets: Mapping[str, int], outer: Self | None = None) -> None:
        self.known: _Known = outer.known.inner() if outer else _Known()
        super().__init__(outer.names if outer else set(), "_grad", self.known.numbers)
        self.proto, self.opsets, self.outer = proto, opsets, outer
        # A model need not import our domain, nor that of a user's gradient operator.
        ours = dict.fromkeys([DOMAIN, *(domain for domain, _ in CUSTOM)], DOMAIN_VERSION)
        self._opsets = {**ours, **opsets}
        self.check: Callable[[onnx.NodeProto], None] = node_checker(self._opsets) if outer is None else outer.check
        """Raises ValueError if a node without subgraphs does not match its operator's schema."""
        self._new: dict[int, onnx.NodeProto] = {}
        """The members of `added` by identity."""
        self.names.update(tensor_names(proto))
        self.known.types.update({value.name: value.type.tensor_type for value in _values(proto)})
        for tensor, dims in (
            *((tensor, tensor.dims) for tensor in proto.initializer),
            *((sparse.values, sparse.dims) for sparse in proto.sparse_initializer),
        ):
            kind = onnx.helper.make_tensor_type_proto(tensor.data_type, list(dims))
            self.known.types[tensor.name] = kind.tensor_type
        self._set_producers(proto.node)
        fed = {value.name for value in proto.input}
        self.known.initializers.update({tensor.name: tensor for tensor in proto.initializer if tensor.name not in fed})

    def add(self, node: onnx.NodeProto) -> None:
        """Add a node whose outputs have names from `name`, or "" if they are omitted."""
        super().add(node)
        self._new[id(node)] = node
        self._set_producers([node])

    def is_new(self, node: onnx.NodeProto) -> bool:
        """Whether a node was added, and is not one of `proto`."""
        return id(node) in self._new

    def _set_producers(self, nodes: Iterable[onnx.NodeProto]) -> None:
        self.known.producers.update({name: node for node in nodes for name in node.output if name})

    def producer(self, name: str) -> onnx.NodeProto | None:
        """The node that computes a tensor; None for an input or an initializer."""
        return self.known.producers.get(name)

    def type_of(self, name: str) -> onnx.TypeProto.Tensor | None:
        """The known part of a tensor's type; runs shape inference for a new tensor."""
        if name not in self.known.types and (producer := self.producer(name)) is not None:
            if self.outer is not None and self.outer.producer(name) is producer:
                return self.outer.type_of(name)
            self.infer_added([producer])
        return self.known.types.get(name)

    def declare(self, name: str, kind: onnx.TypeProto.Tensor | None) -> None:
        """Set the known part of a tensor's type; None to infer it when it is asked for."""
        if kind is None:
            self.known.types.pop(name, None)
        else:
            self.known.types[name] = kind

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

    def numbers(self, name: str, start: int = 0, end: int | None = None) -> list[int] | None:
        """A tensor's shape, or lengths start to end of it, if all of these are known; else None."""
        lengths = self.lengths(name)
        return None if lengths is None else all_known(lengths[start:end])

    def rank(self, name: str, node: object) -> int:
        """The rank of a tensor; if shape inference does not find it, a ValueError that names `node`."""
        lengths = self.lengths(name)
        if lengths is None:
            raise ValueError(
                f"{node}: the rank of {name!r} must be known, and shape inference does not find it"
                + self._where_lost(name)
            )
        return len(lengths)

    def _where_lost(self, name: str) -> str:
        """The end of an error: the node behind which the rank of a tensor is unknown, and a remedy."""
        node = self.producer(name)
        while node is not None and (
            before := [other for other in sorted(input_names(node)) if self.lengths(other) is None]
        ):
            name = before[0]
            node = self.producer(name)
        if node is None:
            return f". Declare the shape of the input {name!r}"
        unknown = unknown_among([node])
        remedy = f"declare the shape of {name!r} in the value_info of the model's graph"
        is_of_model = self.outer is None and not self.is_new(node)
        return (unknown or f". It stops at {label(node)}") + f"; {'or ' * bool(unknown)}{remedy}" * is_of_model

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """The value of a constant; None if the tensor is not a constant, or if its data is external."""
        node = self.producer(name)
        if node is not None:
            return _value_of(node.attribute[0]) if node.op_type == "Constant" and node.attribute else None
        tensor = self.known.initializers.get(name)
        return None if tensor is None else _array(tensor)

    def inherit_type(self, gradient: str, name: str) -> None:
        """Set a gradient's type and shape to those of its tensor, unless its whole shape is inferred already."""
        kind, known = self.type_of(name), self.known.types.get(gradient)
        is_whole = known and known.HasField("shape") and all(dim.HasField("dim_value") for dim in known.shape.dim)
        if kind is not None and kind.HasField("shape") and not is_whole:
            self.declare(gradient, kind)

    def is_constant(self, name: str) -> bool:
        """Whether a tensor is an initializer or a Constant, so that a session folds what is computed from it."""
        node = self.producer(name)
        return name in self.known.initializers or (node is not None and node.op_type == "Constant")

    def infer_added(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Infer types and shapes of the outputs of new nodes, and of the new tensors that these depend on."""
        behind: dict[int, onnx.NodeProto] = {}  # in topological order
        waiting = list(reversed(nodes))
        while waiting:
            node = waiting[-1]
            producers = (self.known.producers.get(name) for name in input_names(node) if self._is_behind(name))
            missing = [producer for producer in producers if id(producer) in self._new and id(producer) not in behind]
            waiting += [producer for producer in missing if producer is not None]
            if not missing:
                behind[id(node)] = waiting.pop()
        self.infer(list(behind.values()))

    def infer(self, nodes: Sequence[onnx.NodeProto], more: Mapping[str, onnx.TypeProto.Tensor] | None = None) -> None:
        """Infer types and shapes of the outputs of nodes in topological order; `more` are types that it would not find."""
        model = self.fragment(nodes)
        # Inference invents names for unknown lengths in each model that it gets: they have to be made unique here.
        renamed = {dim.dim_param: dim.dim_param for dim in named_lengths(model.graph)}
        for name, kind in (more or {}).items():
            value = model.graph.value_info.add(name=name)
            value.type.tensor_type.CopyFrom(kind)
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param not in renamed:
                    dim.ClearField("dim_param")
        inferred = infer_shapes(model, data_prop=True).graph
        for dim in named_lengths(inferred):
            if dim.dim_param not in renamed:
                renamed[dim.dim_param] = f"{dim.dim_param}_{next(self.known.numbers)}"
            dim.dim_param = renamed[dim.dim_param]
        for value in _values(inferred):
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
        model = onnx.ModelProto(ir_version=onnx.IR_VERSION)
        model.opset_import.extend(onnx.helper.make_opsetid(*item) for item in self._opsets.items())
        graph = model.graph
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
        return model


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


def all_known(lengths: Sequence[Length] | None) -> list[int] | None:
    """The lengths if all are numbers, else None."""
    numbers = [length for length in lengths or () if isinstance(length, int)]
    return numbers if lengths is not None and len(numbers) == len(lengths) else None


def named_lengths(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """Yield the lengths of a graph's tensors that have a symbolic name."""
    for value in _values(graph):
        yield from (dim for dim in value.type.tensor_type.shape.dim if dim.dim_param)


def known_value(graph: Tensors, name: str) -> np.ndarray[Any, Any] | None:
    """The value of a tensor if constants and known shapes determine it, with little work; else None."""
    constants: dict[str, np.ndarray[Any, Any]] = {}
    nodes: list[onnx.NodeProto] = []
    waiting = [name]
    for _ in range(_MAX_STEPS):
        if not waiting:
            break
        tensor = waiting.pop()
        value = _folded(graph, tensor)
        if value is not None and value.size <= _MAX_FOLDED:
            constants[tensor] = value
            continue
        node = graph.producer(tensor)
        if node is None or normalize_domain(node.domain) or node.op_type not in _COMPUTED:
            return None
        if node in nodes:
            nodes.remove(node)
        nodes.append(node)
        waiting += filter(None, node.input)
    if waiting:
        return None
    if name in constants:
        return constants[name]
    tensors = [onnx.numpy_helper.from_array(value, tensor) for tensor, value in constants.items()]
    output = onnx.helper.make_value_info(name, onnx.TypeProto())
    opsets = [onnx.helper.make_opsetid("", graph.opsets[""])]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes[::-1], "known", [], [output], tensors), opset_imports=opsets
    )
    try:
        results: Any = ReferenceEvaluator(model).run(None, {})
    except (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError):
        return None  # an invalid node is reported by the session that runs it
    return np.asarray(results[0])


def _folded(graph: Tensors, name: str) -> np.ndarray[Any, Any] | None:
    """The value of a constant, or of Shape, Size or Gather of Shape if the lengths are known."""
    node = graph.producer(name)
    if node is None or normalize_domain(node.domain) or node.op_type not in ("Gather", "Shape", "Size"):
        return graph.constant(name)
    if node.op_type == "Gather":
        shape, places = graph.producer(node.input[0]), graph.constant(node.input[1])
        if shape is None or shape.op_type != "Shape" or places is None:
            return None
        lengths = _read_lengths(graph, shape)
        if lengths is None or not ((places >= -len(lengths)) & (places < len(lengths))).all():
            return None
        numbers = all_known([lengths[place] for place in places.ravel()])
        return None if numbers is None else np.array(numbers, np.int64).reshape(places.shape)
    numbers = all_known(_read_lengths(graph, node))
    if numbers is None:
        return None
    return np.array(numbers, np.int64) if node.op_type == "Shape" else np.array(np.prod(numbers), np.int64)


def _read_lengths(graph: Tensors, shape: onnx.NodeProto) -> list[Length] | None:
    """The known lengths that a Shape or Size node reads; None if even the rank is unknown."""
    lengths = graph.lengths(shape.input[0])
    bounds: dict[str, int] = {str(a.name): a.i for a in shape.attribute}
    return None if lengths is None else lengths[bounds.get("start", 0) : bounds.get("end")]
