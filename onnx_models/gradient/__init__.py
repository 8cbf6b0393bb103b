"""The gradient of an ONNX model as an ONNX model: standard operators plus this project's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx

from onnx_models.gradient.builder import PARAMETERS, GradientBuilder, Names, ZeroGradientWarning
from onnx_models.gradient.coverage import Coverage, coverage
from onnx_models.gradient.report import Report, operators_between

__all__ = ["PARAMETERS", "Coverage", "Report", "ZeroGradientWarning", "coverage", "gradient", "jvp", "report", "vjp"]


def gradient(
    model: onnx.ModelProto,
    loss: str,
    wrt: Names,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
) -> onnx.ModelProto:
    """A copy of `model` with the gradient of one of its tensors: for each name in `wrt` one more output, NAME_grad.

    Reverse-mode differentiation of the graph, written out as nodes: standard operators, and this project's where ONNX has
    none (those whose names end in Grad), which ONNX Runtime runs with `ortops.register` or with the bodies of
    `onnx_models.portable.attach`. Shapes that are open stay open. Functions of the model are inlined, and a
    model of an opset before 18 is converted to 18. The nodes of the model stay, and its outputs are the same bit for bit.

    Args:
        model: not modified. External data stays where it is. It may be larger than 2 GiB in memory; then the result is
            too, and `onnx.save` needs ``save_as_external_data=True``.
        loss: name of a tensor of one element, of rank 0 or with axes of length 1. Where its shape is open, another number
            of elements is an error when the model runs.
        wrt: names of inputs, initializers or any other tensors of the graph, of a floating-point type. A mapping gives the
            names of the outputs as well, as a gradient of a gradient needs it, since NAME_grad is taken. "parameters"
            stands for all floating-point initializers by which the loss has a derivative, but for the mean and the
            variance of BatchNormalization.
        stop_at: names of tensors that are taken for constants.
        through_rois: False for RoIs that are taken for constants by RoiAlign, as torchvision takes them. Where other
            nodes of a detector read them as well, and PyTorch detaches them, name them in `stop_at`.

    Returns:
        The model. NAME_grad has type and shape of NAME. It is 0 where the loss does not depend on NAME, which a
        `ZeroGradientWarning` tells.

    Raises:
        ValueError: a name is unknown or not of a floating-point type, the loss has not one element, an output's name is
            taken, or a gradient cannot pass operators between `wrt` and `loss`; the message names all of these. Or the
            model is no lawful one: a function calls itself, a node reads a tensor that is not there
            yet, lacks an input or an attribute, or has one of this project's operators with an attribute that breaks its
            rule. Or its opset cannot be converted, or inlining would make the model too large (`onnx_models.functions`).
        TypeError: an attribute of this project's operators is unknown, which a session would not notice, or has a wrong
            type.
    """
    builder, found, names = _differentiated_loss(model, loss, wrt, stop_at, through_rois)
    return builder.build(found, names, _NO_PATH)


_NO_PATH = "the gradient by {} is 0: the loss does not depend on it"


def report(
    model: onnx.ModelProto,
    loss: str,
    wrt: Names,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
) -> Report:
    """What `gradient` of the same arguments makes, or why it refuses to.

    Raises:
        ValueError, TypeError: as `gradient`, but for operators that a gradient cannot pass: the report has these.
    """
    builder, found, names = _differentiated_loss(model, loss, wrt, stop_at, through_rois)
    operators = operators_between(builder.graph, list(names), loss, builder.findings)
    refused, before, after = tuple(builder.refused), builder.size(), None
    zeros: tuple[str, ...] = ()
    if not refused:
        zeros = tuple(name for name in names if name not in found)
        builder.complete(found, names)
        after = builder.size()
    return Report(operators, tuple(dict.fromkeys(builder.findings.zeros)), zeros, refused, before, after)


def _differentiated_loss(
    model: onnx.ModelProto, loss: str, wrt: Names, stop_at: Collection[str], through_rois: bool
) -> tuple[GradientBuilder, Mapping[str, str], Mapping[str, str]]:
    """A builder with the gradient of a loss, names of what was found by names in wrt, and names of the outputs."""
    builder = GradientBuilder(model, stop_at, through_rois)
    builder.check("loss", [loss])
    names: Mapping[str, str] = builder.named("wrt", wrt, "_grad")
    graph, lengths = builder.graph, builder.graph.lengths(loss)
    if lengths is not None and any(isinstance(length, int) and length != 1 for length in lengths):
        raise ValueError(f"loss = {loss!r} has shape {lengths}: must have one element")
    # Reshape, not Expand: a loss that has more than one element when the model runs is an error.
    seed = graph.reshaped(graph.number(1.0, loss), loss)
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
    """A copy of `model` with the product of a vector and its Jacobian: reverse mode from any tensors, with weights.

    It is the gradient of the sum of all elements of `outputs`, each weighted by an element of a cotangent, which is an
    input of the copy: for each name in `outputs` one more input, NAME_cotangent, and for each in `wrt` one more output,
    NAME_grad. Of a gradient that makes a product of the loss' Hessian and vectors, as a Hessian is symmetric::

        made = onnx_models.gradient(model, "loss", ["w"])
        made = onnx_models.vjp(made, {"w_grad": "v"}, {"w": "hessian_times_v"})

    A second derivative of RoiAlign by its regions goes by the operator's body in standard operators: an average then has
    C R PH W numbers of double in memory, where W is the map's width, and one over rotated regions R PH PW N H W.

    Args:
        model: not modified, as in `gradient`.
        outputs: names of tensors of a floating-point type. A mapping gives the names of the cotangents as well, which have
            type and shape of NAME.
        wrt: as in `gradient`.
        stop_at: as in `gradient`.
        through_rois: as in `gradient`.

    Raises:
        ValueError, TypeError: as of `gradient`. Where shapes are open, a cotangent of another number of elements fails at
            run time.
    """
    builder = GradientBuilder(model, stop_at, through_rois)
    cotangents = builder.named("outputs", outputs, "_cotangent")
    names: Mapping[str, str] = builder.named("wrt", wrt, "_grad")
    found = builder.backward({of: builder.input(name, of) for of, name in cotangents.items()}, names)
    names = _depended_on(builder, wrt, names, found, "outputs")
    return builder.build(found, names, "the gradient by {} is 0: no output that is weighted depends on it")


def jvp(
    model: onnx.ModelProto,
    outputs: Sequence[str] | Mapping[str, str],
    wrt: Names,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
) -> onnx.ModelProto:
    """A copy of `model` with the product of its Jacobian and a vector: how outputs change as tensors move.

    For each name in `wrt` one more input, NAME_tangent, says how that tensor moves; for each in `outputs` one more output,
    NAME_tangent, is the derivative of that tensor. It is made by reverse mode twice, with the same rules as `gradient`:
    the gradients of `wrt` are linear in the cotangents of `outputs`, and their transpose is the Jacobian.

    Args:
        model: not modified, as in `gradient`.
        outputs: names of tensors of a floating-point type; a mapping gives the names of the new outputs as well.
        wrt: names of tensors as in `gradient`; a mapping gives the names of the new inputs.
        stop_at: as in `gradient`.
        through_rois: as in `gradient`.

    Raises:
        ValueError, TypeError: as of `gradient`, and what `vjp` says of cotangents holds of tangents. The gradient of an
            operator may lack a gradient of its own, which the message says.
    """
    builder = GradientBuilder(model, stop_at, through_rois)
    derivatives = builder.named("outputs", outputs, "_tangent")
    names: Mapping[str, str] = builder.named("wrt", wrt, "_tangent")
    graph = builder.graph
    # What they are does not matter: the derivative by them is the same everywhere.
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
    return builder.build(moved, derivatives, "the derivative of {} is 0: it depends on nothing that moves")


def _depended_on(
    builder: GradientBuilder, wrt: Names, names: Mapping[str, str], found: Collection[str], what: str
) -> Mapping[str, str]:
    """The names, but of all parameters only those that something depends on."""
    if not isinstance(wrt, str) or builder.refused:
        return names
    kept = {of: name for of, name in names.items() if of in found}
    if not kept:
        raise ValueError(f"wrt = {PARAMETERS!r}: {what} has a derivative by none of the model's initializers")
    return kept
