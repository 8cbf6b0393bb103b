"""The gradient of an ONNX model as an ONNX model: standard operators plus this project's."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx

from onnx_models.check import check_attributes
from onnx_models.functions import inlined
from onnx_models.gradient.backward import gradients
from onnx_models.gradient.graph import Graph
from onnx_models.tools import inferred
from onnx_models.walk import label, normal_domain, onnx_opset

__all__ = ["gradient"]

OLDEST_OPSET = 18
"""The rules write operators as they are from this opset on."""


def gradient(
    model: onnx.ModelProto, loss: str, wrt: Sequence[str], *, stop_at: Collection[str] = ()
) -> onnx.ModelProto:
    """A copy of `model` with the gradient of one of its tensors: for each name in `wrt` one more output, NAME_grad.

    Reverse-mode differentiation of the graph, written out as nodes: standard operators, and this project's where ONNX has
    none (RoiAlignGrad, DmlRoiAlignGrad, DmlResampleGrad), which ONNX Runtime runs with `ortops.register` or with
    the bodies of `onnx_models.portable.attach`. Shapes that are open stay open. Functions of the model are inlined.

    Args:
        model: of opset 18 or later; not modified. External data stays where it is.
        loss: name of a tensor of one element, of rank 0 or with axes of length 1.
        wrt: names of inputs, initializers or any other tensors of the graph, of a floating-point type.
        stop_at: names of tensors that are taken for constants.

    Returns:
        The model. NAME_grad has type and shape of NAME; it is 0 where the loss does not depend on NAME.

    Raises:
        ValueError: the opset is too old, a name is unknown or not of a floating-point type, the loss has not one element,
            an output's name is taken, or an operator between `wrt` and `loss` has no rule; the message names it. Or the
            model is no lawful one: a function calls itself or has another opset, a node reads a tensor that is not there
            yet, lacks an input or an attribute, or has one of this project's operators with an attribute that breaks its
            rule. Or inlining would make the model too large (`onnx_models.functions`).
        TypeError: an attribute of this project's operators is unknown, which a session would not notice, or has a wrong
            type.
    """
    prepared = _prepared(model)
    graph = Graph(prepared)
    _check(graph, prepared, loss, wrt, stop_at)
    names = {name: graph.reserve(f"{name}_grad") for name in wrt}
    opsets = {normal_domain(item.domain): item.version for item in prepared.opset_import}
    found = gradients(graph, prepared.graph.node, opsets, loss, wrt, stop_at)
    return graph.finish([(found[name], names[name], name) for name in names])


def _prepared(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with types and shapes, without functions but for bodies of this project's operators."""
    version = onnx_opset(model)
    if version is None or version < OLDEST_OPSET:
        raise ValueError(f"model has opset {version}: must be {OLDEST_OPSET} or later (onnx.version_converter)")
    check_attributes(model)
    return inferred(inlined(model), data_prop=True)


def _tensors(graph: onnx.GraphProto) -> set[str]:
    """The names of all tensors of a graph, each made once and before it is read: reverse mode goes by that.

    Raises:
        ValueError: a node reads a tensor that no node before it makes, or makes one that is there already.
    """
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                raise ValueError(f"{label(node)} reads {name!r}: must be made by a node before it")
        for name in filter(None, node.output):
            if name in known:
                raise ValueError(f"{label(node)} makes {name!r}: must be made once, and is there already")
            known.add(name)
    return known


def _check(graph: Graph, model: onnx.ModelProto, loss: str, wrt: Sequence[str], stop_at: Collection[str]) -> None:
    known = _tensors(model.graph)
    if not wrt or len(set(wrt)) != len(wrt):
        raise ValueError(f"wrt = {list(wrt)}: must be one or more names, none twice")
    for argument, names in (("loss", [loss]), ("wrt", wrt), ("stop_at", stop_at)):
        for name in names:
            if name not in known:
                raise ValueError(f"{argument} has {name!r}: must be the name of a tensor of the graph")
    for argument, names in (("loss", [loss]), ("wrt", wrt)):
        for name in names:
            kind = graph.element_type(name)
            if kind is None:
                raise ValueError(
                    f"{argument} has {name!r}: its type must be known, and shape inference does not find it"
                )
            if not onnx.helper.tensor_dtype_to_np_dtype(kind).kind == "f" and kind != onnx.TensorProto.BFLOAT16:
                raise ValueError(
                    f"{argument} has {name!r} of type {onnx.TensorProto.DataType.Name(kind).lower()}: must be floats"
                )
    lengths = graph.lengths(loss)
    if lengths is not None and any(isinstance(length, int) and length != 1 for length in lengths):
        raise ValueError(f"loss = {loss!r} has shape {lengths}: must have one element")
