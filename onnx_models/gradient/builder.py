"""A model while it is differentiated: what is asked of it, the nodes that are added to it, and the model that is made."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx

from onnx_models.data import with_data
from onnx_models.gradient.backward import Findings, backward
from onnx_models.gradient.graph import Graph
from onnx_models.gradient.prepare import prepared
from onnx_models.gradient.rules.registry import REAL
from onnx_models.gradient.subgraph import infer_subgraph_ranks
from onnx_models.walk import label, nodes_of, normal_domain, subgraphs
from ortops.spec import DOMAIN, DOMAIN_VERSION

PARAMETERS = "parameters"
"""For `wrt`: all parameters of a model."""

Names = Sequence[str] | Mapping[str, str] | str
"""Names of tensors, or these with the names of what is made for them, or `PARAMETERS`."""

_MOST_SHOWN = 10

_STATISTICS = {("", "BatchNormalization"): (3, 4)}
"""Inputs that are no parameters, though they may be initializers: numbers that training measures."""


class ZeroGradientWarning(UserWarning):
    """A gradient is 0 for all inputs, since the loss does not depend on the tensor, or not in a way with a derivative."""


class GradientBuilder:
    """A model that is being differentiated.

    ready: the prepared copy. graph: its graph, with the new nodes. findings: what was met on the way back.

    Args:
        model: not modified.
        stop_at: names of tensors that are taken for constants.
        through_rois: False for RoIs that are taken for constants by RoiAlign.

    Raises:
        ValueError, TypeError: as of `onnx_models.gradient`, for the model and for `stop_at`.
    """

    def __init__(self, model: onnx.ModelProto, stop_at: Collection[str], through_rois: bool) -> None:
        self.ready = prepared(model)
        self.graph = Graph(
            self.ready.graph, {normal_domain(item.domain): item.version for item in self.ready.opset_import}
        )
        self._model = model
        self._known = _tensors(self.graph.proto)
        if isinstance(stop_at, str):
            raise ValueError(f"stop_at = {stop_at!r}: must be names, as in a list")
        stops = frozenset(_as_list("stop_at", stop_at))
        self.findings = Findings(stops, through_rois)
        self._new_inputs: list[onnx.ValueInfoProto] = []
        self._check_known("stop_at", stops)
        infer_subgraph_ranks(self.graph, self.ready.graph.node)

    # What is asked for.

    def named(self, argument: str, names: Names, suffix: str) -> dict[str, str]:
        """By the names of tensors of real numbers, those of what is made for them: given, or with a suffix.

        Raises:
            ValueError: a name is unknown, or there twice, or not of a floating-point type; or there is none.
            TypeError: what is given is no collection of names.
        """
        if isinstance(names, str):
            if (argument, names) != ("wrt", PARAMETERS):
                raise ValueError(
                    f"{argument} = {names!r}: must be names" + (f", or {PARAMETERS!r}" * (argument == "wrt"))
                )
            given = self._parameters()
            if not given:
                raise ValueError(f"wrt = {names!r}: the model must have initializers of a floating-point type")
        else:
            given = _as_list(argument, names)
        if not given or len(set(given)) != len(given):
            raise ValueError(f"{argument} = {given}: must be one or more names, none twice")
        self.check(argument, given)
        if not isinstance(names, Mapping):
            return {name: f"{name}{suffix}" for name in given}
        for name, made in names.items():
            if not isinstance(made, str) or not made:
                raise ValueError(f"{argument} names {made!r} for {name!r}: must be a name, a str that is not empty")
        return dict(names)

    def check(self, argument: str, names: Collection[str]) -> None:
        """Check that tensors are there and of a floating-point type."""
        self._check_known(argument, names)
        for name in names:
            kind = self.graph.element_type(name)
            if kind is None:
                raise ValueError(
                    f"{argument} has {name!r}: its type must be known, and shape inference does not find it"
                )
            if kind not in REAL:
                raise ValueError(
                    f"{argument} has {name!r} of type {onnx.TensorProto.DataType.Name(kind).lower()}: must be floats"
                )

    def _check_known(self, argument: str, names: Collection[str]) -> None:
        for name in names:
            if not isinstance(name, str) or name not in self._known:
                raise ValueError(f"{argument} has {name!r}: must be the name of a tensor of the graph")

    def _parameters(self) -> list[str]:
        """Names of the initializers that may be parameters."""
        statistics = {
            node.input[i]
            for node in self.graph.proto.node
            for i in _STATISTICS.get((normal_domain(node.domain), node.op_type), ())
            if i < len(node.input)
        }
        tensors = [tensor for tensor in self.graph.proto.initializer if tensor.name not in statistics]
        return [tensor.name for tensor in tensors if tensor.data_type in REAL]

    # What is added.

    def input(self, name: str, like: str) -> str:
        """A new input of the model, with the shape and the type of a tensor; the name of what nodes shall read."""
        self.graph.reserve(name)
        kind = self.graph.type_of(like) or onnx.TypeProto.Tensor()
        self._new_inputs.append(onnx.ValueInfoProto(name=name))
        self._new_inputs[-1].type.tensor_type.CopyFrom(kind)
        self.graph.known.types[name] = kind
        lengths = self.graph.lengths(like)
        if lengths is not None and all(isinstance(length, int) for length in lengths):
            return name
        # A session does not see to open lengths: what has not as many elements would be broadcast.
        return self.graph.reshaped(name, like)

    def backward(
        self, seeds: Mapping[str, str], wrt: Collection[str], nodes: Sequence[onnx.NodeProto] | None = None
    ) -> dict[str, str]:
        """Reverse mode: as of `onnx_models.gradient.backward`, over the model's nodes or over new ones."""
        if nodes is None:
            nodes = self.ready.graph.node
        else:
            self.graph.infer_added(nodes)
            infer_subgraph_ranks(self.graph, nodes)
        return backward(self.graph, nodes, seeds, wrt, self.findings)

    @property
    def refused(self) -> list[str]:
        """Operators that a gradient cannot pass, each with the reason."""
        return list(dict.fromkeys(self.findings.errors))

    def size(self) -> int:
        """How many nodes the model has, with those inside of others."""
        return sum(1 for _ in nodes_of(self.ready))

    # What is made.

    def build(self, found: Mapping[str, str], names: Mapping[str, str], zero: str) -> onnx.ModelProto:
        """The prepared model with those of the new nodes that its new outputs need, and these outputs.

        Args:
            found: by names of tensors, names of what has been found for them; what has not is 0, with a warning.
            names: by the same the names of the outputs.
            zero: the warning, with a place for the tensor's name.

        Raises:
            ValueError: a gradient could not pass operators, which the message names; or an output's name is taken.
        """
        if errors := self.refused:
            more = f"; and {len(errors) - _MOST_SHOWN} more" if len(errors) > _MOST_SHOWN else ""
            raise ValueError("; ".join(errors[:_MOST_SHOWN]) + more)
        for name in names:
            if name not in found:
                warnings.warn(self._zero_message(zero.format(repr(name))), ZeroGradientWarning, stacklevel=3)
        self.complete(found, names)
        return with_data(self.ready, self._model)

    def complete(self, found: Mapping[str, str], names: Mapping[str, str]) -> None:
        """Add to the prepared model the nodes and the outputs that `finished` speaks of."""
        for name in names.values():
            self.graph.reserve(name)
        values = {name: found.get(name) or self.graph.zeros(name) for name in names}
        made = self.ready.graph
        nodes = self.graph.needed(list(values.values()))
        if self.graph.replaced:
            own = self.graph.with_replaced()
            del made.node[:]
            made.node.extend(own)
        made.node.extend(nodes)
        made.input.extend(self._new_inputs)
        del made.output[:]
        made.output.extend(self._model.graph.output)
        for name, value in values.items():
            made.node.append(onnx.helper.make_node("Identity", [value], [names[name]], name=names[name]))
            kind = self.graph.type_of(name) or onnx.TypeProto.Tensor()
            made.output.add(name=names[name]).type.tensor_type.CopyFrom(kind)
        if any(node.domain == DOMAIN for node in nodes) and DOMAIN not in self.graph.opsets:
            self.ready.opset_import.append(onnx.helper.make_opsetid(DOMAIN, DOMAIN_VERSION))

    def _zero_message(self, what: str) -> str:
        ends = list(dict.fromkeys(self.findings.zeros))
        return what + (f", or where it does, a derivative is 0: {'; '.join(ends[:_MOST_SHOWN])}" if ends else "")


def _as_list(argument: str, names: object) -> list[str]:
    """Names that may come from something that can be read once.

    Raises:
        TypeError: these are no names.
    """
    if isinstance(names, bytes) or not isinstance(names, Iterable):
        raise TypeError(f"{argument} = {names!r}: must be names, as in a list")
    listed = list(names)
    for name in listed:
        if not isinstance(name, str):
            raise TypeError(f"{argument} has {name!r}: must be a name, a str")
    return listed


def _tensors(graph: onnx.GraphProto, outside: Collection[str] = ()) -> set[str]:
    """The names of all tensors that a graph knows, each made once and before it is read: reverse mode goes by that.

    Args:
        graph: of a model, or of a node inside it.
        outside: names that the graph around it knows.

    Raises:
        ValueError: a node reads a tensor that no node before it makes, or makes one that is there already, or an output
            is none of the tensors. That counts for graphs inside too.
    """
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    if shadowed := sorted(known.intersection(outside)):
        raise ValueError(
            f"graph {graph.name!r} has {shadowed[0]!r}: must be named otherwise than a tensor outside of it"
        )
    known.update(outside)
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                raise ValueError(f"{label(node)} reads {name!r}: must be made by a node before it")
        for inner in subgraphs([node]):
            _tensors(inner, known)
        for name in filter(None, node.output):
            if name in known:
                raise ValueError(f"{label(node)} makes {name!r}: must be made once, and is there already")
            known.add(name)
    for value in graph.output:
        if value.name not in known:
            raise ValueError(f"graph {graph.name!r} has the output {value.name!r}: must be made by a node in it")
    return known
