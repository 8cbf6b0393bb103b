# SPDX-License-Identifier: MIT
"""Export of a module's forward pass to PyTorch's ONNXProgram, with markers for gradients that differ from the nodes'."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import onnx_ir
import torch
from onnx_ir.passes import common as passes
from onnxscript import optimizer

from onnx_models.torch import decompositions
from onnx_models.torch.custom_gradients import Markers
from onnx_models.torch.decompositions import visible_statistics
from onnx_models.torch.translations import translation_table

_RUNNING_MEAN, _USE_INPUT_STATS = 3, 5
"""Their indices among the arguments of instance_norm."""

_REDUCE = 4
"""Its index among the arguments of scatter_reduce."""


def capture(
    module: Any,
    inputs: Mapping[str, Any],
    dynamic_shapes: Mapping[str, Mapping[int, Any]],
    opset_version: int,
    translations: Mapping[Any, Callable[..., Any]],
    *,
    through_rois: bool,
) -> Any:
    """The ONNXProgram, not yet optimized, with protected markers (see `custom_gradients`).

    The module's ``forward(*tensors)`` takes all inputs in order. `through_rois`: whether RoiAlign passes a gradient to
    its RoIs. A key of `translations` without its overload is a TypeError; a module that defines a gradient of its own,
    or changes a parameter, a ValueError.
    """
    named = [dict(dynamic_shapes.get(name, {})) or None for name in inputs]
    traced = [
        axes and {i: torch.export.Dim.DYNAMIC if isinstance(dim, str) else dim for i, dim in axes.items()}
        for axes in named
    ]
    marks = Markers()
    ours = marks.translations()
    for operator in translations:
        if isinstance(operator, torch._ops.OpOverloadPacket):  # noqa: SLF001 - would have no effect
            raise TypeError(f"custom_translation_table has {operator}: must be an overload, such as {operator}.default")
        if operator in ours:
            raise ValueError(f"custom_translation_table has {operator}: must not, since it marks where gradients end")
    exported = _exported(module, inputs, traced, through_rois=through_rois)
    with _decompositions_of_this_package():
        program = torch.onnx.export(
            exported,
            dynamo=True,
            opset_version=opset_version,
            custom_translation_table={**translation_table(), **translations, **ours},
            dynamic_shapes={"tensors": tuple(named)},
            optimize=False,
            verbose=False,
        )
    marks.protect(program)
    return program


def _exported(module: Any, inputs: Mapping[str, Any], traced: Sequence[Any], *, through_rois: bool) -> Any:
    """The ExportedProgram, not yet decomposed."""
    # With gradients enabled, since under no_grad the module's own no_grad would leave no trace.
    with torch.enable_grad(), _no_custom_gradients(), visible_statistics():
        exported = torch.export.export(
            module, tuple(map(_distinct, inputs.values())), dynamic_shapes={"tensors": tuple(traced)}, strict=False
        )
    graphs = [
        submodule.graph for submodule in exported.graph_module.modules() if isinstance(submodule, torch.fx.GraphModule)
    ]
    _detach_what_has_no_gradient(exported.graph_module.graph)
    if not through_rois:
        _detach_rois(exported.graph_module.graph)
    for graph in graphs:
        _refuse_layers(graph)
        graph.owning_module.recompile()
    return exported


@contextlib.contextmanager
def _decompositions_of_this_package() -> Iterator[None]:
    """Add this package's decompositions to those of the exporter, since each pass over a program takes many seconds."""
    run = torch.export.ExportedProgram.run_decompositions

    def with_ours(program: Any, table: Any = None, **arguments: Any) -> Any:
        return run(program, {**(table or {}), **_decompositions()}, **arguments)

    with mock.patch.object(torch.export.ExportedProgram, "run_decompositions", with_ours):
        yield


def simplify(program: Any) -> None:
    """Fold constants and eliminate common subexpressions.

    This is the exporter's optimizer without its rewrite rules, which drop small summands such as the 1e-12 that keeps a root
    away from 0.
    """
    passes.InlinePass()(program.model)
    optimizer.fold_constants(program.model)
    onnx_ir.passes.Sequential(
        passes.RemoveUnusedNodesPass(),
        passes.RemoveUnusedFunctionsPass(),
        passes.RemoveUnusedOpsetsPass(),
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.LiftSubgraphInitializersToMainGraphPass(),
        passes.DeduplicateInitializersPass(),
        passes.CommonSubexpressionEliminationPass(),
        passes.OutputFixPass(),
        passes.NameFixPass(),
    )(program.model)


def _distinct(tensor: Any) -> Any:
    """The tensor as a new object: for one tensor given twice, torch.export makes one input and leaves the other unused."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


@contextlib.contextmanager
def _no_custom_gradients() -> Iterator[None]:
    """Refuse torch.autograd.Function and hooks, since an exported program contains only the forward pass."""
    # A Python method or, from PyTorch 2.14 on, a C method.
    apply = torch.autograd.Function.__dict__["apply"]

    def refuse(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls.__module__.partition(".")[0] == "torch":
            return apply.__get__(None, cls)(*args, **kwargs)
        raise ValueError(
            f"the module uses {cls.__qualname__}, a torch.autograd.Function, whose backward pass would be lost: only the "
            "forward pass is exported; use differentiable operators instead"
        )

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch.autograd.Function, "apply", classmethod(refuse)))
        for owner, names in _HOOK_FUNCTIONS:
            for name in names:
                stack.enter_context(mock.patch.object(owner, name, _refused(f"{owner.__name__}.{name}")))
        yield


_HOOK_FUNCTIONS: Sequence[tuple[Any, Sequence[str]]] = (
    (torch.Tensor, ("register_hook", "register_post_accumulate_grad_hook")),
    (
        torch.nn.Module,
        ("register_backward_hook", "register_full_backward_hook", "register_full_backward_pre_hook"),
    ),
    (torch.autograd.graph, ("register_multi_grad_hook",)),
)


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
        raise ValueError(f"the module calls {name}: remove the hook, since only the forward pass is exported")

    return refuse


def check_hooks(named_modules: Mapping[str, Any], named_tensors: Mapping[str, Any]) -> None:
    """Refuse backward hooks, which the exported model would not have, of modules, parameters, buffers and inputs."""
    for kind, things, fields in (
        ("module", named_modules, ("_backward_hooks", "_backward_pre_hooks")),
        ("tensor", named_tensors, ("_backward_hooks", "_post_accumulate_grad_hooks")),
    ):
        for name, thing in things.items():
            if any(getattr(thing, field, None) for field in fields):
                raise ValueError(f"{kind} {name!r} has a backward hook: remove it, since the model would not have it")
    global_hooks = ("_global_backward_hooks", "_global_backward_pre_hooks")
    if any(getattr(torch.nn.modules.module, field) for field in global_hooks):
        raise ValueError("all modules have a global backward hook: remove it, since the model would not have it")


def _detach_what_has_no_gradient(graph: Any) -> None:
    """Insert ``detach`` after ``torch.no_grad`` and for ``detach_``, which would leave no trace in the exported model."""
    without_gradient = torch.ops.higher_order.wrap_with_set_grad_enabled
    for node in _calls(graph, torch.ops.aten.detach_.default):
        node.target = torch.ops.aten.detach.default
    for node in _calls(graph, without_gradient):
        if not node.args[0]:
            for output in list(node.users):
                detached = _detached(output, graph.inserting_after(output))
                output.replace_all_uses_with(detached, delete_user_cb=lambda user, made=detached: user is not made)


def _detach_rois(graph: Any) -> None:
    """Detach the RoIs of torchvision's RoiAlign, which treats them as constants; `ortops.torch` does not."""
    if not hasattr(torch.ops.torchvision, "roi_align"):
        return
    for node in _calls(graph, torch.ops.torchvision.roi_align.default):
        node.update_arg(1, _detached(node.args[1], graph.inserting_before(node)))


def _refuse_layers(graph: Any) -> None:
    """Refuse layers with a right forward pass but a wrong gradient, or with a state that would never change."""
    aten = torch.ops.aten
    if _calls(graph, aten.embedding_renorm_.default):
        raise ValueError(
            "an embedding has max_norm: must be None, since it changes the weight in place, which a model cannot"
        )
    for loss in (aten.multi_margin_loss, aten.multilabel_margin_loss):
        if _calls(graph, loss.default):
            raise ValueError(f"the module has {loss}: must not, since PyTorch's exporter translates it wrongly")
    for node in _calls(graph, aten.instance_norm.default):
        if node.args[_RUNNING_MEAN] is not None and node.args[_USE_INPUT_STATS]:
            raise ValueError(
                "an InstanceNorm has track_running_stats in training mode: must be in evaluation mode (eval())"
            )
    for node in [*_calls(graph, aten.scatter_reduce.two), *_calls(graph, aten.scatter_reduce_.two)]:
        reduce, is_with_self = node.args[_REDUCE], node.kwargs.get("include_self", True)
        if reduce == "mean" or (reduce in ("amax", "amin") and not is_with_self):
            raise ValueError(
                f"scatter_reduce has reduce = {reduce!r} and include_self = {is_with_self}: must be 'sum' or 'prod', or "
                "'amax' or 'amin' with include_self = True"
            )


def _decompositions() -> dict[Any, Any]:
    """Decompositions of operators: PyTorch's own, and those of this package that have PyTorch's gradients."""
    table = torch.export.default_decompositions()
    composed = {getattr(packet, name) for packet in decompositions.COMPOSED for name in packet.overloads()}
    theirs = {operator: table[operator] for operator in composed if operator in table}
    return {**theirs, **decompositions.DECOMPOSITIONS}


def _calls(graph: Any, target: Any) -> list[Any]:
    return [node for node in graph.nodes if node.op == "call_function" and node.target is target]


def _detached(node: Any, place: Any) -> Any:
    """Add a node that detaches the output of `node`, at an insertion point of the graph."""
    with place:
        detached = node.graph.call_function(torch.ops.aten.detach.default, (node,))
    detached.meta.update(node.meta)
    return detached
