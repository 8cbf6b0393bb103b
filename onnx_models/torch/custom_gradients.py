"""What PyTorch differentiates as one piece: a value, and beside it the surrogate that the gradient takes.

The gradient of an ONNX graph is that of its nodes. Where PyTorch has a formula of its own for a whole function, the nodes
that compute the value have another gradient, or none, at some places: log(sigmoid(x)) far from 0, the root of a variance
of 0.
Such a function becomes `with_derivatives` of its value and PyTorch's formulas, and the graph holds marks from export to gradient.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import Any

import onnx
import torch
from onnxscript import opset18 as op

from onnx_models.gradient.graph import reads

_DOMAIN = "onnx_models.torch.marks"
"""Unknown to the exporter's optimizer, which takes away ONNX's Identity, and Add where it can."""

_library = torch.library.Library("ortops", "FRAGMENT")
_library.define("custom_gradient(Tensor value, Tensor surrogate) -> Tensor")
torch.library.register_fake("ortops::custom_gradient", lambda value, surrogate: torch.empty_like(value), lib=_library)  # noqa: ARG005


def with_derivatives(value: Any, *terms: tuple[Any, Any]) -> Any:
    """A function's value, with the gradient of the sum of ``x * slope`` for constant slopes.

    Args:
        value: a tensor.
        terms: for each argument x the derivative by it, both of shapes that broadcast with each other, together to that of
            the value.
    """
    surrogate = sum(x * slope.detach() for x, slope in terms)
    return with_gradient_of(value, surrogate)


def with_gradient_of(value: Any, surrogate: Any) -> Any:
    """A tensor that has the gradient of another one of its shape."""
    return torch.ops.ortops.custom_gradient(value, surrogate.to(value.dtype))


class Markers:
    """The nodes of an exported graph that stand for the end of a gradient or for its surrogate, by their output."""

    def __init__(self) -> None:
        self._found: list[Any] = []

    def translations(self) -> dict[Any, Callable[..., Any]]:
        """Of ``detach`` and of custom, for one export."""

        # The exporter takes functions, no methods.
        def stop(x: Any) -> Any:
            return self._marked(op.Identity(x))

        def piece(value: Any, surrogate: Any) -> Any:
            # Add has the gradient of the surrogate, as what is added to it has none; `without_surrogates` makes it the value again.
            return self._marked(op.Add(stop(value), surrogate))

        return {torch.ops.aten.detach.default: stop, torch.ops.ortops.custom_gradient.default: piece}

    def _marked(self, value: Any) -> Any:
        self._found.append(value)
        return value

    def protect(self, program: Any) -> None:
        """Keep the nodes from the optimizer: they get a domain that it does not know."""
        graph = program.model.graph
        names = {value.name for value in self._found}
        for node in graph.all_nodes():
            if node.op_type in ("Identity", "Add") and node.outputs[0].name in names:
                node.domain = _DOMAIN
                graph.opset_imports[_DOMAIN] = 1


def remove_markers(program: Any) -> tuple[list[Any], list[Any]]:
    """After optimizing, make the nodes that are marked ONNX's again.

    Returns:
        The outputs where a gradient ends, and those of custom.
    """
    graph = program.model.graph
    nodes = [node for node in graph.all_nodes() if node.domain == _DOMAIN]
    for node in nodes:
        node.domain = ""
    graph.opset_imports.pop(_DOMAIN, None)
    stops, custom = ([node.outputs[0] for node in nodes if node.op_type == kind] for kind in ("Identity", "Add"))
    return stops, custom


def without_surrogates(model: onnx.ModelProto, custom: Collection[str], kept: Collection[str]) -> onnx.ModelProto:
    """The model with its gradients, in which custom are their values, without what only ways needed.

    Args:
        model: changed in place.
        custom: names of the outputs of custom.
        kept: names of initializers that stay, used or not.
    """
    graph = model.graph
    for node in graph.node:
        if node.op_type == "Add" and node.output[0] in custom:
            node.op_type = "Identity"
            del node.input[1:]
    needed = {value.name for value in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            nodes.append(node)
            needed.update(reads(node))
    _keep(graph.node, nodes[::-1])
    _keep(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in needed.union(kept)])
    _keep(graph.value_info, [value for value in graph.value_info if value.name in needed])
    return model


def _keep(field: Any, items: list[Any]) -> None:
    if len(items) < len(field):
        copies = [copy.deepcopy(item) for item in items]
        del field[:]
        field.extend(copies)
