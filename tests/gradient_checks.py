# SPDX-License-Identifier: MIT
"""Models of texts, calls of operators as rows of tables, sessions for these, and the check of their gradients."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ortops
from conformance.backends.session import CPU, options
from onnx_models import gradient_check
from onnx_models.gradient import gradient, jvp, vjp
from onnx_models.gradient_check import Comparison
from onnx_models.tools.protos import iter_graphs
from ortops.foreign.standard import STANDARD_NAMES
from ortops.spec import ELEMENT_DTYPES

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
    """What runs a model in a session with this project's operators, or in a stock one if it has none of them."""
    # A session with operators takes 5 ms to make, a stock one 1 ms, and these tests make thousands.
    make = ortops.InferenceSession if _has_custom(model) else onnxruntime.InferenceSession
    session = make(model.SerializeToString(), options(), providers=[CPU])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, dict(feeds)), strict=True))


def _has_custom(model: onnx.ModelProto) -> bool:
    nodes = [node for part in iter_graphs(model) for node in part.node]
    return any(
        node.domain not in ("", "ai.onnx.ml", "com.microsoft") or node.op_type in STANDARD_NAMES for node in nodes
    )


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
    totals = [float(sum(term.sum() for term in terms)) for terms in (forward, reverse)]
    return totals[0], totals[1], float(sum(np.abs(term).sum() for term in reverse))


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
    comparisons = gradient_check.check(made, feeds, wrt=wrt, outputs=outputs, second_order=second_order, load=_checked)
    assert [comparison for comparison in comparisons if comparison.outcome in ("wrong", "kink")] == []
    return comparisons


def _checked(model: onnx.ModelProto) -> Runner:
    if all(value.type.tensor_type.HasField("shape") for value in (*model.graph.input, *model.graph.output)):
        onnx.checker.check_model(model, full_check=True)
    return load(model)


IS_OLD = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 21)
"""Whether this is ONNX Runtime 1.20."""

not_of_old = pytest.mark.skipif(IS_OLD, reason="ONNX Runtime 1.20 computes this wrong or not at all")

BOXES = np.array(
    [[0.3131, 1.2717, 5.1391, 6.7193], [-1.4371, 2.1577, 3.3119, 9.8617], [2.6231, 0.7639, 2.9417, 1.1853]]
)
"""Regions of a map of 8 x 9 pixels, of which some reach beyond it; no sample lies on a pixel."""

_MAKES_Y = re.compile(r"(?:^|[\s,])y(?:, \w+)* = ")


@dataclass(frozen=True)
class Call:
    """Nodes that make y.

    lines: the nodes, in ONNX's textual syntax; a call alone makes y.
    inputs: a tuple is the shape of floating-point numbers between two `ends`; "boxes" are `BOXES`; anything else is a value.
    kind: the type of the floating-point numbers.
    opened: how much is declared where as little as possible is, see `gradient_checks.declared`.
    needs_new: whether ONNX Runtime 1.20 computes it wrong or not at all.
    """

    lines: str
    inputs: Mapping[str, Any] = field(default_factory=lambda: {"x": (2, 3)})
    ends: tuple[float, float] = (0.25, 0.75)
    opset: int = 21
    opened: str = "names"
    needs_new: bool = False
    kind: str = "float"

    def __str__(self) -> str:
        shapes = [str(value) for name, value in self.inputs.items() if isinstance(value, tuple) and name != "boxes"]
        return f"{_MAKES_Y.split(self.lines)[-1][:50]} {' '.join(shapes)[:30]}"

    @property
    def feeds(self) -> dict[str, Array]:
        """Values of all inputs; those of an input are evenly spaced, so that no finite difference changes a maximum."""
        rng = np.random.default_rng(4)
        dtype = ELEMENT_DTYPES[self.kind]
        drawn: dict[str, Array] = {}
        for name, given in self.inputs.items():
            if not isinstance(given, tuple):
                value = np.asarray(given, getattr(given, "dtype", np.int64))
                drawn[name] = value.astype(dtype) if value.dtype == np.float64 else value
                continue
            count = math.prod(given)
            parts = (rng.permutation(count) + rng.uniform(0.25, 0.75)) / max(count, 1)
            value = BOXES if name == "boxes" else (self.ends[0] + parts * (self.ends[1] - self.ends[0])).reshape(given)
            drawn[name] = np.asarray(value, dtype)
        return drawn

    @property
    def wrt(self) -> list[str]:
        """The floating-point inputs."""
        return [name for name, given in self.inputs.items() if isinstance(given, tuple)]

    def model(self, shapes: str) -> onnx.ModelProto:
        """The declared shapes, see `gradient_checks.declared`; with ``lengths`` all but `wrt` are initializers."""
        feeds = self.feeds
        fed = self.wrt if shapes == "lengths" else list(feeds)
        inputs = ", ".join(
            f"{_kind(feeds[name])}"
            f"{declared(name, feeds[name].shape, shapes if name in self.wrt or shapes == 'any' else 'lengths')} {name}"
            for name in fed
        )
        lines = self.lines if _MAKES_Y.search(self.lines) else f"y = {self.lines}"
        made = parsed(
            f"""<ir_version: 10, opset_import: [
            "" : {self.opset}, "ai.onnx.contrib" : 1, "ai.onnx.ml" : 3, "com.microsoft" : 1]>
            g ({inputs}) => ({self.kind} y) {{ {lines} }}"""
        )
        others = (onnx.numpy_helper.from_array(value, name) for name, value in feeds.items() if name not in fed)
        made.graph.initializer.extend(others)
        return made


def _kind(value: Array) -> str:
    return str(onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(value.dtype))).lower()
