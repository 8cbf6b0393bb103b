"""Gradient rules of RoiAlign, of RoIAlignRotated, of DirectML's operators and of Resize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, parsed, run, with_loss
from gradient_nodes import node_model, uniform
from gradient_samples import resize, scales
from onnx_models.gradient import ZeroGradientWarning, gradient, vjp
from ortops.spec import DOMAIN
from pairs import pairwise

SIZES = {"output_height": 3, "output_width": 2}


def _regions(names: Sequence[str]) -> dict[str, Array]:
    """A feature map, regions, some of which reach beyond it, and the image of each region.

    No sample lies on a pixel's coordinate, where the gradient with respect to a region jumps.
    """
    rois = np.array(
        [[0.3131, 1.2717, 5.1391, 6.7193], [-1.4371, 2.1577, 3.3119, 9.8617], [2.6231, 0.7639, 2.9417, 1.1853]]
    )
    values = uniform({"x": (2, 3, 8, 9)})["x"], rois, np.array([0, 1, 1])
    return dict(zip(names, values, strict=True))


def _gradient_node(model: onnx.ModelProto, wrt: Sequence[str], operator: str) -> onnx.NodeProto:
    made = gradient(with_loss(model, {"y": np.ones(1)}), "loss", wrt)
    nodes: list[onnx.NodeProto] = [node for node in made.graph.node if node.op_type == operator]
    assert len(nodes) == 1
    return nodes[0]


def test_the_gradient_of_roi_align_has_the_attributes_of_its_opset_and_all_outputs() -> None:
    feeds = _regions(["x", "rois", "batch_indices"])
    for opset in (18, 22):
        for mode in ("avg", "max"):
            made = node_model("RoiAlign", feeds, {"mode": mode, "spatial_scale": 0.25}, opened=True, opset=opset)
            node = _gradient_node(made, ["rois"], "RoiAlignGrad")
            assert node.output[0] == ""
            assert node.output[1]
            assert len(node.input) == 5
            node = _gradient_node(made, ["x"], "RoiAlignGrad")
            assert node.output[0]
            assert node.output[1] == ""
            assert len(node.input) == (4 if mode == "avg" else 5)
            assert {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute} == {
                "coordinate_transformation_mode": b"half_pixel",
                "mode": mode.encode(),
                "sampling_ratio": 0,
                "spatial_scale": 0.25,
            }


_ROTATED = np.array(
    [
        [3.31, 4.27, 5.139, 3.719, 0.37],
        [0.437, 4.157, 6.3119, 7.8617, -2.1],
        [5.6231, 3.7639, 0.2417, 0.4853, 1.3],
        [4.1, 3.3, -4.123, 2.17, 0.9],
        [30.0, 2.0, 4.0, 4.0, 0.2],
    ]
)
"""Regions on the map of `_regions`: one reaches beyond it, one is small, one mirrored and one outside."""


def _rotated(names: Sequence[str]) -> dict[str, Array]:
    """A feature map, `_ROTATED` and the images that they are of."""
    x, *_ = _regions(["x", "rois", "images"]).values()
    return dict(zip(names, (x, _ROTATED, np.array([0, 1, 1, 0, 1])), strict=True))


@pytest.mark.parametrize(
    ("mode", "coordinates", "growth"),
    [
        ("linear", "half_pixel", [1, 1, 3, 4]),
        ("linear", "align_corners", [1, 1, 1, 5]),
        ("linear", "asymmetric", [2, 3]),
        ("nearest", "half_pixel_symmetric", [1, 2, 1, 3]),
        ("nearest", "tf_half_pixel_for_nn", [1, 2, 1, 2, 2]),
    ],
)
def test_growth_by_integers_needs_standard_operators_alone(mode: str, coordinates: str, growth: list[float]) -> None:
    attributes = f'mode = "{mode}", coordinate_transformation_mode = "{coordinates}"'
    made = resize(attributes, scales(*growth), (2, 3, 3, 1, 2)[: len(growth)]).model("lengths")
    found = gradient(with_loss(made, {"y": np.ones(1, np.float32)}), "loss", ["x"])
    assert {node.domain for node in found.graph.node} == {""}


def test_no_regions_give_no_gradient() -> None:
    feeds: dict[str, Array] = {
        "x": np.ones((2, 3, 4, 6), np.float32),
        "rois": np.zeros((0, 4), np.float32),
        "i": np.zeros(0, np.int64),
    }
    made = node_model("RoiAlign", feeds, SIZES, opened=True)
    made.graph.node.append(onnx.helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0))
    found = run(gradient(made, "loss", ["x", "rois"]), feeds)
    assert not found["x_grad"].any()
    assert found["rois_grad"].shape == (0, 4)


def test_the_other_name_of_onnxs_domain_has_the_same_opset() -> None:
    text = """<ir_version: 10, opset_import: ["{}" : 18]>
        g (double[1,1,6,6] x, double[r,4] boxes, int64[r] of) => (double y) {{
          z = RoiAlign <output_height = 2, output_width = 2> (x, boxes, of)
          y = ReduceSum <keepdims = 0> (z)
        }}"""
    short, long = (gradient(parsed(text.format(domain)), "y", ["x", "boxes"]) for domain in ("", "ai.onnx"))
    assert long.graph == short.graph


def test_regions_that_depend_on_the_tensor_by_their_images_alone_are_refused() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
        g (double[1,1,6,6] image, double[r,4] boxes, double[r] x) => (double y) {
          of = own.Chosen(x)
          z = RoiAlign <output_height = 2, output_width = 2> (image, boxes, of)
          y = ReduceSum <keepdims = 0> (z)
        }"""
    with pytest.raises(
        ValueError, match=r"node of 'z' \(RoiAlign\) has no gradient with respect to its input 'of'; path: "
    ):
        gradient(parsed(text), "y", ["x"])
    with pytest.warns(ZeroGradientWarning, match="the loss does not depend on it"):
        made = gradient(parsed(text), "y", ["x"], stop_at=["of"])
    assert [one.name for one in made.graph.output] == ["y", "x_grad"]
    with pytest.raises(ValueError, match="has no gradient with respect to its input 'x'"):
        gradient(parsed(text.replace("boxes, of", "boxes, x")), "y", ["x"])
    with pytest.raises(ValueError, match=r"\(RoiAlign\): .*has input size 2 not in range"):
        gradient(parsed(text.replace("boxes, of", "x")), "y", ["x"])


def _gradient_model(
    operator: str,
    attributes: Mapping[str, Any],
    outputs: Sequence[str],
    opened: bool,
    feeds: Mapping[str, Array] | None = None,
) -> onnx.ModelProto:
    made = node_model(operator, feeds or _OF_GRADIENT, attributes, opened=opened, outputs=outputs, domain=DOMAIN)
    del made.graph.output[:]
    for name in filter(None, outputs):
        made.graph.output.add(name=name).type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    return made


_X, _ROIS, _IMAGES = _regions(["x", "rois", "images"]).values()
_OF_GRADIENT = {
    "dy": uniform({"dy": (3, 3, 3, 2)})["dy"],
    "rois": _ROIS,
    "images": _IMAGES,
    "x_shape": np.array(_X.shape),
    "x": _X,
}


@pytest.mark.filterwarnings("ignore::onnx_models.gradient.ZeroGradientWarning")
@pairwise(
    {
        "wrt": [["rois"], ["dy", "rois", "x"]],
        "operator, attributes": [
            ("RoiAlignGrad", {"coordinate_transformation_mode": "output_half_pixel", "sampling_ratio": 2}),
            ("DmlRoiAlignGrad", {"spatial_scale_x": 0.5}),
            ("DmlRoiAlignGrad", {"interpolation_mode": "nearest_neighbor"}),
            ("DmlRoiAlignGrad", {"align_regions_to_corners": 1, "minimum_samples_per_output": 2}),
        ],
        "outputs": [["dx", ""], ["", "drois"], ["dx", "drois"]],
        "opened": [False, True],
    }
)
def test_gradients_of_averages_over_regions_have_gradients(
    wrt: list[str], operator: str, attributes: dict[str, Any], outputs: list[str], opened: bool
) -> None:
    check(_gradient_model(operator, attributes, outputs, opened), _OF_GRADIENT, wrt)


_OF_BINS = _OF_GRADIENT | uniform({"dy": (3, 2, 3, 2), "x": (2, 12, 8, 9)}) | {"x_shape": np.array([2, 12, 8, 9])}


@pytest.mark.parametrize("opened", [False, True])
def test_the_gradient_of_averages_over_channels_of_each_bin_has_gradients(opened: bool) -> None:
    model = _gradient_model("PSRoIAlignGrad", {"sampling_ratio": 2}, ["dx", "drois"], opened, _OF_BINS)
    check(model, _OF_BINS, ["dy", "rois", "x"])


def test_the_gradient_of_an_average_over_rotated_regions_has_gradients() -> None:
    dy = uniform({"dy": (len(_ROTATED), 3, 3, 2)})
    feeds = _OF_GRADIENT | dy | _rotated(["x", "rois", "images"])
    attributes = {"aligned": 0, "spatial_scale": 0.5, "sampling_ratio": 2, "clockwise": 1}
    model = _gradient_model("RoIAlignRotatedGrad", attributes, ["dx", "drois"], True, feeds)
    check(model, feeds, ["dy", "rois", "x"])


@pytest.mark.parametrize(
    ("operator", "average"),
    [
        ("RoiAlignGrad", "RoiAlign_22"),
        ("DmlRoiAlignGrad", "DmlRoiAlign"),
        ("RoIAlignRotatedGrad", "RoIAlignRotated"),
        ("PSRoIAlignGrad", "PSRoIAlign"),
    ],
)
def test_the_gradient_by_the_map_of_an_average_is_differentiated_by_operators_like_it(
    operator: str, average: str
) -> None:
    feeds = _OF_GRADIENT | ({"rois": _ROTATED[:3]} if average == "RoIAlignRotated" else {})
    feeds = _OF_BINS if average == "PSRoIAlign" else feeds
    model = _gradient_model(operator, {}, ["dx", ""], opened=False, feeds=feeds)
    made = vjp(model, ["dx"], ["dy", "rois"])
    added = [node.op_type for node in made.graph.node[1:] if node.op_type not in ("Identity", "Constant")]
    assert added == [average, operator]
    with pytest.warns(ZeroGradientWarning, match="'rois' is 0"):
        made = vjp(model, ["dx"], ["dy", "rois"], through_rois=False)
    assert operator not in [node.op_type for node in made.graph.node[1:]]


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(
    "attributes",
    [
        {"scales": [1.0, 1.6]},
        {"scales": [0.4, 2.0], "interpolation_mode": "nearest_neighbor", "rounding_direction": "decreasing"},
        {"input_pixel_offsets": [0.0, 0.25], "output_pixel_offsets": [0.0, -0.75]},
    ],
    ids=str,
)
def test_the_gradient_of_resampling_is_differentiated_by_resampling(attributes: dict[str, Any], opened: bool) -> None:
    feeds = {"dy": uniform({"dy": (2, 8)})["dy"], "x_shape": np.array([2, 5])}
    model = node_model("DmlResampleGrad", feeds, attributes, opened=opened, domain=DOMAIN)
    check(model, feeds, ["dy"])
    made = vjp(model, ["y"], ["dy"])
    assert ("DmlResample" in [node.op_type for node in made.graph.node]) == (not opened)


@pytest.mark.parametrize(
    ("operator", "attributes"), [("RoiAlignGrad", {"mode": "max"}), ("DmlRoiAlignGrad", {"reduction_function": "max"})]
)
def test_gradients_of_maxima_over_regions_have_gradients(operator: str, attributes: dict[str, Any]) -> None:
    model = _gradient_model(operator, attributes, ["dx", "drois"], opened=True)
    check(model, _OF_GRADIENT, ["dy", "rois", "x"])
