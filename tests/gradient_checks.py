"""Models of texts, sessions for them, and the check of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

import ortops
from conformance.backends.session import CPU, options
from onnx_models import gradient_check
from onnx_models.gradient import gradient, jvp, vjp
from onnx_models.gradient_check import Comparison

Array = np.ndarray[Any, Any]


def parsed(text: str) -> onnx.ModelProto:
    """The model of a text; ``(double y)`` declares an output of unknown shape."""
    made = onnx.parser.parse_model(text)
    for value in made.graph.output:
        value.type.tensor_type.ClearField("shape")
    return made


def declared(tensor: str, lengths: Sequence[int], shapes: str) -> str:
    """The shape of an input in a text: ``lengths`` as they are, ``names`` (but for the ``last``) or ``any`` rank."""
    if shapes == "any":
        return "[]"
    known = {"lengths": len(lengths), "last": 1, "names": 0}[shapes]
    inside = ",".join(str(n) if i >= len(lengths) - known else f"{tensor}{i}" for i, n in enumerate(lengths))
    return f"[{inside}]" if inside else ""  # brackets around nothing stand for any rank


def of_sum(model: onnx.ModelProto | str, feeds: Mapping[str, Array], wrt: Sequence[str]) -> dict[str, Array]:
    """The gradients of the sum of all elements of the output ``y``."""
    made = parsed(model) if isinstance(model, str) else model
    ones = {"y": np.ones_like(run(made, feeds)["y"])}
    found = run(gradient(with_loss(made, ones), "loss", wrt), feeds)
    return {name: found[f"{name}_grad"] for name in wrt}


def with_loss(model: onnx.ModelProto, cotangents: Mapping[str, Array]) -> onnx.ModelProto:
    """The model with an output ``loss``: the sum of the named outputs, each weighted by its cotangent."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, sums = made.graph, []
    for name, cotangent in cotangents.items():
        graph.initializer.append(onnx.numpy_helper.from_array(cotangent, f"{name}_cotangent"))
        graph.node.append(onnx.helper.make_node("Mul", [name, f"{name}_cotangent"], [f"{name}_weighted"]))
        graph.node.append(onnx.helper.make_node("ReduceSum", [f"{name}_weighted"], [f"{name}_sum"], keepdims=0))
        sums.append(f"{name}_sum")
    graph.node.append(onnx.helper.make_node("Sum", sums, ["loss"]))
    kind = onnx.helper.np_dtype_to_tensor_dtype(next(iter(cotangents.values())).dtype)
    graph.output.append(onnx.helper.make_tensor_value_info("loss", kind, []))
    return made


Runner = Callable[[Mapping[str, Array]], dict[str, Array]]
"""A function from all inputs to all outputs, by name."""


def load(model: onnx.ModelProto) -> Runner:
    """What runs a model in a session with this project's operators."""
    session = ortops.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, dict(feeds)), strict=True))


def run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """All outputs by name."""
    return load(model)(feeds)


def transposes(
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    outputs: Sequence[str],
    wrt: Sequence[str],
) -> tuple[float, float, float]:
    """<c, J v> by forward mode, <J' c, v> in reverse, and the sum of the latter's absolute terms, for random c and v.

    Args:
        model: to differentiate.
        feeds: all inputs.
        outputs: the tensors that are differentiated.
        wrt: names among the feeds.
    """
    rng = np.random.default_rng(9)

    def drawn(like: Array) -> Array:
        return np.asarray(rng.uniform(0.5, 1.5, like.shape)).astype(like.dtype)

    def product(one: Array, other: Array) -> Array:
        return np.asarray(one, np.float64) * np.asarray(other, np.float64)

    tangents = {f"{name}_tangent": drawn(feeds[name]) for name in wrt}
    moved = load(jvp(model, outputs, wrt))({**feeds, **tangents})
    cotangents = {f"{name}_cotangent": drawn(np.asarray(moved[f"{name}_tangent"])) for name in outputs}
    found = load(vjp(model, outputs, wrt))({**feeds, **cotangents})
    forward = [product(moved[f"{name}_tangent"], cotangents[f"{name}_cotangent"]) for name in outputs]
    reverse = [product(found[f"{name}_grad"], tangents[f"{name}_tangent"]) for name in wrt]
    totals = [float(sum(one.sum() for one in terms)) for terms in (forward, reverse)]
    return totals[0], totals[1], float(sum(np.abs(one).sum() for one in reverse))


def check(
    model: onnx.ModelProto | str,
    feeds: Mapping[str, Array],
    wrt: Sequence[str],
    *,
    outputs: Sequence[str] = (),
    second_order: bool = False,
) -> list[Comparison]:
    """Assert that gradients are the derivatives of the model, by `onnx_models.gradient_check`; return the comparisons.

    Args:
        model: or its text, as `parsed` takes it.
        feeds: all inputs.
        wrt: names among them.
        outputs: those that are differentiated; all of them by default.
        second_order: whether the gradients are differentiated as well.
    """
    made = parsed(model) if isinstance(model, str) else model
    found = gradient_check.check(made, feeds, wrt=wrt, outputs=outputs, second_order=second_order, load=_checked)
    assert [one for one in found if one.outcome != "agrees"] == []
    return found


def _checked(model: onnx.ModelProto) -> Runner:
    if all(value.type.tensor_type.HasField("shape") for value in (*model.graph.input, *model.graph.output)):
        onnx.checker.check_model(model, full_check=True)
    return load(model)
