# SPDX-License-Identifier: MIT
"""The builder of a differentiated model: it checks the arguments, runs reverse mode and adds the nodes and outputs."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx

from onnx_models.gradient.backward import DiffContext, backward
from onnx_models.gradient.graph import GradientGraph
from onnx_models.gradient.ours import DOMAIN, DOMAIN_VERSION
from onnx_models.gradient.parameters import constant_tensor, parameters
from onnx_models.gradient.prepare import prepared
from onnx_models.gradient.registry import RANDOM, REAL
from onnx_models.gradient.subgraph import infer_subgraph_ranks
from onnx_models.gradient.tied import Tied, TiedParametersWarning, describe_tied, find_tied, separate
from onnx_models.tools.attributes import LinesError, unknown_among
from onnx_models.tools.protos import (
    accepted,
    assign,
    import_domain,
    iter_nodes,
    label,
    meant,
    normalize_domain,
    onnx_opset,
    restore_weights,
    subgraphs,
    tensor_names,
)

_Key = tuple[object, ...]


def merge(
    nodes: Collection[onnx.NodeProto], earlier: Iterable[onnx.NodeProto]
) -> tuple[list[onnx.NodeProto], dict[str, str]]:
    """Keep the first of several equal new nodes, and drop a new node that equals an earlier one.

    Nodes are equal if they have the same operator, attributes and inputs. Each subgraph is searched separately. The
    floating-point constants of the earlier nodes are not shared: one that happens to equal a number in a derivative may be a
    weight, which training changes. Returns the remaining nodes, whose inputs are modified, and for the name of each dropped
    tensor the name of the tensor that replaces it.
    """
    known: dict[_Key, onnx.NodeProto] = {}
    operators = {node.op_type for node in nodes}
    for node in earlier:
        constant = constant_tensor(node)
        if node.op_type in operators and (constant is None or constant.data_type not in REAL):
            known.setdefault(_key(node), node)
    names: dict[str, str] = {}
    return _merge(nodes, known, names), names


def _merge(
    nodes: Iterable[onnx.NodeProto],
    known: dict[_Key, onnx.NodeProto],
    names: dict[str, str],
    kept: Collection[str] = frozenset(),
) -> list[onnx.NodeProto]:
    """Add to `known` and `names`, and return the nodes that are left. `kept` are outputs of the graph."""
    left = []
    for node in nodes:
        if not names.keys().isdisjoint(node.input):
            node.input[:] = [names.get(name, name) for name in node.input]
        for graph in subgraphs([node]):
            inner = _merge(graph.node, {}, names, {value.name for value in graph.output})
            if len(inner) < len(graph.node):
                assign(graph.node, inner)
        first = known.setdefault(_key(node), node)
        if first is node or any(name in kept for name in node.output):
            left.append(node)
        else:
            names.update(zip(node.output, first.output, strict=True))
    return left


def _key(node: onnx.NodeProto) -> _Key:
    """A key that is the same for equal nodes; a node with a subgraph, or with random numbers, equals no other."""
    domain = normalize_domain(node.domain)
    is_drawn = domain not in ("", DOMAIN) or node.op_type in RANDOM
    if is_drawn or any(subgraphs([node])):
        return (id(node),)
    attributes = sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
    return domain, node.op_type, *node.input, *attributes, *map(bool, node.output)


PARAMETERS = "parameters"
"""The value of `wrt` that selects all parameters of a model."""

Names = Sequence[str] | Mapping[str, str] | str
"""Names of tensors, a mapping from these to the names of new outputs or inputs, or `PARAMETERS`."""

_MAX_SHOWN = 10

_ADVICE = (
    "To differentiate the rest, name a tensor of each path in stop_at (--stop-at): it is then treated as a constant."
)


class ZeroGradientWarning(UserWarning):
    """A gradient is 0 for all inputs: the loss does not depend on the tensor, or only where the derivative is 0."""


class GradientBuilder:
    """Builds a differentiated copy of a model.

    The arguments, and the errors for them, are those of `onnx_models.gradient`.

    prepared_model: the prepared copy. graph: its graph, with the new nodes. context: refusals and zeros from reverse mode.
    left_out: the constants that are no parameters, with the reasons, if `PARAMETERS` was asked for.
    """

    def __init__(
        self, model: onnx.ModelProto, stop_at: Collection[str], through_rois: bool, untie: bool = False
    ) -> None:
        model = accepted(model)
        if isinstance(stop_at, str):
            raise ValueError(f"stop_at = {stop_at!r}: must be a list or another collection of names")
        stops = frozenset(_as_list("stop_at", stop_at))
        self.prepared_model = prepared(model, stops)
        if untie:
            graph = self.prepared_model.graph
            weights = parameters(graph, (), model.graph).names
            separate(graph, find_tied(graph, weights, _data(model)), _data(model), onnx_opset(self.prepared_model) or 0)
        self.graph = GradientGraph(
            self.prepared_model.graph,
            {normalize_domain(item.domain): item.version for item in self.prepared_model.opset_import},
        )
        self._model = model
        self._known = _tensors(self.graph.proto)
        self.context = DiffContext(stops, through_rois)
        self.left_out: dict[str, str] = {}
        self._new_inputs: list[onnx.ValueInfoProto] = []
        self._check_known("stop_at", stops)
        infer_subgraph_ranks(self.graph, self.prepared_model.graph.node)

    # Checking arguments.

    def named(self, argument: str, names: Names, suffix: str) -> dict[str, str]:
        """The names of new outputs or inputs by the names of floating-point tensors: as given, or with the suffix."""
        if isinstance(names, str):
            if (argument, names) != ("wrt", PARAMETERS):
                raise ValueError(
                    f"{argument} = {names!r}: must be names" + (f", or {PARAMETERS!r}" * (argument == "wrt"))
                )
            tensors = self._parameters()
            if not tensors:
                shown = [f"{name!r} ({reason})" for name, reason in list(self.left_out.items())[:_MAX_SHOWN]]
                inputs = [value.name for value in self.graph.proto.input if self.graph.element_type(value.name) in REAL]
                raise ValueError(
                    f"wrt = {names!r}: the model must have weights of a floating-point type"
                    + (f", none of which are {', '.join(shown)}" if shown else "")
                    + f"; name those that are inputs, as in wrt={inputs[:_MAX_SHOWN]}" * bool(inputs)
                )
        else:
            tensors = _as_list(argument, names)
        if not tensors or len(set(tensors)) != len(tensors):
            raise ValueError(f"{argument} = {tensors}: must be one or more different names")
        self.check(argument, tensors)
        if not isinstance(names, Mapping):
            return {name: f"{name}{suffix}" for name in tensors}
        for name, new in names.items():
            if not isinstance(new, str) or not new:
                raise ValueError(f"{argument} maps {name!r} to {new!r}: must be a name, a str that is not empty")
        return dict(names)

    def check(self, argument: str, names: Collection[str]) -> None:
        """Raise ValueError unless all names are those of floating-point tensors."""
        self._check_known(argument, names)
        for name in names:
            kind = self.graph.element_type(name)
            if kind is None:
                raise ValueError(
                    f"{argument} has {name!r}: its type must be known, and shape inference does not find it"
                    + unknown_among(self.graph.proto.node)
                )
            if kind not in REAL:
                raise ValueError(
                    f"{argument} has {name!r} of type {onnx.TensorProto.DataType.Name(kind).lower()}: "
                    "must have a floating-point type"
                )

    def _check_known(self, argument: str, names: Collection[str]) -> None:
        for name in names:
            if not isinstance(name, str) or name not in self._known:
                raise ValueError(
                    f"{argument} has {name!r}{meant(name, self._known)}: must be the name of a tensor of the graph"
                    + f", or pass wrt={PARAMETERS!r}" * ((argument, name) == ("wrt", PARAMETERS))
                )

    def ties(self, names: Iterable[str]) -> list[Tied]:
        """The parameters among these names that an exporter merged."""
        ties = find_tied(self.graph.proto, list(names), _data(self._model))
        weights = parameters(self.graph.proto, (), self._model.graph).names if ties else []
        return [tie for tie in ties if tie.name in weights]

    def warn_of_ties(self, names: Iterable[str]) -> None:
        """Warn of parameters among these names that an exporter merged. Only public functions call it."""
        if ties := self.ties(names):
            warnings.warn(describe_tied(ties, self.graph.opsets[""]), TiedParametersWarning, stacklevel=3)

    def _parameters(self) -> list[str]:
        """Names of the weights; the model's other constants go to `left_out`."""
        selected = parameters(self.graph.proto, self.context.stop_at, self._model.graph)
        in_model = set(tensor_names(self._model.graph))  # an upgraded opset turns attributes into constants
        self.left_out = {name: reason for name, reason in selected.left_out.items() if name in in_model}
        return selected.names

    # Adding nodes.

    def input(self, name: str, like: str) -> str:
        """Add an input with the type and shape of the tensor `like`; return the name that nodes have to read."""
        self.graph.reserve(name)
        kind = self.graph.type_of(like) or onnx.TypeProto.Tensor()
        self._new_inputs.append(onnx.ValueInfoProto(name=name))
        self._new_inputs[-1].type.tensor_type.CopyFrom(kind)
        self.graph.declare(name, kind)
        if self.graph.numbers(like) is not None:
            return name
        # A session does not check dynamic lengths: a tensor with another number of elements would be broadcast.
        reshaped = self.graph.reshaped(name, like)
        self.graph.added[-1].name = f"{name}: must have as many elements as {like!r}"
        return reshaped

    def backward(
        self, seeds: Mapping[str, str], wrt: Collection[str], nodes: Sequence[onnx.NodeProto] | None = None
    ) -> dict[str, str]:
        """Run `onnx_models.gradient.backward` over the model's nodes, or over `nodes`, which were added."""
        if nodes is None:
            nodes = self.prepared_model.graph.node
        else:
            self.graph.infer_added(nodes)
            infer_subgraph_ranks(self.graph, nodes)
        return backward(self.graph, nodes, seeds, wrt, self.context)

    @property
    def refused(self) -> list[str]:
        """A description of each operator that cannot be differentiated."""
        return list(dict.fromkeys(self.context.errors))

    def size(self) -> int:
        """The number of nodes in the model, subgraphs included."""
        return sum(1 for _ in iter_nodes(self.prepared_model))

    # Building the model.

    def build(self, derivatives: Mapping[str, str], names: Mapping[str, str], zero: str) -> onnx.ModelProto:
        """The prepared model with the new outputs, `names` by tensor, and the new nodes that they need.

        A tensor without a derivative has an output of 0, with a warning of the format `zero`. Operators that cannot be
        differentiated, and names of outputs that are taken, are a ValueError.
        """
        if errors := self.refused:
            lines = [f"- {error}" for error in errors[:_MAX_SHOWN]]
            lines += [f"- and {len(errors) - _MAX_SHOWN} more"] * (len(errors) > _MAX_SHOWN)
            raise LinesError("the model cannot be differentiated:", *lines, _ADVICE)
        for name in names:
            if name not in derivatives:
                self.warn_of_zero(zero, name)
        self.complete(derivatives, names)
        return restore_weights(self.prepared_model, self._model)

    def complete(self, derivatives: Mapping[str, str], names: Mapping[str, str]) -> None:
        """Add the new outputs, and the new nodes that they need, to the prepared model."""
        for name in names.values():
            self.graph.reserve(name)
        values = {name: derivatives.get(name) or self.graph.zeros(name) for name in names}
        proto = self.prepared_model.graph
        before = self.graph.with_replaced()
        nodes, merged = merge(self.graph.needed(list(values.values())), before)
        values = {name: merged.get(value, value) for name, value in values.items()}
        if self.graph.replaced:
            assign(proto.node, before)
        proto.node.extend(nodes)
        proto.input.extend(self._new_inputs)
        assign(proto.output, self._model.graph.output)
        for name, value in values.items():
            proto.node.append(onnx.helper.make_node("Identity", [value], [names[name]], name=names[name]))
            kind = self.graph.type_of(name) or onnx.TypeProto.Tensor()
            proto.output.add(name=names[name]).type.tensor_type.CopyFrom(kind)
        for domain in dict.fromkeys(normalize_domain(node.domain) for node in iter_nodes(nodes)):
            import_domain(self.prepared_model, domain, DOMAIN_VERSION)  # of this project's operators, or of a user's

    def warn_of_zero(self, zero: str, name: str) -> None:
        """Warn that a derivative is 0, by a format with a place for the tensor's name, and say where it is."""
        ends = list(dict.fromkeys(self.context.zeros))
        ends += [f"before {stop!r}, which is in stop_at (--stop-at)" for stop in sorted(self.context.stop_at)]
        ends += ["at RoIs, by through_rois=False (--no-through-rois)"] * (not self.context.through_rois)
        more = f", or only where the derivative is 0: {'; '.join(ends[:_MAX_SHOWN])}" if ends else ""
        warnings.warn(zero.format(repr(name)) + more, ZeroGradientWarning, stacklevel=4)


def _data(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    return {tensor.name: tensor for tensor in model.graph.initializer}


def _as_list(argument: str, names: object) -> list[str]:
    """The names as a list; they may come from an iterator."""
    if isinstance(names, bytes) or not isinstance(names, Iterable):
        raise TypeError(f"{argument} = {names!r}: must be a list or another collection of names")
    listed = list(names)
    for name in listed:
        if not isinstance(name, str):
            raise TypeError(f"{argument} has {name!r}: must be a name, a str")
    return listed


def _tensors(graph: onnx.GraphProto, outside: Collection[str] = ()) -> set[str]:
    """The names of all tensors of a graph, and of those `outside` it.

    Raises ValueError if the graph or a subgraph is not in topological order, two nodes have an output of one name, or an
    output of the graph is not computed.
    """
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    if shadowed := sorted(known.intersection(outside)):
        raise ValueError(
            f"graph {graph.name!r} has {shadowed[0]!r}: must not have the name of a tensor of the enclosing graph"
        )
    known.update(outside)
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                raise ValueError(f"{label(node)} reads {name!r}: must be computed by an earlier node")
        for inner in subgraphs([node]):
            _tensors(inner, known)
        for name in filter(None, node.output):
            if name in known:
                raise ValueError(f"{label(node)} computes {name!r}: must be a new name, another tensor has it")
            known.add(name)
    for value in graph.output:
        if value.name not in known:
            raise ValueError(
                f"graph {graph.name!r} has the output {value.name!r}: must be computed by one of its nodes"
            )
    return known
