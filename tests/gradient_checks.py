"""Checks of gradients against central differences, along a random direction and with a random cotangent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime

import ortops
from conformance.backends.session import CPU, options
from onnx_models.gradient import gradient

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


def run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """All outputs by name, in a session with this project's operators."""
    return _outputs(_session(model), feeds)


def _session(model: onnx.ModelProto) -> ortops.InferenceSession:
    return ortops.InferenceSession(model.SerializeToString(), options(), providers=[CPU])


Runner = Callable[[Mapping[str, Array]], dict[str, Array]]
"""A function from all inputs to all outputs, by name."""


def _in_session(model: onnx.ModelProto) -> Runner:
    return partial(_outputs, _session(model))


def unoptimized(model: onnx.ModelProto) -> Runner:
    """A runner in a session without optimizations, since fused nodes round differently."""
    asked = options()
    asked.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return partial(_outputs, ortops.InferenceSession(model.SerializeToString(), asked, providers=[CPU]))


def _outputs(session: ortops.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def check(
    model: onnx.ModelProto | str,
    feeds: Mapping[str, Array],
    wrt: Sequence[str],
    *,
    outputs: Sequence[str] | None = None,
    step: float = 1e-5,
    tolerance: float = 1e-7,
    load: Callable[[onnx.ModelProto], Runner] = _in_session,
) -> dict[str, Array]:
    """Assert that the gradients with respect to `wrt` are the derivatives of the model; return them.

    Args:
        model: or its text, as `parsed` takes it; its inputs have one floating-point type.
        feeds: all inputs.
        wrt: names among them.
        outputs: those whose weighted sum is differentiated; all of them by default.
        step: of the central difference, along a direction whose elements are uniform between -1 and 1.
        tolerance: relative to the sum of the absolute values of what the derivative is the sum of.
        load: what makes a model run.
    """
    made = parsed(model) if isinstance(model, str) else model
    rng = np.random.default_rng(0)
    runs = load(made)
    values = runs(feeds)
    cotangents = {n: np.asarray(rng.uniform(-1, 1, values[n].shape), values[n].dtype) for n in outputs or values}
    weighted = with_loss(made, cotangents)
    differentiated = gradient(weighted, "loss", wrt)
    ends = [*differentiated.graph.input, *differentiated.graph.output]
    if all(value.type.tensor_type.HasField("shape") for value in ends):  # the checker demands ranks
        onnx.checker.check_model(differentiated, full_check=True)
    found = load(differentiated)(feeds)
    for name in values:
        np.testing.assert_array_equal(found[name], values[name], err_msg="an output of the model itself has changed")
    by_name = {name: found[f"{name}_grad"] for name in wrt}
    for name, by_it in by_name.items():
        assert by_it.shape == feeds[name].shape, f"{name}: gradient {by_it.shape}, tensor {feeds[name].shape}"
        assert by_it.dtype == feeds[name].dtype
        direction = np.asarray(rng.uniform(-1, 1, feeds[name].shape), feeds[name].dtype)
        ends = [np.asarray(feeds[name] + sign * step * direction, feeds[name].dtype) for sign in (1, -1)]
        sums = [_weighted_sum(runs({**feeds, name: end}), cotangents) for end in ends]
        # The step as it was taken, after rounding.
        moved = (ends[0].astype(np.float64) - ends[1].astype(np.float64)) / (2 * step)
        terms = by_it.astype(np.float64) * moved
        size = np.abs(terms).sum() + 1e-3
        difference = (sums[0] - sums[1]) / (2 * step)
        assert abs(terms.sum() - difference) <= tolerance * size, (
            f"{name}: gradient gives {terms.sum()}, differences {difference}, of terms of {size} in all"
        )
    return by_name


def _weighted_sum(values: Mapping[str, Array], cotangents: Mapping[str, Array]) -> float:
    return float(sum((values[n].astype(np.float64) * c.astype(np.float64)).sum() for n, c in cotangents.items()))
