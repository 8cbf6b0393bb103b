"""Gradient rules of RoiAlign, of RoIAlignRotated, of DirectML's operators and of Resize."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from gradient_calls import Call
from gradient_checks import of_sum, parsed, with_loss
from gradient_samples import GRADIENTS_OF_REGIONS, MAP, SIZES, region_gradient, resize, scales
from onnx_models.gradient import ZeroGradientWarning, gradient, vjp


def _gradient_node(model: onnx.ModelProto, wrt: Sequence[str], operator: str) -> onnx.NodeProto:
    made = gradient(with_loss(model, {"y": np.ones(1, np.float32)}), "loss", wrt)
    nodes: list[onnx.NodeProto] = [node for node in made.graph.node if node.op_type == operator]
    assert len(nodes) == 1
    return nodes[0]


def test_the_gradient_of_roi_align_has_the_attributes_of_its_opset_and_all_outputs() -> None:
    for opset in (18, 22):
        for mode in ("avg", "max"):
            lines = f'RoiAlign<mode = "{mode}", spatial_scale = 0.25>(x, boxes, i)'
            made = Call(lines, MAP | {"boxes": (3, 4), "i": [0, 1, 1]}, opset=opset).model("names")
            node = _gradient_node(made, ["boxes"], "RoiAlignGrad")
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
    call = Call(f"RoiAlign<{SIZES}>(x, r, i)", {"x": (2, 3, 4, 6), "r": (0, 4), "i": []}, opset=18)
    found = of_sum(call.model("names"), call.feeds, ["x", "r"])
    assert not found["x"].any()
    assert found["r"].shape == (0, 4)


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
    model = region_gradient(operator, bins="PS" in operator).model("lengths")
    rois = model.graph.node[0].input[1]
    made = vjp(model, ["y"], ["dy", rois])
    added = [node.op_type for node in made.graph.node[1:] if node.op_type not in ("Identity", "Constant")]
    assert added == [average, operator]
    with pytest.warns(ZeroGradientWarning, match=f"'{rois}' is 0"):
        made = vjp(model, ["y"], ["dy", rois], through_rois=False)
    assert operator not in [node.op_type for node in made.graph.node[1:]]


def test_the_gradient_of_resampling_is_differentiated_by_resampling_if_lengths_are_known() -> None:
    call = GRADIENTS_OF_REGIONS[-1]
    for shapes, is_known in (("lengths", True), ("names", False)):
        made = vjp(call.model(shapes), ["y"], ["dy"])
        assert ("DmlResample" in [node.op_type for node in made.graph.node]) == is_known
