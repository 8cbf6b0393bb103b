"""Reverse-mode and forward-mode differentiation of ONNX models; the derivatives are nodes of the returned model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx

from onnx_models.gradient.builder import PARAMETERS, GradientBuilder, Names, ZeroGradientWarning
from onnx_models.gradient.coverage import Coverage, coverage
from onnx_models.gradient.report import Report, operators_between, own_operators

__all__ = [
    "PARAMETERS",
    "Coverage",
    "Report",
    "ZeroGradientWarning",
    "coverage",
    "gradient",
    "jvp",
    "own_operators",
    "report",
    "vjp",
]


def gradient(
    model: onnx.ModelProto,
    loss: str,
    wrt: Names,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
) -> onnx.ModelProto:
    """A copy of `model` with gradients of its tensor `loss`: one more output, NAME_grad, for each name in `wrt`.

    The gradients are computed by further nodes (reverse mode). These are standard operators, and operators of this project
    where ONNX has none (their names end in Grad). ONNX Runtime runs the latter after `ortops.register`, or unregistered
    after `onnx_models.portable.attach`. Dynamic shapes stay dynamic, and a length declared as -1 is unknown, as for ONNX
    Runtime. Functions of the model are inlined, and opsets before 18 are converted to 18. The model's own nodes stay: its
    outputs keep their values bit for bit in a session without optimizations, while ONNX Runtime may fuse other nodes than
    before, which round differently.

    Args:
        model: not modified. External data stays where it is. A model may exceed 2 GiB in memory; the result then does too,
            and `onnx.save` needs ``save_as_external_data=True``.
        loss: name of a tensor with one element: of rank 0, or with all axes of length 1. If its shape is dynamic and the
            tensor has another number of elements at run time, the session fails at a node whose name says so.
        wrt: names of floating-point inputs, initializers or intermediate tensors. A mapping also gives the names of the
            new outputs; a gradient of a gradient needs that, since NAME_grad is taken. "parameters" selects what a
            network learns: all floating-point initializers and Constants that the loss depends on, except settings of
            operators (such as bounds, running statistics, scales of Resize and of quantization) and single numbers of
            formulas (`onnx_models.gradient.parameters`). `report` tells which are left out, and why.
        stop_at: names of tensors to treat as constants.
        through_rois: False to treat the RoIs of RoiAlign as constants, as torchvision does. If other nodes of a detector
            also read the RoIs, and PyTorch detaches them, name them in `stop_at`.

    Returns:
        The model. NAME_grad has the type and shape of NAME. If the loss does not depend on NAME, NAME_grad is 0 and a
        `ZeroGradientWarning` is issued.

    Raises:
        ValueError: a name is unknown or not of a floating-point type, the loss does not have one element, an output's name
            is taken, or operators between `wrt` and `loss` cannot be differentiated; the message lists all of these. Also
            for invalid models: a function calls itself, a node reads a tensor before it is computed, lacks an input or an
            attribute, or gives an operator of this project an attribute that breaks its rule. Also if the opset cannot
            be converted, or inlining would make the model too large (`onnx_models.functions`).
        TypeError: an attribute of an operator of this project is unknown, which a session would not notice, or has the
            wrong type.
    """
    builder, found, names = _differentiated_loss(model, loss, wrt, stop_at, through_rois)
    return builder.build(found, names, _NO_PATH)


_NO_PATH = "the gradient with respect to {} is 0: the loss does not depend on it"


def report(
    model: onnx.ModelProto,
    loss: str,
    wrt: Names,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
) -> Report:
    """Describe what `gradient` does for the same arguments, without building the model.

    Raises:
        ValueError, TypeError: as `gradient`, except that the report lists operators that cannot be differentiated.
    """
    builder, found, names = _differentiated_loss(model, loss, wrt, stop_at, through_rois)
    operators = operators_between(builder.graph, list(names), loss, builder.context)
    refused, before, after = tuple(builder.refused), builder.size(), None
    zeros: tuple[str, ...] = ()
    if not refused:
        zeros = tuple(name for name in names if name not in found)
        builder.complete(found, names)
        after = builder.size()
    ours = () if refused else tuple(sorted(own_operators(builder.prepared_model).items()))
    left_out = tuple(builder.left_out.items())
    ends = tuple(dict.fromkeys(builder.context.zeros))
    return Report(operators, ends, zeros, refused, before, after, tuple(names), left_out, ours)


def _differentiated_loss(
    model: onnx.ModelProto, loss: str, wrt: Names, stop_at: Collection[str], through_rois: bool
) -> tuple[GradientBuilder, Mapping[str, str], Mapping[str, str]]:
    """The builder after reverse mode from `loss`; names of gradients and of outputs, both by names in `wrt`."""
    builder = GradientBuilder(model, stop_at, through_rois)
    builder.check("loss", [loss])
    names: Mapping[str, str] = builder.named("wrt", wrt, "_grad")
    graph, lengths = builder.graph, builder.graph.lengths(loss)
    if lengths is not None and any(isinstance(length, int) and length != 1 for length in lengths):
        raise ValueError(f"loss = {loss!r} has shape {lengths}: must have one element")
    # Reshape, not Expand: a loss with more than one element has to fail at run time. The error names the node.
    seed = graph.reshaped(graph.number(1.0, loss), loss)
    graph.added[-1].name = f"loss = {loss!r}: must have one element"
    found = builder.backward({loss: seed}, names)
    names = _depended_on(builder, wrt, names, found, "the loss")
    return builder, found, names


def vjp(
    model: onnx.ModelProto,
    outputs: Sequence[str] | Mapping[str, str],
    wrt: Names,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
) -> onnx.ModelProto:
    """A copy of `model` with a vector-Jacobian product: reverse mode from any tensors, weighted by cotangents.

    Each name in `outputs` adds an input NAME_cotangent, and each name in `wrt` an output NAME_grad: the gradient of the sum
    of cotangent * output over all elements. Applied to a gradient, this gives a Hessian-vector product, because a
    Hessian is symmetric::

        made = onnx_models.gradient(model, "loss", ["w"])
        made = onnx_models.vjp(made, {"w_grad": "v"}, {"w": "hessian_times_v"})

    Second derivatives of RoiAlign with respect to its RoIs use the operator's body of standard operators, which computes in
    double.

    Args:
        model: not modified, as in `gradient`.
        outputs: names of floating-point tensors. A mapping also gives the names of the cotangents. A cotangent has the
            type and shape of its tensor.
        wrt: as in `gradient`.
        stop_at: as in `gradient`.
        through_rois: as in `gradient`.

    Raises:
        ValueError, TypeError: as `gradient`. If shapes are dynamic, a session fails at a cotangent with another number of
            elements, at a node whose name says so.
    """
    builder = GradientBuilder(model, stop_at, through_rois)
    cotangents = builder.named("outputs", outputs, "_cotangent")
    names: Mapping[str, str] = builder.named("wrt", wrt, "_grad")
    found = builder.backward({of: builder.input(name, of) for of, name in cotangents.items()}, names)
    names = _depended_on(builder, wrt, names, found, "outputs")
    return builder.build(found, names, "the gradient with respect to {} is 0: none of the outputs depends on it")


def jvp(
    model: onnx.ModelProto,
    outputs: Sequence[str] | Mapping[str, str],
    wrt: Names,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
) -> onnx.ModelProto:
    """A copy of `model` with a Jacobian-vector product: forward mode.

    Each name in `wrt` adds an input NAME_tangent, the direction in which that tensor changes. Each name in `outputs` adds an
    output NAME_tangent, the directional derivative of that tensor. Reverse mode is applied twice, with the rules of
    `gradient`: the gradients are linear in the cotangents, and the transpose of that map is the Jacobian.

    Args:
        model: not modified, as in `gradient`.
        outputs: names of floating-point tensors; a mapping also gives the names of the new outputs.
        wrt: names of tensors as in `gradient`; a mapping gives the names of the new inputs.
        stop_at: as in `gradient`.
        through_rois: as in `gradient`.

    Raises:
        ValueError, TypeError: as `gradient`, and for tangents as `vjp` for cotangents. Also if the gradient of an
            operator cannot be differentiated itself; the message says so.
    """
    builder = GradientBuilder(model, stop_at, through_rois)
    derivatives = builder.named("outputs", outputs, "_tangent")
    names: Mapping[str, str] = builder.named("wrt", wrt, "_tangent")
    graph = builder.graph
    # Their values do not matter: the gradients are linear in the cotangents.
    cotangents = {name: graph.zeros(name) for name in derivatives}
    found = builder.backward(cotangents, names)
    names = _depended_on(builder, wrt, names, found, "outputs")
    tangents: dict[str, list[str]] = {}
    for of, name in names.items():
        tangent = builder.input(name, of)
        if of in found:
            tangents.setdefault(found[of], []).append(tangent)
    seeds = {name: parts[0] if len(parts) == 1 else graph.op("Sum", *parts) for name, parts in tangents.items()}
    by_cotangents = builder.backward(seeds, cotangents.values(), list(graph.added))
    moved = {name: by_cotangents[of] for name, of in cotangents.items() if of in by_cotangents}
    return builder.build(moved, derivatives, "the derivative of {} is 0: it does not depend on any tensor in wrt")


def _depended_on(
    builder: GradientBuilder, wrt: Names, names: Mapping[str, str], found: Collection[str], what: str
) -> Mapping[str, str]:
    """The names; of "parameters" only those that have a derivative."""
    if not isinstance(wrt, str) or builder.refused:
        return names
    kept = {of: name for of, name in names.items() if of in found}
    if not kept:
        raise ValueError(f"wrt = {PARAMETERS!r}: {what} must depend on at least one weight of a floating-point type")
    builder.left_out |= {of: f"{what} does not depend on it" for of in names if of not in kept}
    return kept
