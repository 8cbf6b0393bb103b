# SPDX-License-Identifier: MIT
"""Functions that PyTorch differentiates by a special formula: a value, and a surrogate that has the right gradient.

The nodes that compute the value may have another gradient than the formula, or NaN: log(sigmoid(x)) far from 0, the root of
a variance of 0. Such a function becomes `with_derivatives` of its value and PyTorch's formulas. Marker nodes keep value and
surrogate in the graph from export to differentiation; then the surrogates are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import onnx
import torch
from onnxscript import opset18 as op

from onnx_models.tools.protos import assign, input_names, needed

_DOMAIN = "onnx_models.torch.marks"
"""A domain that the exporter's optimizer does not know; it would remove ONNX's Identity, and some Add."""

_library = torch.library.Library("ortops", "FRAGMENT")
_library.define("custom_gradient(Tensor value, Tensor surrogate) -> Tensor")
torch.library.register_fake("ortops::custom_gradient", lambda value, surrogate: torch.empty_like(value), lib=_library)  # noqa: ARG005


def with_derivatives(value: Any, *terms: tuple[Any, Any]) -> Any:
    """The value of a function with given derivatives: pairs of an argument and of the derivative by it.

    Each pair broadcasts to the shape of the value.
    """
    surrogate = sum(x * derivative.detach() for x, derivative in terms)
    return with_gradient_of(value, surrogate)


def with_gradient_of(value: Any, surrogate: Any) -> Any:
    """A tensor with the values of one tensor and the gradient of another one of the same shape."""
    return torch.ops.ortops.custom_gradient(value, surrogate.to(value.dtype))


class Markers:
    """The marker nodes of an exported graph: Identity where a gradient ends, and Add of a value and a surrogate."""

    def __init__(self) -> None:
        self._marked_values: list[Any] = []

    def translations(self) -> dict[Any, Callable[..., Any]]:
        """Translations of ``detach`` and ``ortops::custom_gradient`` for one export."""

        # The exporter accepts functions, but no methods.
        def stop(x: Any) -> Any:
            return self._marked(op.Identity(x))

        def custom_gradient(value: Any, surrogate: Any) -> Any:
            # Only the surrogate passes a gradient; `without_surrogates` turns the sum into the value again.
            return self._marked(op.Add(stop(value), surrogate))

        return {torch.ops.aten.detach.default: stop, torch.ops.ortops.custom_gradient.default: custom_gradient}

    def _marked(self, value: Any) -> Any:
        self._marked_values.append(value)
        return value

    def protect(self, program: Any) -> None:
        """Protect the markers from the optimizer by a domain that it does not know."""
        graph = program.model.graph
        names = {value.name for value in self._marked_values}
        for node in graph.all_nodes():
            if node.op_type in ("Identity", "Add") and node.outputs[0].name in names:
                node.domain = _DOMAIN
                graph.opset_imports[_DOMAIN] = 1


def remove_markers(program: Any) -> tuple[list[Any], list[Any]]:
    """After optimization, give the marker nodes ONNX's domain.

    Returns the outputs where a gradient ends, and the outputs of functions with custom gradients.
    """
    graph = program.model.graph
    nodes = [node for node in graph.all_nodes() if node.domain == _DOMAIN]
    for node in nodes:
        node.domain = ""
    graph.opset_imports.pop(_DOMAIN, None)
    stops, custom = ([node.outputs[0] for node in nodes if node.op_type == kind] for kind in ("Identity", "Add"))
    return stops, custom


def without_surrogates(model: onnx.ModelProto, custom: Collection[str], kept: Collection[str]) -> onnx.ModelProto:
    """The differentiated model without surrogates, and without the nodes and initializers that only these needed.

    `custom` are the outputs of functions with custom gradients, `kept` initializers to keep even if they are unused.
    The model is modified in place.
    """
    graph = model.graph
    for node in graph.node:
        if node.op_type == "Add" and node.output[0] in custom:
            node.op_type = "Identity"
            del node.input[1:]
    nodes, names = needed_nodes(graph, [value.name for value in graph.output])
    assign(graph.node, nodes)
    assign(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in names.union(kept)])
    assign(graph.value_info, [value for value in graph.value_info if value.name in names])
    return model


def needed_nodes(graph: onnx.GraphProto, outputs: Collection[str]) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes of a graph that these outputs need, in order, and the names of all tensors that these read or are."""
    nodes = needed(graph.node, outputs)
    return nodes, set(outputs).union(*map(input_names, nodes))
