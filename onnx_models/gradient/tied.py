# SPDX-License-Identifier: MIT
"""Parameters that an exporter merged because their values were equal, and their separation.

torch.onnx.export keeps one initializer for all parameters of equal values: a fresh BatchNormalization's bias and mean, the
scales of all LayerNormalizations. For inference that is right. A gradient with respect to such a tensor is the sum over all
layers that read it, and training keeps them equal.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from onnx_models.gradient.parameters import MOVED, WEIGHTS, real_constants, setting
from onnx_models.gradient.registry import ZEROS
from onnx_models.tools.protos import iter_graphs, iter_nodes, label, normalize_domain, tensor_names

_MAX_SHOWN = 10
_MAX_USES = 4

_COMMUTATIVE = {"Add", "Max", "Mean", "Min", "Mul", "Sum"}
"""Operators whose inputs can be swapped."""

_OF_GRADIENT = re.compile(r"_grad_\d+$")
"""The end of the names of nodes that gradients consist of, see `GradientGraph`."""

_SCOPES = "pkg.torch.onnx.name_scopes"
"""The key of a node's metadata for the modules around it, outermost first, and last the node's own name."""

APART = "onnx_models.apart"
"""The metadata key of an initializer that is a single parameter in its source, however many layers read it."""

_MAX_STEPS = 8
"""How many nodes to go back in search of the weights that decide whether two layers are one."""

_MAX_DECIMALS = 2


class TiedParametersWarning(UserWarning):
    """Several layers read one tensor as their parameter, since an exporter merged equal ones: it has one gradient."""


@dataclass(frozen=True)
class Use:
    """A node that reads a constant, directly or moved, by its input `index`."""

    node: onnx.NodeProto
    index: int

    @property
    def role(self) -> tuple[str, str, int]:
        """A key that all uses of one layer share: the operator and the input."""
        kind = self.node.op_type
        return normalize_domain(self.node.domain), kind, 0 if kind in _COMMUTATIVE else self.index

    def parameter(self, opset: int) -> str:
        """The name of the input: that of the specification, or its number."""
        domain, kind, _ = self.role
        if not domain and onnx.defs.has(kind, opset, domain):
            formal = onnx.defs.get_schema(kind, opset, domain).inputs
            if self.index < len(formal) and kind not in _COMMUTATIVE:
                return str(formal[self.index].name)
        return f"input {self.index}"

    @property
    def scope(self) -> str:
        """The module that the node belongs to, as exporters of PyTorch and TensorFlow write it; "" if that is unknown."""
        for entry in self.node.metadata_props:
            if entry.key == _SCOPES:
                try:
                    return ".".join(ast.literal_eval(entry.value)[:-1])
                except (SyntaxError, TypeError, ValueError):
                    break
        return str(self.node.name.rpartition("/")[0])


@dataclass(frozen=True)
class Tied:
    """A constant that several layers read: for each of these its uses."""

    name: str
    layers: Sequence[Sequence[Use]]

    def described(self, opset: int) -> str:
        """The name, and the node and the input of the first use in each layer."""
        uses = [f"{layer[0].parameter(opset)} of {label(layer[0].node)}" for layer in self.layers]
        more = [f"{len(uses) - _MAX_USES} more"] * (len(uses) > _MAX_USES)
        return f"{self.name!r} is {', '.join(uses[:_MAX_USES] + more)}"


def find_tied(graph: onnx.GraphProto, names: Collection[str], values: Mapping[str, onnx.TensorProto]) -> list[Tied]:
    """Find parameters that an exporter merged, and not those that a model shares on purpose.

    A tensor counts as merged if

    1. all of its elements are equal, as those of a fresh bias or scale are; a single number has two decimals at most.
       Trained or random parameters are never equal by accident. If its data is in another file, it counts if it has one
       axis. Parameters in a model of `onnx_models.torch.export`, which keeps them apart, do not count. And if
    2. it is read by several layers. Nodes are one layer if they read it as the same input of the same operator, and
       either belong to one module by the exporter's names, or have another weight in common: their own, or that of the
       nearest layer before each of them. So a head that is applied to all levels of a pyramid is one layer.

    Nodes of gradients do not count. `values` are initializers with their data, where `graph` lacks it.
    """
    readers = _Readers(graph, values)
    ties = []
    for name in names:
        uses = readers.uses.get(name, ())
        if len(uses) > 1 and readers.is_fresh(name):
            layers = readers.layers(uses)
            if len(layers) > 1:
                ties.append(Tied(name, layers))
    return ties


def describe_tied(ties: Sequence[Tied], opset: int) -> str:
    """The text of a warning about tied parameters."""
    shown = [tie.described(opset) for tie in ties[:_MAX_SHOWN]]
    more = [f"and {len(ties) - _MAX_SHOWN} more"] * (len(ties) > _MAX_SHOWN)
    return (
        "one tensor stands for several parameters, as exporters merge equal ones: its gradient is the sum over all of them, "
        f"and training keeps them equal. untie=True gives each layer its own copy. {'; '.join(shown + more)}"
    )


def separate(graph: onnx.GraphProto, ties: Sequence[Tied], values: Mapping[str, onnx.TensorProto], opset: int) -> None:
    """Give each layer but the first a copy of each tied parameter, called NODE.INPUT by its first use.

    The first layer, which keeps the tensor and its name, is one that reads it as a parameter, and not as a setting.
    """
    taken = set(tensor_names(graph))
    known = dict(real_constants(graph))
    fed = {value.name: value for value in graph.input}
    producers = {name: (part, node) for part in iter_graphs(graph) for node in part.node for name in node.output}

    def moved(read: str, old: str, new: str) -> str:
        """The tensor `new`, moved as `read` is from `old`, by copies of the nodes in between."""
        if read == old:
            return new
        part, node = producers[read]
        copied = copy.deepcopy(node)
        copied.input[0] = moved(node.input[0], old, new)
        copied.output[0] = copied.name = _new(f"{new}.{node.op_type}", taken)
        part.node.insert(next(i for i, other in enumerate(part.node) if read in other.output) + 1, copied)
        return str(copied.output[0])

    for tie in ties:
        first = next((i for i, layer in enumerate(tie.layers) if setting(layer[0].node, layer[0].index) is None), 0)
        for layer in (*tie.layers[:first], *tie.layers[first + 1 :]):
            node = layer[0].node
            name = _new(f"{node.name or node.output[0]}.{layer[0].parameter(opset).replace(' ', '_')}", taken)
            graph.initializer.add().CopyFrom(values.get(tie.name, known[tie.name]))
            graph.initializer[-1].name = name
            if tie.name in fed:
                graph.input.add().CopyFrom(fed[tie.name])
                graph.input[-1].name = name
            for use in layer:
                use.node.input[use.index] = moved(use.node.input[use.index], tie.name, name)


def _new(base: str, taken: set[str]) -> str:
    name = next(name for i in range(len(taken) + 1) if (name := f"{base}_{i}" if i else base) not in taken)
    taken.add(name)
    return name


class _Readers:
    """The uses of a graph's constants. uses: by constant, in the order of the graph."""

    def __init__(self, graph: onnx.GraphProto, values: Mapping[str, onnx.TensorProto]) -> None:
        self._values = {name: values.get(name, tensor) for name, tensor in real_constants(graph)}
        self._fresh: dict[str, bool] = {}
        self._producers: dict[str, onnx.NodeProto] = {}
        self._origins = {name: name for name in self._values}
        """The constants, by the tensors that they are moved to."""
        self.uses: dict[str, list[Use]] = defaultdict(list)
        for node in iter_nodes(graph):
            if _OF_GRADIENT.search(node.name) or not node.output:
                continue
            key = normalize_domain(node.domain), node.op_type
            if key[0] == "" and key[1] in MOVED and node.input and node.input[0] in self._origins:
                self._origins[node.output[0]] = self._origins[node.input[0]]
                continue
            self._producers.update(dict.fromkeys(filter(None, node.output), node))
            for index, name in enumerate(node.input) if key not in ZEROS and key != ("", "CastLike") else ():
                if name in self._origins:
                    self.uses[self._origins[name]].append(Use(node, index))

    def is_fresh(self, name: str) -> bool:
        """Whether an untrained parameter of another layer may well have the same values, and be merged with it."""
        if name not in self._fresh:
            tensor = self._values[name]
            if any(entry.key == APART for entry in tensor.metadata_props):
                self._fresh[name] = False
            elif tensor.data_location == onnx.TensorProto.EXTERNAL:
                self._fresh[name] = sum(length != 1 for length in tensor.dims) == 1
            else:
                value = onnx.numpy_helper.to_array(tensor).astype(np.float32, copy=False).reshape(-1)
                is_short = len(value) > 1 or bool(np.all(value.round(_MAX_DECIMALS) == value))
                self._fresh[name] = len(value) > 0 and is_short and bool(np.all(value == value[0]))
        return self._fresh[name]

    def layers(self, uses: Sequence[Use]) -> list[list[Use]]:
        """The uses by layer."""
        by_scope: dict[tuple[object, ...], list[int]] = defaultdict(list)
        by_weight: dict[tuple[object, ...], list[int]] = defaultdict(list)
        weighted = [self._weighted(use.node) for use in uses]
        for i, use in enumerate(uses):
            if use.scope:
                by_scope[use.role, use.scope].append(i)
            for name in weighted[i][1]:
                by_weight[use.role, name].append(i)
        # Two layers that follow one and the same node share its weights, but are not called twice.
        called = (members for members in by_weight.values() if len({id(weighted[i][0]) for i in members}) > 1)
        first = list(range(len(uses)))

        def root(i: int) -> int:
            while first[i] != i:
                first[i] = first[first[i]]
                i = first[i]
            return i

        for members in (*by_scope.values(), *called):
            for i in members:
                one, other = sorted((root(members[0]), root(i)))
                first[other] = one
        layers: dict[int, list[Use]] = defaultdict(list)
        for i, use in enumerate(uses):
            layers[root(i)].append(use)
        return list(layers.values())

    def _weighted(self, node: onnx.NodeProto) -> tuple[onnx.NodeProto, set[str]]:
        """The node itself, or the nearest one before it, with trained or random weights, and these weights."""
        for _ in range(_MAX_STEPS):
            places = WEIGHTS.get(node.op_type, ()) if not normalize_domain(node.domain) else ()
            weights = {
                self._origins[name] for i, name in enumerate(node.input) if i in places and name in self._origins
            }
            weights = {name for name in weights if not self.is_fresh(name)}
            before = next((name for name in node.input if name in self._producers), None)
            if weights or before is None:
                return node, weights
            node = self._producers[before]
        return node, set()
