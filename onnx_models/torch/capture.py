"""A module's forward pass as PyTorch's ONNXProgram, with the places where PyTorch's gradient ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from onnxscript import opset18 as op

from onnx_models.torch.translations import translation_table

_STOPS = "onnx_models.torch.stops"
"""A domain unknown to the exporter's optimizer, which takes away ONNX's Identity."""


def capture(
    module: Any,
    inputs: Mapping[str, Any],
    dynamic_shapes: Mapping[str, Mapping[int, Any]],
    opset_version: int,
    *,
    through_rois: bool,
) -> Any:
    """The ONNXProgram, not yet optimized. What is detached is the output of a node that `free_stops` makes an Identity.

    Args:
        module: its ``forward(*tensors)`` takes all inputs.
        inputs: example tensors by name.
        dynamic_shapes: for some of them the open axes.
        opset_version: of ONNX.
        through_rois: whether RoiAlign passes a gradient to its RoIs.

    Raises:
        ValueError: the module has a gradient of its own.
    """
    named = [dict(dynamic_shapes.get(name, {})) or None for name in inputs]
    traced = [
        axes and {i: torch.export.Dim.DYNAMIC if isinstance(dim, str) else dim for i, dim in axes.items()}
        for axes in named
    ]
    # Under no_grad the module's own no_grad would leave no trace.
    with torch.enable_grad(), _no_own_gradients():
        exported = torch.export.export(
            module, tuple(inputs.values()), dynamic_shapes={"tensors": tuple(traced)}, strict=False
        )
    _detach_what_has_no_gradient(exported.graph_module.graph)
    if not through_rois:
        _detach_rois(exported.graph_module.graph)
    exported.graph_module.recompile()
    if any(_calls(exported.graph_module.graph, target) for target in _losses()):
        exported = exported.run_decompositions(_losses())
    detached: list[Any] = []
    program = torch.onnx.export(
        exported,
        dynamo=True,
        opset_version=opset_version,
        custom_translation_table={**translation_table(), torch.ops.aten.detach.default: _identity_into(detached)},
        dynamic_shapes={"tensors": tuple(named)},
        optimize=False,
        verbose=False,
    )
    _hold_stops(program, {value.name for value in detached})
    return program


@contextlib.contextmanager
def _no_own_gradients() -> Iterator[None]:
    """Refuse subclasses of torch.autograd.Function: an exported program has their forward pass only."""
    apply = torch.autograd.Function.apply.__func__

    def refuse(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls.__module__.partition(".")[0] == "torch":
            return apply(cls, *args, **kwargs)
        raise ValueError(
            f"the module uses {cls.__qualname__}, a torch.autograd.Function: its gradient would be that of its forward pass"
        )

    with mock.patch.object(torch.autograd.Function, "apply", classmethod(refuse)):
        yield


def _detach_what_has_no_gradient(graph: Any) -> None:
    """Detach what comes out of ``torch.no_grad``, and what is detached in place: both would leave no trace."""
    without_gradient = torch.ops.higher_order.wrap_with_set_grad_enabled
    for node in _calls(graph, torch.ops.aten.detach_.default):
        node.target = torch.ops.aten.detach.default
    for node in _calls(graph, without_gradient):
        if not node.args[0]:
            for output in list(node.users):
                detached = _detached(output, graph.inserting_after(output))
                output.replace_all_uses_with(detached, delete_user_cb=lambda user, made=detached: user is not made)


def _detach_rois(graph: Any) -> None:
    for node in _calls(graph, torch.ops.torchvision.roi_align.default):
        node.update_arg(1, _detached(node.args[1], graph.inserting_before(node)))


def _losses() -> dict[Any, Any]:
    """PyTorch's own decompositions of its losses, which the exporter would write as operators of ONNX for them."""
    aten = torch.ops.aten
    table = torch.export.default_decompositions()
    losses = (aten.cross_entropy_loss, aten.nll_loss_nd, aten.nll_loss, aten.nll_loss2d)
    return {loss.default: table[loss.default] for loss in losses}


def _calls(graph: Any, target: Any) -> list[Any]:
    return [node for node in graph.nodes if node.op == "call_function" and node.target is target]


def _detached(node: Any, place: Any) -> Any:
    """A new node at a place in the graph, which detaches what `node` gives."""
    with place:
        made = node.graph.call_function(torch.ops.aten.detach.default, (node,))
    made.meta.update(node.meta)
    return made


def _identity_into(found: list[Any]) -> Callable[[Any], Any]:
    """A translation that keeps the values it has made."""

    def identity(x: Any) -> Any:
        value = op.Identity(x)
        found.append(value)
        return value

    return identity


def _hold_stops(program: Any, names: set[str]) -> None:
    graph = program.model.graph
    for node in graph.all_nodes():
        if node.op_type == "Identity" and node.outputs[0].name in names:
            node.domain = _STOPS
            graph.opset_imports[_STOPS] = 1


def free_stops(program: Any) -> list[Any]:
    """After optimizing, make the nodes that `capture` has marked ONNX's again; their outputs, where a gradient ends."""
    graph = program.model.graph
    nodes = [node for node in graph.all_nodes() if node.domain == _STOPS]
    for node in nodes:
        node.domain = ""
    graph.opset_imports.pop(_STOPS, None)
    return [node.outputs[0] for node in nodes]
