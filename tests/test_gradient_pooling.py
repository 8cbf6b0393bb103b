"""Gradient rules of pooling.

ONNX Runtime's CPU kernels have float alone, but for MaxPool's. The mean is linear, and
so is the maximum as long as it stays where it is: pixels here lie further apart than a step moves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.utils
import pytest

from gradient_checks import Array, check, of_sum, run, with_loss
from gradient_nodes import node_model, not_of_old
from onnx_models.gradient import ZeroGradientWarning, gradient
from ortops.spec import DOMAIN

STEP, TOLERANCE = 1.0, 1e-5


def apart(shape: Sequence[int], dtype: type = np.float64) -> Array:
    """Different numbers, 0.1 or more from each other."""
    rng = np.random.default_rng(1)
    return rng.permutation(int(np.prod(shape))).reshape(shape).astype(dtype) / 10 - 2


def test_the_window_of_local_response_normalization_is_longer_behind_where_its_size_is_even() -> None:
    """ONNX Runtime takes odd sizes alone: the gradient by the only pixel of the loss tells which ones it reads."""
    made = node_model("LRN", {"x": np.ones((1, 6, 1, 1), np.float32)}, {"size": 4, "alpha": 1.0}, opened=False)
    third = np.eye(1, 6, 2, dtype=np.float32).reshape(1, 6, 1, 1)
    differentiated = gradient(with_loss(made, {"y": third}), "loss", ["x"])
    by_x = run(onnx.utils.Extractor(differentiated).extract_model(["x"], ["x_grad"]), {"x": third + 1})["x_grad"]
    assert by_x.reshape(-1).astype(bool).tolist() == [False, True, True, True, True, False]


UNPOOLED = {"kernel_shape": [2, 2], "strides": [2, 2]}


@not_of_old
def test_of_numbers_unpooled_to_one_place_the_one_that_is_there_has_the_gradient() -> None:
    feeds: dict[str, Array] = {"x": np.array([[[[1, 2, 3, 4]]]], np.float32), "places": np.array([[[[5, 0, 5, 7]]]])}
    made = node_model("MaxUnpool", feeds, UNPOOLED, opened=True)
    y = run(made, feeds)["y"].reshape(-1)
    by_x = check(made, feeds, ["x"], step=STEP, tolerance=TOLERANCE)["x"].reshape(-1)
    assert (by_x != 0).tolist() == [y[5] == 1, True, y[5] == 3, True]


ROIS = [
    [0, 0, 0, 5, 4],
    [1, 2, 1, 6, 6],
    [1, 3, 3, 3, 3],
    [0, 6, 5, 9, 9],
    [0, 1.4, 0.6, 4.2, 5.5],
    [1, 20, 20, 30, 30],
]


@pytest.mark.parametrize(
    ("operator", "attributes", "opened"),
    [("MaxRoiPool", {}, False), ("MaxRoiPool_1", {}, True), ("MaxRoiPool_22", {"spatial_scale": 0.5}, True)],
)
def test_max_roi_pool(operator: str, attributes: dict[str, Any], opened: bool) -> None:
    feeds = {"x": apart((2, 3, 6, 7), np.float32), "rois": np.array(ROIS, np.float32)}
    given = {"pooled_shape": [2, 3], **attributes}
    made = node_model(operator, feeds, given, opened=opened, domain="" if operator == "MaxRoiPool" else DOMAIN)
    check(made, feeds, ["x"], step=0.04, tolerance=1e-4)
    with pytest.warns(ZeroGradientWarning, match="a pixel is in a bin or is not"):
        assert not of_sum(made, feeds, ["rois"])["rois"].any()


def test_the_gradient_of_max_roi_pool_has_the_attributes_of_its_node() -> None:
    feeds = {"x": apart((2, 3, 6, 7), np.float32), "rois": np.array(ROIS, np.float32)}
    made = node_model("MaxRoiPool", feeds, {"pooled_shape": [2, 3], "spatial_scale": 0.25}, opened=True)
    made = gradient(with_loss(made, {"y": np.ones(1, np.float32)}), "loss", ["x"])
    (node,) = (node for node in made.graph.node if node.op_type == "MaxRoiPoolGrad")
    assert list(node.input)[1:] == ["x", "rois"]
    assert {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute} == {"spatial_scale": 0.25}


@pytest.mark.filterwarnings("ignore::onnx_models.gradient.ZeroGradientWarning")
@pytest.mark.parametrize("wrt", [["dy"], ["x"], ["dy", "x"]])
@pytest.mark.parametrize("opened", [False, True])
def test_the_gradient_of_max_roi_pool_has_gradients(wrt: list[str], opened: bool) -> None:
    rng = np.random.default_rng(2)
    feeds = {"dy": rng.uniform(-1, 1, (6, 3, 2, 3)), "x": apart((2, 3, 6, 7)), "rois": np.array(ROIS)}
    made = node_model("MaxRoiPoolGrad", feeds, {"spatial_scale": 0.5}, opened=opened, domain=DOMAIN)
    check(made, feeds, wrt)
    assert not of_sum(made, feeds, ["rois"])["rois"].any()
