# SPDX-License-Identifier: MIT
"""ONNX's Resize as DmlResample: the same numbers as ONNX Runtime's own Resize, and a gradient that is its transpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.reference
import onnxruntime
import pytest

import onnx_models
from conformance.backends.session import CPU, options
from ortops.operators import BY_NAME
from ortops.reference import evaluate
from ortops.spec import DOMAIN

Array = npt.NDArray[Any]

MODES = (
    "half_pixel",
    "half_pixel_symmetric",  # since opset 19
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

# Parts of X that float32 holds exactly: ONNX Runtime computes in float32, where others move ties.
ROI = (0.25, 0.125, 0.75, 1.0)

# Lengths of the last two axes of X, and scales or sizes of them.
SHAPES: tuple[tuple[tuple[int, int], Mapping[str, Sequence[float]]], ...] = (
    ((3, 4), {"scales": (2.0, 3.0)}),
    ((8, 6), {"scales": (0.5, 0.25)}),
    ((5, 7), {"scales": (1.5, 2.5)}),
    ((5, 7), {"scales": (0.75, 1.25)}),
    ((5, 10), {"scales": (0.6, 0.7)}),
    ((1, 5), {"scales": (3.0, 0.25)}),
    ((2, 1), {"scales": (0.5, 4.0)}),
    ((3, 4), {"sizes": (8, 5)}),
    ((7, 9), {"sizes": (3, 4)}),
    ((4, 6), {"sizes": (7, 10)}),
    ((1, 6), {"sizes": (4, 1)}),
    ((5, 1), {"sizes": (1, 3)}),
    ((9, 2), {"sizes": (2, 11)}),
)
OPSETS = (11, 13, 18, 19)


def resize_model(
    shape: Sequence[int],
    attributes: Mapping[str, Any],
    opset: int,
    inputs: Mapping[str, Any],
    kind: int = onnx.TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model of one Resize node with constant inputs: y from x."""
    types = {"roi": np.float32, "scales": np.float32, "sizes": np.int64}
    names = ("scales",) if opset == 10 else ("roi", "scales", "sizes")
    constants = [
        onnx.numpy_helper.from_array(np.asarray(inputs.get(name, ()), types[name]), name)
        for name in names
        if name in inputs or name == "roi" or (name == "scales" and opset < 13)
    ]
    written = {constant.name for constant in constants}
    given = [name if name in written else "" for name in names]
    while not given[-1]:
        given.pop()
    node = onnx.helper.make_node("Resize", ["x", *given], ["y"], **attributes)
    x = onnx.helper.make_tensor_value_info("x", kind, shape)
    y = onnx.helper.make_tensor_value_info("y", kind, None)
    graph = onnx.helper.make_graph([node], "g", [x], [y], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)


def onnxruntime_resize(model: onnx.ModelProto, x: Array) -> Array:
    # What is deprecated is not worth a line each: tf_half_pixel_for_nn since opset 13.
    session = onnxruntime.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    (y,) = session.run(None, {"x": x})
    return np.asarray(y)


def resample(x: Array, attributes: Mapping[str, Any]) -> Array:
    (y,) = evaluate(BY_NAME["DmlResample"], [x], attributes)
    assert y is not None
    return y


def ours(x: Array, attributes: Mapping[str, Any], opset: int, inputs: Mapping[str, Any]) -> Array:
    return resample(x, onnx_models.resample_attributes(attributes, x.shape, opset=opset, **inputs))


def pixels(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


def of_shapes(mode: str, nearest: str | None) -> Sequence[tuple[tuple[int, int], Mapping[str, Sequence[float]]]]:
    """A third of the shapes. Together, the choices of a mode have all of them, and so have the modes of a choice."""
    return SHAPES[(MODES.index(mode) + (None, *NEAREST).index(nearest)) % 3 :: 3]


def full(mode: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs for two axes more, which are not resized."""
    found: dict[str, Any] = {}
    if "scales" in inputs:
        found["scales"] = (1.0, 1.0, *inputs["scales"])
    else:
        found["sizes"] = (2, 3, *inputs["sizes"])
    if mode == "tf_crop_and_resize":
        found["roi"] = (0.0, 0.0, *ROI[:2], 1.0, 1.0, *ROI[2:])
    return found


def same(found: Array, expected: Array) -> None:
    """Equal but for ONNX Runtime's float32: coordinates up to 16 pixels, and sums of four products."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=64 * 2**-24)


@pytest.mark.parametrize("nearest", [None, *NEAREST])
@pytest.mark.parametrize(("mode", "opset"), [(m, 19 if m == MODES[1] else OPSETS[i % 4]) for i, m in enumerate(MODES)])
def test_every_mode_is_that_of_onnxruntime(mode: str, opset: int, nearest: str | None) -> None:
    attributes = {"coordinate_transformation_mode": mode, "mode": "nearest" if nearest else "linear"}
    attributes |= {"nearest_mode": nearest} if nearest else {}
    for lengths, some in of_shapes(mode, nearest):
        if mode == "half_pixel_symmetric" and some.get("scales") == (0.6, 0.7):
            continue  # there alone ONNX Runtime divides by the float32 scale in float64: 1.5 / 0.6 is less than 2.5
        x, inputs = pixels(2, 3, *lengths), full(mode, some)
        expected = onnxruntime_resize(resize_model(x.shape, attributes, opset, inputs), x)
        found = ours(x, attributes, opset, inputs)
        assert found.shape == expected.shape, (lengths, some)
        if nearest:
            np.testing.assert_array_equal(found, expected, err_msg=f"{lengths} {some}")
        else:
            same(found, expected)


@pytest.mark.parametrize("opset", [18, 19])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    ("attributes", "inputs"),
    [
        ({"axes": [2, 3]}, {"scales": (2.0, 0.5)}),
        ({"axes": [3]}, {"sizes": (9,)}),
        ({"axes": [3, 2]}, {"sizes": (5, 9)}),
        ({"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}, {"sizes": (12, 9)}),
        ({"axes": [2, 3], "keep_aspect_ratio_policy": "not_smaller"}, {"sizes": (12, 9)}),
        ({"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}, {"sizes": (3, 3)}),
        ({"axes": [2, 3], "coordinate_transformation_mode": "align_corners"}, {"sizes": (7, 1)}),
        (
            {"axes": [2, 3], "coordinate_transformation_mode": "tf_crop_and_resize"},
            {"sizes": (7, 5), "roi": (0.25, 0.5, 1.0, 0.5)},
        ),
    ],
)
def test_axes_and_aspect_ratios_are_those_of_onnxruntime(
    attributes: dict[str, Any], inputs: dict[str, Any], mode: str, opset: int
) -> None:
    x = pixels(1, 2, 4, 6)
    attributes = attributes | {"mode": mode}
    same(ours(x, attributes, opset, inputs), onnxruntime_resize(resize_model(x.shape, attributes, opset, inputs), x))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    ("lengths", "scales"), [((2, 3), (2.0, 3.0)), ((2, 4), (0.6, 0.6)), ((8, 6), (0.5, 1.0)), ((5, 3), (1.0, 1.5))]
)
def test_opset_10_is_that_of_onnxruntime(lengths: tuple[int, int], scales: tuple[float, float], mode: str) -> None:
    x, inputs = pixels(1, 2, *lengths), {"scales": (1.0, 1.0, *scales)}
    same(ours(x, {"mode": mode}, 10, inputs), onnxruntime_resize(resize_model(x.shape, {"mode": mode}, 10, inputs), x))


def test_opset_10_shrinks_as_its_test_vector_does() -> None:
    # test_resize_downsample_nearest of onnx 1.5: floor of 1 / 0.6 would give 2 instead of 3.
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    np.testing.assert_array_equal(ours(x, {}, 10, {"scales": (1, 1, 0.6, 0.6)}), [[[[1, 3]]]])
    with pytest.raises(ValueError, match=r"scales = \[1, 1, 2, 0\.5\]: must not be both below and above 1 at opset 10"):
        ours(x, {}, 10, {"scales": (1, 1, 2, 0.5)})


def test_scales_are_left_out_where_the_ratio_of_the_lengths_is_meant() -> None:
    found = onnx_models.resample_attributes({}, (1, None, 5, 5), sizes=(1, 3, 3, 8))
    assert (found["scales"], found["output_sizes"]) == ((), (1, 3, 3, 8))
    # 0.6 of 5 pixels is 3: the node means three fifths and has them in float32.
    assert onnx_models.resample_attributes({}, (5,), scales=(0.6,))["scales"] == ()
    assert onnx_models.resample_attributes({}, (8,), scales=(0.6,))["scales"] == (float(np.float32(0.6)),)


def test_a_length_may_be_unknown_where_the_mode_does_not_need_it() -> None:
    found = onnx_models.resample_attributes({}, (None, None, None, 4), scales=(1, 1, 2, 1.5))
    assert found == {
        "interpolation_mode": "nearest_neighbor",
        "scales": (1.0, 1.0, 2.0, 1.5),
        "input_pixel_offsets": (1.0, 1.0, 1.0, 1.0),
        "output_pixel_offsets": (-0.5, -0.5, -0.5, -0.5),
        "rounding_direction": "increasing",
        "output_sizes": (),
    }
    for mode in ("half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn"):
        options = {"coordinate_transformation_mode": mode}
        assert onnx_models.resample_attributes(options, (None, 4), scales=(2, 0.5))["scales"] == (2.0, 0.5)
    kept = onnx_models.resample_attributes({"axes": [1]}, (None, 4), scales=(0.5,))
    assert (kept["scales"], kept["output_sizes"]) == ((1.0, 0.5), ())


@pytest.mark.parametrize("nearest", NEAREST)
@pytest.mark.parametrize("mode", ["align_corners", "tf_crop_and_resize"])
def test_rounded_scales_keep_pixels_that_are_hit_exactly(mode: str, nearest: str) -> None:
    attributes = {"coordinate_transformation_mode": mode, "nearest_mode": nearest}
    lengths = [1, 7, 25, 101]
    for x_length in lengths:
        for y_length in lengths:
            pixel = np.arange(x_length, dtype=np.float32)
            inputs = {"sizes": (y_length,), "roi": (0.0, 1.0)}
            if x_length != y_length:  # a scale of 1
                expected = onnxruntime_resize(resize_model(pixel.shape, attributes, 19, inputs), pixel)
                np.testing.assert_array_equal(ours(pixel, attributes, 19, inputs), expected)


@pytest.mark.parametrize(
    ("attributes", "inputs", "message"),
    [
        ({"mode": "cubic"}, {}, "mode = 'cubic': must be 'nearest' or 'linear': DmlResample has no equivalent"),
        ({"antialias": 1}, {}, "antialias = 1: must be 0: "),
        ({"exclude_outside": 1}, {}, "exclude_outside = 1: must be 0: "),
        ({"nearest_mode": "up"}, {}, "nearest_mode = 'up': must be 'round_prefer_floor' or"),
        ({"coordinate_transformation_mode": "corner"}, {}, "coordinate_transformation_mode = 'corner': must be 'half_"),
        ({"keep_aspect_ratio_policy": "crop"}, {}, "keep_aspect_ratio_policy = 'crop': must be 'stretch' or"),
        ({"axes": [0, -2]}, {}, r"axes = \[0, -2\]: must be distinct and among the 2 axes"),
        ({}, {"sizes": (1, 2)}, r"scales = \[2, 2\], sizes = \[1, 2\]: exactly one of them must be given"),
        ({}, {"scales": (2,)}, r"scales = \[2\]: must have 2 values, one for each axis"),
        ({}, {"scales": (2, 0)}, r"scales = \[2, 0\]: must be finite and > 0"),
        ({}, {"scales": None, "sizes": (2, -1)}, r"sizes = \[2, -1\]: must be >= 0"),
        ({}, {"scales": None, "sizes": (6, 6), "opset": 10}, r"sizes = \[6, 6\]: must be left out at opset 10"),
        ({}, {"opset": 9}, "opset = 9: must be one with a Resize of version 10, 11, 13, 18, 19"),
        ({}, {"x_shape": (1,) * 5}, r"x_shape = \[1, 1, 1, 1, 1\]: must have 1 to 4 axes"),
        (
            {"coordinate_transformation_mode": "align_corners"},
            {"x_shape": (3, None)},
            r"x_shape\[1\] = None: must be known for this mode and scale",
        ),
        (
            {"coordinate_transformation_mode": "pytorch_half_pixel"},
            {"x_shape": (None, 3), "scales": (0.5, 1)},
            r"x_shape\[0\] = None: must be known for this mode and scale",
        ),
        (
            {"coordinate_transformation_mode": "align_corners", "axes": [1]},
            {"x_shape": (None, 3), "scales": (2,)},
            r"x_shape\[0\] = None: must be known, as x_shape\[1\] = 3 becomes 6, which does not follow from its scale",
        ),
        (
            {"keep_aspect_ratio_policy": "not_larger"},
            {"x_shape": (None, 3), "scales": None, "sizes": (2, 2)},
            r"x_shape = \[None, 3\]: must be known and > 0 for keep_aspect_ratio_policy = 'not_larger'",
        ),
        ({"axes": [1]}, {"x_shape": (None, 3), "scales": None, "sizes": (2,)}, r"x_shape\[0\] = None: must be known"),
        (
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            {},
            r"roi = \[\]: must have 4 finite values, a start and an end for each axis",
        ),
        (
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            {"roi": (0, 0, 1, 1.5)},
            r"roi of x_shape\[1\] = \(0.0, 1.5\): must not be reversed or leave the tensor, since DmlResample neither",
        ),
    ],
)
def test_what_has_no_counterpart_is_named_with_its_value_and_its_rule(
    attributes: dict[str, Any], inputs: dict[str, Any], message: str
) -> None:
    given = {"x_shape": (3, 3), "scales": (2, 2)} | inputs
    with pytest.raises(ValueError, match=message):
        onnx_models.resample_attributes(attributes, **given)


def test_an_attribute_of_another_opset_is_refused() -> None:
    with pytest.raises(TypeError, match="Resize of opset 10 has no attribute coordinate_transformation_mode"):
        onnx_models.resample_attributes({"coordinate_transformation_mode": "asymmetric"}, (3,), scales=(2,), opset=10)
    with pytest.raises(TypeError, match="Resize of opset 13 has no attribute antialias, axes"):
        onnx_models.resample_attributes({"axes": [0], "antialias": 0}, (3,), scales=(2,), opset=13)


@pytest.mark.parametrize("nearest", [None, "round_prefer_floor", "ceil"])
@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_is_the_transpose_of_onnxruntime_resize(mode: str, nearest: str | None) -> None:
    attributes = {"coordinate_transformation_mode": mode, "mode": "nearest" if nearest else "linear"}
    attributes |= {"nearest_mode": nearest} if nearest else {}
    for lengths, some in of_shapes(mode, nearest):
        x, inputs = pixels(2, 3, *lengths), full(mode, some)
        forward = resize_model(x.shape, attributes, 19, inputs)
        y = onnxruntime_resize(forward, x)
        dy = pixels(*y.shape)
        model = onnx_models.resize_grad(forward.graph.node[0], x.shape, opset=19, **inputs)
        (node,) = model.graph.node
        assert (node.domain, node.op_type) == (DOMAIN, "DmlResampleGrad")
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        given = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
        (dx,) = evaluate(BY_NAME["DmlResampleGrad"], [dy, np.array(x.shape)], given)
        assert dx is not None
        terms = np.abs(y).sum() + np.abs(dx).sum()
        assert abs(np.sum(y.astype(np.float64) * dy) - np.sum(x * dx)) <= 64 * 2**-24 * terms, (lengths, some)


def test_the_model_of_a_gradient_declares_what_is_known() -> None:
    onnx_models.register_schemas()
    node = onnx.helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")
    model = onnx_models.resize_grad(node, (2, None, 5), scales=(1, 1, 2), opset=13, element_type="double")
    onnx.checker.check_model(model, full_check=True, check_custom_domain=True)
    values = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*model.graph.input, *model.graph.output)
    }
    assert values == {"dY": ["M0", "M1", "M2"], "x_shape": [3], "dX": [2, "N1", 5]}
    assert model.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
    known = onnx_models.resize_grad(node, (2, 3, 5), scales=(1, 1, 2), opset=13).graph.input[0]
    assert [d.dim_value for d in known.type.tensor_type.shape.dim] == [2, 3, 10]


def test_the_gradient_of_another_node_is_refused() -> None:
    node = onnx.helper.make_node("Upsample", ["x", "s"], ["y"])
    with pytest.raises(ValueError, match=r"resize is a node of Upsample in '': must be Resize in ONNX's domain"):
        onnx_models.resize_grad(node, (2,), scales=(2,))
    node = onnx.helper.make_node("Resize", ["x", "", "s"], ["y"])
    node.attribute.add(name="mode", ref_attr_name="how", type=onnx.AttributeProto.STRING)
    with pytest.raises(ValueError, match="mode = @how: must be a value, not a reference to one"):
        onnx_models.resize_grad(node, (2,), scales=(2,))
