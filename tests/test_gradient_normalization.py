"""Gradient rules of normalizations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from gradient_checks import Array, run, with_loss
from gradient_nodes import node_model, uniform
from onnx_models.gradient import gradient


def tensors(shapes: Mapping[str, Sequence[int]], dtype: type = np.float64) -> dict[str, Array]:
    return uniform(shapes, dtype, 0.5, 2)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_of_zeros_has_a_gradient_of_0(p: int) -> None:
    feeds = {"x": np.array([[0.0, 0.0], [3.0, -4.0]])}
    made = node_model("LpNormalization", feeds, {"p": p}, opened=True)
    found = run(gradient(with_loss(made, {"y": np.array([[1.0, 2.0], [3.0, 5.0]])}), "loss", ["x"]), feeds)["x_grad"]
    np.testing.assert_array_equal(found[0], 0)
    assert found[1].all()


@pytest.mark.parametrize("operator", ["LayerNormalization", "GroupNormalization", "MeanVarianceNormalization"])
def test_half_precision_is_computed_in_float(operator: str) -> None:
    count = 8 if operator == "LayerNormalization" else 6
    by_operator: dict[str, dict[str, Any]] = {
        "GroupNormalization": {"num_groups": 2},
        "MeanVarianceNormalization": {"axes": [2]},
    }
    attributes = by_operator.get(operator, {})
    feeds = tensors({"x": (2, 6, 8), "scale": (count,), "b": (count,)}, np.float16)
    if operator == "MeanVarianceNormalization":
        feeds = {"x": feeds["x"]}
    cotangent = np.random.default_rng(2).uniform(-1, 1, (2, 6, 8)).astype(np.float32)
    found = []
    for dtype in (np.float16, np.float32):
        typed = {name: value.astype(dtype) for name, value in feeds.items()}
        made = node_model(operator, typed, attributes, opened=True, opset=21)
        made.graph.node.append(onnx.helper.make_node("Cast", ["y"], ["wide"], to=onnx.TensorProto.FLOAT))
        by = run(gradient(with_loss(made, {"wide": cotangent}), "loss", list(feeds)), typed)
        assert all(by[f"{name}_grad"].dtype == dtype for name in feeds)
        found.append([by[f"{name}_grad"].astype(np.float64) for name in feeds])
    for half, single in zip(*found, strict=True):
        np.testing.assert_allclose(half, single, rtol=4e-3, atol=4e-3)
