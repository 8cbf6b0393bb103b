"""Gradient rules of pooling.

ONNX Runtime's CPU kernels of AveragePool, GlobalAveragePool and GlobalMaxPool have float alone. The mean is linear, and
so is the maximum as long as it stays where it is: pixels here lie further apart than a step moves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, run
from gradient_nodes import NEWEST_OPSET, node_model, not_of_old
from onnx_models.gradient import gradient
from pairs import pairwise

STEP, TOLERANCE = 1.0, 1e-5


def apart(shape: Sequence[int], dtype: type = np.float64) -> Array:
    """Different numbers, 0.1 or more from each other."""
    rng = np.random.default_rng(1)
    return rng.permutation(int(np.prod(shape))).reshape(shape).astype(dtype) / 10 - 2


SHAPES = {1: (2, 3, 9), 2: (2, 3, 7, 8), 3: (1, 2, 5, 6, 7)}
POOLS: list[Any] = [
    {"kernel_shape": [3]},
    {"kernel_shape": [2], "strides": [2], "pads": [1, 0]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [1, 1], "strides": [2, 2]},
    {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 0, 1]},
    pytest.param({"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}, marks=not_of_old),
    pytest.param({"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1, "pads": [1, 1, 1, 1]}, marks=not_of_old),
    {"kernel_shape": [3, 2], "strides": [2, 3], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [3, 4], "strides": [3, 1], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "VALID"},
    {"kernel_shape": [2, 3], "dilations": [2, 1], "strides": [1, 2]},
    {"kernel_shape": [2, 3], "dilations": [2, 3], "strides": [2, 2], "pads": [1, 2, 0, 1]},
    {"kernel_shape": [2, 3, 2], "strides": [2, 1, 3], "pads": [1, 1, 0, 0, 1, 1]},
    pytest.param(
        {"kernel_shape": [2, 3, 2], "strides": [2, 2, 3], "pads": [1, 1, 0, 0, 1, 1], "ceil_mode": 1}, marks=not_of_old
    ),
]


# Of a window that would begin in the pads behind X, ONNX's shape inference knows from opset 22 on that there is none.
DECLARED = [(18, True), (NEWEST_OPSET, False), (NEWEST_OPSET, True)]


@pairwise({"attributes": POOLS, "opset, opened": DECLARED, "storage_order": [None, 0, 1]})
def test_max_pool(attributes: dict[str, Any], opset: int, opened: bool, storage_order: int | None) -> None:
    x = apart(SHAPES[len(attributes["kernel_shape"])])
    more = {} if storage_order is None else {"storage_order": storage_order}
    outputs = ["y"] if storage_order is None else ["y", "places"]
    made = node_model("MaxPool", {"x": x}, attributes | more, opened=opened, outputs=outputs, opset=opset)
    check(made, {"x": x}, ["x"])


def test_of_equal_pixels_the_first_has_the_gradient() -> None:
    x = np.zeros((1, 1, 2, 4), np.float32)
    for operator in ("MaxPool", "GlobalMaxPool"):
        more = {"kernel_shape": [2, 4]} if operator == "MaxPool" else {}
        made = node_model(operator, {"x": x}, more, opened=True)
        made.graph.node.append(onnx.helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0))
        by_x = run(gradient(made, "loss", ["x"]), {"x": x})["x_grad"]
        np.testing.assert_array_equal(by_x, np.eye(1, 8, dtype=np.float32).reshape(1, 1, 2, 4))


@pairwise({"attributes": POOLS, "opset, opened": [*DECLARED, (19, True)], "with_pads": [0, 1]})
def test_average_pool(attributes: dict[str, Any], opset: int, opened: bool, with_pads: int) -> None:
    # AveragePool has dilations from opset 19 on.
    opset = max(opset, 19) if "dilations" in attributes else opset
    x = apart(SHAPES[len(attributes["kernel_shape"])], np.float32)
    made = node_model(
        "AveragePool", {"x": x}, attributes | {"count_include_pad": with_pads}, opened=opened, opset=opset
    )
    check(made, {"x": x}, ["x"], step=STEP, tolerance=TOLERANCE)


@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("opened", [False, True])
def test_global_pools(operator: str, rank: int, opened: bool) -> None:
    x = apart(SHAPES[rank], np.float32)
    # Half of 0.1, the least difference of two pixels: none overtakes another.
    check(node_model(operator, {"x": x}, opened=opened), {"x": x}, ["x"], step=0.05, tolerance=1e-4)


@not_of_old
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"])
def test_without_samples_there_is_nothing(operator: str) -> None:
    x = np.zeros((0, 3, 4, 5), np.float32)
    more = {} if operator.startswith("Global") else {"kernel_shape": [2, 2]}
    check(node_model(operator, {"x": x}, more, opened=True), {"x": x}, ["x"])
