# SPDX-License-Identifier: MIT
"""Reverse-mode and forward-mode differentiation of ONNX models; the derivatives are nodes of the returned model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Literal, get_args

import onnx

from onnx_models.gradient.builder import PARAMETERS, GradientBuilder, Names, ZeroGradientWarning
from onnx_models.gradient.ours import Operator
from onnx_models.gradient.reports import Coverage, Report, coverage, operators_between, own_operators
from onnx_models.gradient.tied import TiedParametersWarning
from onnx_models.gradient.whole import Seeds, elements
from onnx_models.tools.protos import input_names
from onnx_models.tools.schema import schemas_of

__all__ = [
    "PARAMETERS",
    "Coverage",
    "Mode",
    "Report",
    "TiedParametersWarning",
    "ZeroGradientWarning",
    "coverage",
    "gradient",
    "hessian",
    "jacobian",
    "jvp",
    "own_operators",
    "report",
    "untie",
    "vjp",
]


def gradient(
    model: onnx.ModelProto,
    loss: str,
    wrt: Names,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
    untie: bool = False,
    operators: Iterable[Operator] = (),
) -> onnx.ModelProto:
    """A copy of `model` with gradients of its tensor `loss`: one more output, NAME_grad, for each name in `wrt`.

    The gradients are computed by further nodes (reverse mode). These are standard operators, and operators of this project
    where ONNX has none (their names end in Grad). ONNX Runtime runs the latter after `ortops.register`, or unregistered
    after `onnx_models.portable.attach`. Dynamic shapes stay dynamic, and a length declared as -1 is unknown, as for ONNX
    Runtime. Functions of the model are inlined, and opsets before 18 are converted to 18. The model's own nodes stay, except
    those of sequences (`onnx_models.gradient.prepare`): its outputs keep their values bit for bit in a session without
    optimizations, while ONNX Runtime may fuse other nodes than before, which round differently.

    Args:
        model: not modified. External data stays where it is. A model may exceed 2 GiB in memory; the result then does too,
            and `onnx.save` needs ``save_as_external_data=True``.
        loss: name of a tensor with one element: of rank 0, or with all axes of length 1. If its shape is dynamic and the
            tensor has another number of elements at run time, the session fails at a node whose name says so.
        wrt: names of floating-point inputs, initializers or intermediate tensors. A mapping also gives the names of the
            new outputs; a gradient of a gradient needs that, since NAME_grad is taken. "parameters" selects what a
            network learns: all floating-point initializers and Constants that the loss depends on, except settings of
            operators (such as bounds, running statistics, scales of Resize and of quantization), masks, and single numbers
            of formulas (`onnx_models.gradient.parameters`). `report` tells which are left out, and why.
        stop_at: names of tensors to treat as constants.
        through_rois: False to treat the RoIs of RoiAlign as constants, as torchvision does. If other nodes of a detector
            also read the RoIs, and PyTorch detaches them, name them in `stop_at`.
        untie: True to give each layer its own copy, named NODE.INPUT, of a parameter that an exporter merged with others
            because their values were equal (`onnx_models.gradient.tied.find_tied` tells these from shared parameters).
            Otherwise the gradient is the sum over all layers, and a `TiedParametersWarning` names them.
        operators: operators of `ortops.operator` in the model, and their gradients. `onnx_models.register_schemas` makes
            operators known to all calls.

    Returns:
        The model. NAME_grad has the type and shape of NAME. If the loss does not depend on NAME, NAME_grad is 0 and a
        `ZeroGradientWarning` is issued.

    Raises:
        ValueError: a name is unknown or not of a floating-point type, the loss does not have one element, an output's name
            is taken, or operators between `wrt` and `loss` cannot be differentiated; the message lists all of these. Also
            for invalid models: a function calls itself, a node reads a tensor before it is computed, lacks an input or an
            attribute, or gives an operator of this project an attribute that breaks its rule. Also if the opset cannot
            be converted, or inlining would make the model too large (`onnx_models.tools.functions`).
        TypeError: an attribute of an operator of this project is unknown, which a session would not notice, or has the
            wrong type. Or an element of `operators` was not made by `ortops.operator`.
        RuntimeError: another operator or schema has the name of one of `operators`.
    """
    with schemas_of(operators):
        builder = GradientBuilder(model, stop_at, through_rois, untie)
        gradients, names = _differentiated_loss(builder, loss, wrt)
        builder.warn_of_ties(names)
        return builder.build(gradients, names, _NO_PATH)


_NO_PATH = "the gradient with respect to {} is 0: the loss does not depend on it"


def report(
    model: onnx.ModelProto,
    loss: str,
    wrt: Names,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
    untie: bool = False,
    operators: Iterable[Operator] = (),
) -> Report:
    """Describe what `gradient` does for the same arguments, without building the model.

    Raises:
        ValueError, TypeError: as `gradient`, except that the report lists operators that cannot be differentiated.
    """
    with schemas_of(operators):
        builder = GradientBuilder(model, stop_at, through_rois, untie)
        gradients, names = _differentiated_loss(builder, loss, wrt)
        passed = operators_between(builder.graph, list(names), loss, builder.context)
        refused, before, after = tuple(builder.refused), builder.size(), None
        ties = tuple(tie.described(builder.graph.opsets[""]) for tie in builder.ties(names))
        zeros: tuple[str, ...] = ()
        if not refused:
            zeros = tuple(name for name in names if name not in gradients)
            builder.complete(gradients, names)
            after = builder.size()
        ours = () if refused else tuple(sorted(own_operators(builder.prepared_model).items()))
        left_out = tuple(builder.left_out.items())
        ends = tuple(dict.fromkeys(builder.context.zeros))
        shapes = tuple(builder.graph.lengths(name) for name in names)
        return Report(passed, ends, zeros, refused, before, after, tuple(names), shapes, left_out, ties, ours)


def _differentiated_loss(
    builder: GradientBuilder, loss: str, wrt: Names
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Run reverse mode from `loss`; return the names of gradients and of outputs, both by names in `wrt`."""
    builder.check("loss", [loss])
    names: Mapping[str, str] = builder.named("wrt", wrt, "_grad")
    graph, lengths = builder.graph, builder.graph.lengths(loss)
    if lengths is not None and any(isinstance(length, int) and length != 1 for length in lengths):
        raise ValueError(f"loss = {loss!r} has shape {lengths}: must have one element")
    # Reshape, not Expand: a loss with more than one element has to fail at run time. The error names the node.
    seed = graph.reshaped(graph.number(1.0, loss), loss)
    graph.added[-1].name = f"loss = {loss!r}: must have one element"
    gradients = builder.backward({loss: seed}, names)
    return gradients, _depended_on(builder, wrt, names, gradients, "the loss")


def vjp(
    model: onnx.ModelProto,
    outputs: Sequence[str] | Mapping[str, str],
    wrt: Names,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
    untie: bool = False,
    operators: Iterable[Operator] = (),
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
        stop_at, through_rois, untie, operators: as in `gradient`.

    Raises:
        ValueError, TypeError: as `gradient`. If shapes are dynamic, a session fails at a cotangent with another number of
            elements, at a node whose name says so.
    """
    with schemas_of(operators):
        builder = GradientBuilder(model, stop_at, through_rois, untie)
        gradients, names = _weighted(builder, outputs, wrt)
        builder.warn_of_ties(names)
        return builder.build(gradients, names, _UNREACHED)


def _weighted(
    builder: GradientBuilder, outputs: Sequence[str] | Mapping[str, str], wrt: Names
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Run reverse mode from `outputs`; return the names of gradients and of outputs, both by names in `wrt`."""
    cotangents = builder.named("outputs", outputs, "_cotangent")
    names: Mapping[str, str] = builder.named("wrt", wrt, "_grad")
    gradients = builder.backward({of: builder.input(name, of) for of, name in cotangents.items()}, names)
    return gradients, _depended_on(builder, wrt, names, gradients, "outputs")


_UNREACHED = "the gradient with respect to {} is 0: none of the outputs depends on it"


def jvp(
    model: onnx.ModelProto,
    outputs: Sequence[str] | Mapping[str, str],
    wrt: Names,
    *,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
    untie: bool = False,
    operators: Iterable[Operator] = (),
) -> onnx.ModelProto:
    """A copy of `model` with a Jacobian-vector product: forward mode.

    Each name in `wrt` adds an input NAME_tangent, the direction in which that tensor changes. Each name in `outputs` adds an
    output NAME_tangent, the directional derivative of that tensor. Reverse mode is applied twice, with the rules of
    `gradient`: the gradients are linear in the cotangents, and the transpose of that map is the Jacobian.

    Args:
        model: not modified, as in `gradient`.
        outputs: names of floating-point tensors; a mapping also gives the names of the new outputs.
        wrt: names of tensors as in `gradient`; a mapping gives the names of the new inputs.
        stop_at, through_rois, untie, operators: as in `gradient`.

    Raises:
        ValueError, TypeError: as `gradient`, and for tangents as `vjp` for cotangents. Also if the gradient of an
            operator cannot be differentiated itself; the message says so.
    """
    with schemas_of(operators):
        builder = GradientBuilder(model, stop_at, through_rois, untie)
        derivatives = builder.named("outputs", outputs, "_tangent")
        names: Mapping[str, str] = builder.named("wrt", wrt, "_tangent")
        moved = _forward(builder, derivatives, wrt, names, lambda of: builder.input(names[of], of))
        builder.warn_of_ties(names)
        return builder.build(moved, derivatives, _UNMOVED)


_UNMOVED = "the derivative of {} is 0: it does not depend on any tensor in wrt"


def _forward(
    builder: GradientBuilder,
    outputs: Collection[str],
    wrt: Names,
    names: Mapping[str, str],
    tangent: Callable[[str], str],
) -> dict[str, str]:
    """Forward mode: derivatives of those outputs that have one, along the tangents of the tensors in `names`."""
    graph = builder.graph
    # Their values do not matter: the gradients are linear in the cotangents.
    cotangents = {name: graph.zeros(name) for name in outputs}
    gradients = builder.backward(cotangents, names)
    tangents: dict[str, list[str]] = {}
    for of in _depended_on(builder, wrt, names, gradients, "outputs"):
        moving = tangent(of)
        if of in gradients:
            tangents.setdefault(gradients[of], []).append(moving)
    seeds = {name: graph.total(parts) for name, parts in tangents.items()}
    ends = list(builder.context.zeros)
    by_cotangents = builder.backward(seeds, cotangents.values(), list(graph.added))
    builder.context.zeros = ends  # the second pass adds those of nodes of the first one
    return {name: by_cotangents[of] for name, of in cotangents.items() if of in by_cotangents}


Mode = Literal["forward", "reverse"]
"""The passes of a Jacobian: forward, one for each input element, or backward, one for each output element."""


def jacobian(
    model: onnx.ModelProto,
    outputs: Sequence[str] | Mapping[str, str],
    wrt: Names,
    *,
    mode: Mode | None = None,
    per_sample: bool = False,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
    untie: bool = False,
    operators: Iterable[Operator] = (),
) -> onnx.ModelProto:
    """A copy of `model` with whole Jacobians: the derivative of each element by each element.

    For each Y in `outputs` and X in `wrt` there is one more output, Y_X_jacobian, of the shape of Y followed by that of X,
    and of the type of X. It takes one run: the model itself is computed once, and a Scan repeats the backward pass of `vjp`
    for each element of the outputs, or the forward pass of `jvp` for each element in `wrt`.

    Args:
        model: not modified, as in `gradient`.
        outputs: names of floating-point tensors. A mapping gives the text that replaces Y in the new names.
        wrt: as in `gradient`; a mapping gives the text that replaces X in the new names.
        mode: "forward" or "reverse". None chooses "forward" if the tensors in `wrt` are known to have fewer elements than
            those in `outputs`, otherwise "reverse".
        per_sample: True if the first axes of all these tensors have one length N, and index i of an output depends on index
            i of the inputs alone, as in a batch. Then Y_X_jacobian has the shape of Y followed by that of X without its
            first axis, and all samples share the passes, which are N times fewer. The result is wrong (a sum over the
            samples that an output depends on) for models that mix samples, as batch normalization in training does.
        stop_at, through_rois, untie, operators: as in `gradient`.

    Raises:
        ValueError, TypeError: as `gradient` and `jvp`. Also for an unknown mode, or a tensor of rank 0 per sample. A session
            fails at a node if the first axes have different lengths per sample.
    """
    if mode is not None and mode not in get_args(Mode):
        raise ValueError(f"mode = {mode!r}: must be 'forward', 'reverse' or None")
    with schemas_of(operators):
        builder = GradientBuilder(model, stop_at, through_rois, untie)
        names = builder.named("wrt", wrt, "")
        builder.warn_of_ties(names)
        return _jacobian(builder, outputs, wrt, "jacobian", mode, per_sample)


def _jacobian(
    builder: GradientBuilder,
    outputs: Sequence[str] | Mapping[str, str],
    wrt: Names,
    suffix: str,
    mode: Mode | None,
    per_sample: bool,
) -> onnx.ModelProto:
    graph = builder.graph
    of_outputs = builder.named("outputs", outputs, "")
    names: Mapping[str, str] = builder.named("wrt", wrt, "")
    for name in (*of_outputs, *names) if per_sample else ():
        if graph.lengths(name) == []:
            raise ValueError(f"per_sample = True, {name!r} has rank 0: must have a first axis, that of samples")
    rows, columns = (elements(graph, list(of), int(per_sample)) for of in (of_outputs, names))
    is_fewer = rows is not None and columns is not None and columns < rows
    is_forward = mode == "forward" or (mode is None and is_fewer)
    seeds = Seeds(graph, list(names if is_forward else of_outputs), per_sample=per_sample)
    units = {name: seeds.unit(name) for name in (names if is_forward else of_outputs)}
    if is_forward:
        derivatives = _forward(builder, of_outputs, wrt, names, units.__getitem__)
    else:
        derivatives = builder.backward(units, names)
        names = _depended_on(builder, wrt, names, derivatives, "outputs")
    read = {name for node in graph.needed(derivatives.values()) for name in input_names(node)}.union(
        derivatives.values()
    )
    used = {name for name, unit in units.items() if unit in read}
    if is_forward and isinstance(wrt, str):  # "parameters", of which reverse mode keeps those that matter as well
        names = {of: name for of, name in names.items() if of in used}
    for others, zero in ((of_outputs, _UNMOVED), (names, _UNREACHED)):
        for name in others:
            if name not in derivatives and name not in used:
                builder.warn_of_zero(zero, name)
    others = of_outputs if is_forward else names
    scanned = seeds.scan({name: derivatives.get(name) or graph.zeros(name) for name in others})
    names_of_blocks = {}
    for (y, of_y), (x, of_x) in product(of_outputs.items(), names.items()):
        names_of_blocks[seeds.block(scanned, y, x, by_outputs=not is_forward)] = f"{of_y}_{of_x}_{suffix}"
    return builder.build({value: value for value in names_of_blocks}, names_of_blocks, "")


def hessian(
    model: onnx.ModelProto,
    loss: str,
    wrt: Names,
    *,
    vector: bool = False,
    stop_at: Collection[str] = (),
    through_rois: bool = True,
    untie: bool = False,
    operators: Iterable[Operator] = (),
) -> onnx.ModelProto:
    """A copy of `model` with the gradient of its tensor `loss`, and whole Hessians or their product with a vector.

    For each X in `wrt` there is one more output X_grad, the gradient, as in `gradient`. For each A and B in `wrt` there is
    A_B_hessian, the derivative of A_grad with respect to B, whose shape is A's followed by B's. It costs one backward pass
    of the gradient for each element in `wrt`, in one run (see `jacobian`).

    Args:
        model: not modified, as in `gradient`.
        loss: name of a tensor with one element, as in `gradient`.
        wrt: as in `gradient`; a mapping gives the text that replaces X, A and B in the new names.
        vector: True for a product with a vector instead, for the cost of one backward pass of the gradient. Each X in `wrt`
            adds an input X_vector, of the shape and type of X, and an output X_hessian_vector, which is the sum over all B
            in `wrt` of the Hessian of X and B times B_vector.
        stop_at, through_rois, untie, operators: as in `gradient`.

    Raises:
        ValueError, TypeError: as `gradient`. Also if the gradient of an operator cannot be differentiated itself; the
            message says so.
    """
    with schemas_of(operators):
        builder = GradientBuilder(model, stop_at, through_rois, untie)
        by_loss, selected = _differentiated_loss(builder, loss, wrt)
        builder.warn_of_ties(selected)
        names = selected if isinstance(wrt, Mapping) else {name: name for name in selected}
        gradients = {name: f"{of}_grad" for name, of in names.items()}
        again = GradientBuilder(builder.build(by_loss, gradients, _NO_PATH), stop_at, through_rois)
        if not vector:
            of = {gradients[name]: of for name, of in names.items()}
            return _jacobian(again, of, names, "hessian", "reverse", False)
        vectors = {gradients[name]: f"{of}_vector" for name, of in names.items()}
        products = {name: f"{of}_hessian_vector" for name, of in names.items()}
        return again.build(*_weighted(again, vectors, products), _UNREACHED)


def untie(model: onnx.ModelProto, *, operators: Iterable[Operator] = ()) -> onnx.ModelProto:
    """A copy of `model` in which each layer has its own copy of each parameter that an exporter merged.

    Functions for derivatives do the same with ``untie=True``, and give the same names. The copy has the same outputs.
    Put a trained state into it (`onnx_models.with_state`). Functions are inlined, and opsets before 18 are converted.

    Args:
        model: not modified.
        operators: as in `gradient`.

    Raises:
        ValueError, TypeError: as `gradient`, for the model.
    """
    with schemas_of(operators):
        return GradientBuilder(model, (), True, untie=True).build({}, {}, "")


def _depended_on(
    builder: GradientBuilder, wrt: Names, names: Mapping[str, str], derivatives: Collection[str], what: str
) -> Mapping[str, str]:
    """The names; for "parameters", only those that have a derivative."""
    if not isinstance(wrt, str) or builder.refused:
        return names
    kept = {of: name for of, name in names.items() if of in derivatives}
    if not kept:
        raise ValueError(f"wrt = {PARAMETERS!r}: {what} must depend on at least one weight of a floating-point type")
    builder.left_out |= {of: f"{what} does not depend on it" for of in names if of not in kept}
    return kept
