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
from gradient_nodes import NEWEST_OPSET, node_model, not_of_old
from onnx_models.gradient import ZeroGradientWarning, gradient
from ortops.spec import DOMAIN
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


@not_of_old
@pairwise({"attributes": POOLS, "opset, opened": DECLARED, "p": [1, 2, 3]})
def test_lp_pool(attributes: dict[str, Any], opset: int, opened: bool, p: int) -> None:
    x = apart(SHAPES[len(attributes["kernel_shape"])], np.float32) / 2 + 0.02
    made = node_model("LpPool", {"x": x}, attributes | {"p": p}, opened=opened, opset=opset)
    check(made, {"x": x}, ["x"], step=0.01, tolerance=1e-3)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("opened", [False, True])
def test_global_lp_pool(p: int, opened: bool) -> None:
    x = apart(SHAPES[2], np.float32) / 2 + 0.02
    check(node_model("GlobalLpPool", {"x": x}, {"p": p}, opened=opened), {"x": x}, ["x"], step=0.01, tolerance=1e-4)


@pytest.mark.parametrize("operator", ["LpPool", "GlobalLpPool"])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_where_a_norm_is_0_its_gradient_is(operator: str, p: int) -> None:
    x = np.zeros((1, 2, 2, 4), np.float32)
    x[0, 1] = 1
    more = {"kernel_shape": [2, 4]} if operator == "LpPool" else {}
    by_x = of_sum(node_model(operator, {"x": x}, {"p": p, **more}, opened=True), {"x": x}, ["x"])["x"]
    assert not by_x[0, 0].any()
    np.testing.assert_allclose(by_x[0, 1], 8 ** (1 / p - 1), rtol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("more", [{}, {"alpha": 0.5, "beta": 2.5, "bias": 0.7}], ids=str)
@pytest.mark.parametrize("opened", [False, True])
def test_local_response_normalization(size: int, more: dict[str, float], opened: bool) -> None:
    x = apart((2, 6, 3, 4), np.float32) / 4
    check(
        node_model("LRN", {"x": x}, {"size": size, **more}, opened=opened), {"x": x}, ["x"], step=0.01, tolerance=1e-3
    )


def test_the_window_of_local_response_normalization_is_longer_behind_where_its_size_is_even() -> None:
    """ONNX Runtime takes odd sizes alone: the gradient by the only pixel of the loss tells which ones it reads."""
    made = node_model("LRN", {"x": np.ones((1, 6, 1, 1), np.float32)}, {"size": 4, "alpha": 1.0}, opened=False)
    third = np.eye(1, 6, 2, dtype=np.float32).reshape(1, 6, 1, 1)
    differentiated = gradient(with_loss(made, {"y": third}), "loss", ["x"])
    by_x = run(onnx.utils.Extractor(differentiated).extract_model(["x"], ["x_grad"]), {"x": third + 1})["x_grad"]
    assert by_x.reshape(-1).astype(bool).tolist() == [False, True, True, True, True, False]


UNPOOLED = {"kernel_shape": [2, 2], "strides": [2, 2]}


@not_of_old
@pytest.mark.parametrize("shape", [None, [2, 3, 7, 6], [2, 3, 6, 9]], ids=str)
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("is_constant", [False, True])
def test_max_unpool(shape: list[int] | None, opened: bool, is_constant: bool) -> None:
    rng = np.random.default_rng(1)
    x = apart((2, 3, 3, 3), np.float32)
    numbers = {} if shape is None else {"shape": np.array(shape)}
    feeds: dict[str, Array] = {"x": x, "places": rng.permutation(2 * 3 * 6 * 6)[: x.size].reshape(x.shape)}
    fed = feeds if is_constant else {**feeds, **numbers}
    made = node_model("MaxUnpool", fed, UNPOOLED, opened=opened, constants=numbers if is_constant else {})
    for value in made.graph.input[2:]:
        value.type.tensor_type.shape.dim[0].dim_value = 4
    check(made, fed, ["x"], step=STEP, tolerance=TOLERANCE)


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


@pytest.mark.parametrize("attributes", [{}, {"spatial_scale": 0.5}], ids=str)
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("operator", ["MaxRoiPool", "MaxRoiPool_1", "MaxRoiPool_22"])
def test_max_roi_pool(operator: str, attributes: dict[str, Any], opened: bool) -> None:
    feeds = {"x": apart((2, 3, 6, 7), np.float32), "rois": np.array(ROIS, np.float32)}
    given = {"pooled_shape": [2, 3], **attributes}
    made = node_model(operator, feeds, given, opened=opened, domain="" if operator == "MaxRoiPool" else DOMAIN)
    check(made, feeds, ["x"], step=0.04, tolerance=1e-4)
    with pytest.warns(ZeroGradientWarning, match="a pixel is in a bin or is not"):
        assert not of_sum(made, feeds, ["rois"])["rois"].any()


@pytest.mark.parametrize("operator", ["MaxRoiPool", "MaxRoiPool_22"])
def test_of_equal_pixels_of_a_region_the_first_has_the_gradient(operator: str) -> None:
    feeds = {"x": np.ones((1, 2, 4, 4), np.float32), "rois": np.array([[0, 1, 1, 3, 3]], np.float32)}
    domain = "" if operator == "MaxRoiPool" else DOMAIN
    made = node_model(operator, feeds, {"pooled_shape": [1, 1]}, opened=True, domain=domain)
    np.testing.assert_array_equal(of_sum(made, feeds, ["x"])["x"].reshape(2, 16), np.eye(1, 16, 5).repeat(2, 0))


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


@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("opened", [False, True])
def test_global_pools(operator: str, rank: int, opened: bool) -> None:
    x = apart(SHAPES[rank], np.float32)
    # Half of 0.1, the least difference of two pixels: none overtakes another.
    check(node_model(operator, {"x": x}, opened=opened), {"x": x}, ["x"], step=0.05, tolerance=1e-4)


@not_of_old
@pytest.mark.parametrize(
    "operator", ["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "GlobalLpPool", "LRN"]
)
def test_without_samples_there_is_nothing(operator: str) -> None:
    x = np.zeros((0, 3, 4, 5), np.float32)
    more = {} if operator.startswith("Global") else {"size": 3} if operator == "LRN" else {"kernel_shape": [2, 2]}
    check(node_model(operator, {"x": x}, more, opened=True), {"x": x}, ["x"])
