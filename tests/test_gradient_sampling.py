"""Gradients of operators that interpolate, of Fourier transforms, and of Col2Im."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, of_sum
from gradient_nodes import NEWEST_OPSET, node_model, not_of_old, uniform
from onnx_models.gradient import ZeroGradientWarning, gradient
from pairs import pairwise

PADDINGS = ("zeros", "border", "reflection")


def _grid_feeds(shape: Sequence[int], points: Sequence[int], dtype: type = np.float64) -> dict[str, Array]:
    """Points in the tensor, and outside of it as far as several of its lengths."""
    x = uniform({"x": shape}, dtype)["x"]
    grid = uniform({"grid": [shape[0], *points, len(shape) - 2]}, dtype, -1.5, 1.5)["grid"]
    grid.reshape(-1)[:4] *= 4
    return {"x": x, "grid": grid}


@pairwise(
    {
        "mode, shape, points": [
            ("linear", (2, 3, 4, 5), (2, 6)),
            ("cubic", (2, 3, 4, 5), (2, 6)),
            ("linear", (2, 2, 3, 4, 2), (2, 3, 2)),
            ("linear", (1, 2, 1, 5), (3, 2)),
            ("cubic", (1, 2, 3, 1), (3, 2)),
        ],
        "padding": PADDINGS,
        "align": [0, 1],
        "opened": [False, True],
        "opset": [20, NEWEST_OPSET],
    }
)
def test_grid_sample(
    mode: str, shape: tuple[int, ...], points: tuple[int, ...], padding: str, align: int, opened: bool, opset: int
) -> None:
    feeds = _grid_feeds(shape, points)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": align}
    check(node_model("GridSample", feeds, attributes, opened=opened, opset=opset), feeds, ["x", "grid"])


@pairwise({"shape": [(2, 3, 4, 5), (1, 2, 3, 4, 2)], "padding": PADDINGS, "align": [0, 1], "opened": [False, True]})
def test_grid_sample_of_the_nearest_pixel_has_no_gradient_by_the_grid(
    shape: tuple[int, ...], padding: str, align: int, opened: bool
) -> None:
    feeds = _grid_feeds(shape, (3,) * (len(shape) - 2))
    attributes = {"mode": "nearest", "padding_mode": padding, "align_corners": align}
    made = node_model("GridSample", feeds, attributes, opened=opened, opset=20)
    with pytest.warns(ZeroGradientWarning, match="Round"):
        by_grid = check(made, feeds, ["x", "grid"])["grid"]
    assert not by_grid.any()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_grid_sample_of_opset_16(mode: str) -> None:
    feeds = _grid_feeds((2, 3, 4, 5), (2, 6), np.float32)
    made = node_model("GridSample", feeds, {"mode": mode, "padding_mode": "border"}, opened=True, opset=18)
    check(made, feeds, ["x"], step=1, tolerance=1e-5)
    check(made, feeds, ["grid"], step=1e-3, tolerance=2e-3)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("align", [False, True])
def test_grid_sample_has_the_gradients_of_pytorch_on_pixels_and_on_borders(
    mode: str, padding: str, align: bool
) -> None:
    torch = pytest.importorskip("torch")
    x = uniform({"x": (1, 2, 4, 5)})["x"]
    ticks = np.arange(-12, 25)  # thirds of a pixel, from outside to outside
    across, down = ((2 * ticks / 3 + 1) / n - 1 if not align else 2 * ticks / 3 / (n - 1) - 1 for n in (5, 4))
    grid = np.stack(np.meshgrid(across, down), -1)[None]
    feeds = {"x": x, "grid": grid}
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": int(align)}
    made = node_model("GridSample", feeds, attributes, opened=True, opset=20)
    wrt = ["x"] if mode == "nearest" else ["x", "grid"]
    found = of_sum(made, feeds, wrt)
    given = {name: torch.tensor(value, requires_grad=True) for name, value in feeds.items()}
    torch_mode = mode if mode == "nearest" else f"bi{mode}"
    torch.nn.functional.grid_sample(
        given["x"], given["grid"], mode=torch_mode, padding_mode=padding, align_corners=align
    ).sum().backward()
    for name in wrt:
        np.testing.assert_allclose(found[name], given[name].grad.numpy(), atol=1e-9, err_msg=name)


@not_of_old
@pytest.mark.parametrize(("samples", "points"), [(0, 2), (1, 0)])
def test_without_samples_or_points_there_is_nothing(samples: int, points: int) -> None:
    feeds = {"x": np.ones((samples, 3, 4, 5)), "grid": np.ones((samples, points, 2, 2))}
    check(node_model("GridSample", feeds, opened=True, opset=20), feeds, ["x", "grid"])
    shapes = {"x": (samples, 2, 3, points + 2), "weights": (2, 2, 2, 3), "offset": (samples, 12, 2, points)}
    feeds = {name: np.ones(shape) for name, shape in shapes.items()}
    if points:  # ONNX Runtime has no convolution to nothing
        check(node_model("DeformConv", feeds, opened=True, opset=19), feeds, list(feeds))


@not_of_old
def test_points_that_are_no_numbers_do_not_read_outside_of_the_tensor() -> None:
    feeds = _grid_feeds((1, 2, 4, 5), (1, 4))
    feeds["grid"][0, 0, :, 0] = [np.nan, np.inf, -np.inf, 1e300]
    for padding in PADDINGS:
        made = node_model("GridSample", feeds, {"padding_mode": padding}, opened=True, opset=20)
        assert of_sum(made, feeds, ["x", "grid"])["grid"].shape == feeds["grid"].shape


def test_half_precision_has_its_coordinates_in_float() -> None:
    x = uniform({"x": (1, 1, 1, 2000)}, np.float16)["x"]
    grid = np.array([[[[0.4995, 0.0]]]], np.float16)
    feeds = {"x": x, "grid": grid}
    made = node_model("GridSample", feeds, opened=False, opset=20)
    by_x = of_sum(made, feeds, ["x"])["x"]
    at = (float(grid[0, 0, 0, 0]) + 1) * 1000 - 0.5
    expected = np.maximum(1 - np.abs(np.arange(2000) - at), 0).reshape(x.shape)
    assert by_x.dtype == np.float16
    np.testing.assert_allclose(by_x, expected, atol=2e-3)


CONVOLUTIONS: list[Any] = [
    ((1, 1, 3, 3), (1, 1, 2, 2), {}),
    ((2, 4, 5, 6), (6, 2, 2, 3), {"group": 2, "offset_group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}),
    (
        (2, 4, 5, 6),
        (2, 4, 3, 2),
        {"offset_group": 4, "dilations": [1, 2], "pads": [1, 1, 1, 1], "kernel_shape": [3, 2]},
    ),
    ((1, 4, 5, 4), (4, 1, 1, 2), {"group": 4, "strides": [1, 2]}),
]


@not_of_old
@pairwise(
    {
        "x, weights, attributes": CONVOLUTIONS,
        "more": [(), ("bias",), ("bias", "mask"), ("mask",)],
        "opened": [False, True],
        "opset": [19, NEWEST_OPSET],
    }
)
def test_deform_conv(
    x: tuple[int, ...],
    weights: tuple[int, ...],
    attributes: dict[str, Any],
    more: tuple[str, ...],
    opened: bool,
    opset: int,
) -> None:
    out = [
        (n + sum(attributes.get("pads", [0] * 4)[axis::2]) - attributes.get("dilations", [1, 1])[axis] * (k - 1) - 1)
        // attributes.get("strides", [1, 1])[axis]
        + 1
        for axis, (n, k) in enumerate(zip(x[2:], weights[2:], strict=True))
    ]
    cells = attributes.get("offset_group", 1) * weights[2] * weights[3]
    shapes = {"x": x, "weights": weights, "offset": (x[0], 2 * cells, *out)}
    shapes |= {"bias": weights[:1], "mask": (x[0], cells, *out)}
    names = ["x", "weights", "offset", "bias" if "bias" in more else "", *(["mask"] if "mask" in more else [])]
    feeds = uniform({name: shapes[name] for name in names if name}, low=-1.4, high=1.4)
    made = node_model("DeformConv", feeds, attributes, opened=opened, opset=opset, inputs=names)
    check(made, feeds, list(feeds), step=1e-6)


@not_of_old
def test_offsets_at_the_edge_have_the_gradients_of_torchvision() -> None:
    torch = pytest.importorskip("torch")
    # The latter is of one whose compiled operators want another PyTorch.
    with contextlib.suppress(ImportError, RuntimeError):
        import torchvision as vision
    if not hasattr(torch.ops.torchvision, "deform_conv2d"):
        pytest.skip("needs torchvision with its compiled operators")
    feeds = uniform({"x": (1, 2, 4, 4), "weights": (3, 2, 3, 3), "offset": (1, 18, 4, 4)})
    feeds["offset"] = np.round(feeds["offset"])  # with offsets of 0, pads of 1 are read at -1 and at the length
    made = node_model("DeformConv", feeds, {"pads": [1, 1, 1, 1]}, opened=True, opset=19)
    found = of_sum(made, feeds, list(feeds))
    given = {name: torch.tensor(value, requires_grad=True) for name, value in feeds.items()}
    vision.ops.deform_conv2d(given["x"], given["offset"], given["weights"], padding=1).sum().backward()
    for name in feeds:
        np.testing.assert_allclose(found[name], given[name].grad.numpy(), atol=1e-9, err_msg=name)


@pytest.mark.parametrize("size", [[2, 3, 4, 5], [2, 3, 1, 5], [2, 3, 2, 3, 4]], ids=str)
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("is_constant", [False, True])
def test_affine_grid(size: list[int], align: int, is_constant: bool) -> None:
    rank = len(size) - 2
    feeds = uniform({"theta": (2, rank, rank + 1)})
    numbers = {"size": np.array(size)}
    constants, fed = (numbers, {}) if is_constant else ({}, numbers)
    inputs = ["theta", "size"]
    given = {**feeds, **fed}
    made = node_model(
        "AffineGrid",
        given,
        {"align_corners": align},
        opened=not is_constant,
        opset=20,
        constants=constants,
        inputs=inputs,
    )
    if fed:
        made.graph.input[1].type.tensor_type.shape.dim[0].dim_value = len(size)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    check(made, given, ["theta"])


def test_spatial_transformers_have_second_derivatives() -> None:
    feeds = {"theta": np.array([[[0.9, 0.1, 0.05], [-0.2, 0.8, 0.07]]]), **uniform({"x": (1, 2, 4, 5)})}
    made = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
    g (double[1, 2, 3] theta, double[1, 2, 4, 5] x) => (double total) <int64[4] size = {1, 2, 3, 4}> {
        grid = AffineGrid (theta, size)
        read = GridSample <mode = "cubic"> (x, grid)
        square = Mul (read, read)
        total = ReduceSum <keepdims = 0> (square)
    }""")
    once = gradient(made, "total", {"theta": "y"})
    check(once, feeds, ["theta", "x"], outputs=["y"], tolerance=1e-6)


TRANSFORMS: list[Any] = [
    ((2, 7, 3, 1), 1, None, {}),
    ((2, 7, 3, 2), 1, None, {"inverse": 1}),
    ((2, 8, 3, 2), 1, 5, {}),
    ((2, 5, 3, 1), 1, 9, {"inverse": 1}),
    ((2, 3, 8, 1), 2, None, {"onesided": 1}),
    ((2, 3, 7, 1), -2, 6, {"onesided": 1}),
    ((2, 3, 7, 1), 2, 9, {"onesided": 1}),
    ((2, 3, 5, 2), 2, 8, {"onesided": 1, "inverse": 1}),
    ((2, 5, 3, 2), 1, 9, {"onesided": 1, "inverse": 1}),
    *(((2, 5, 3, 2), 1, length, {"onesided": 1, "inverse": 1}) for length in (3, 6, 7, 10, 12)),
    ((2, 5, 3, 2), 1, None, {"onesided": 1, "inverse": 1}),
]


@pairwise({"shape, axis, length, attributes": TRANSFORMS, "opset": [18, 20], "opened": [False, True]})
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dft(
    shape: tuple[int, ...],
    axis: int,
    length: int | None,
    attributes: dict[str, int],
    opset: int,
    opened: bool,
    dtype: type,
) -> None:
    feeds = uniform({"x": shape}, dtype)
    constants = {} if length is None else {"length": np.array(length)}
    inputs = ["x", "length" if constants else ""]
    if opset < 20:
        attributes = {**attributes, "axis": axis % 4}
    else:
        constants["axis"] = np.array(axis)
        inputs.append("axis")
    made = node_model("DFT", feeds, attributes, opened=opened, opset=opset, constants=constants, inputs=inputs)
    if opened:  # whether there are imaginary parts is no secret
        made.graph.input[0].type.tensor_type.shape.dim[3].dim_value = shape[3]
    check(made, feeds, ["x"], step=1, tolerance=1e-6 if dtype is np.float64 else 1e-4)


def test_dft_along_an_axis_that_is_known_at_run_time() -> None:
    feeds: dict[str, Array] = {**uniform({"x": (2, 5, 3, 1)}), "length": np.array(4), "axis": np.array(1)}
    made = node_model("DFT", feeds, {"onesided": 1}, opened=True, opset=20)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    check(made, feeds, ["x"], step=1)


FRAMES: list[Any] = [
    ({"signal": (2, 23, 1), "window": (8,)}, None, {}),
    ({"signal": (2, 23, 1), "window": (7,)}, 7, {"onesided": 1}),
    ({"signal": (2, 23, 1)}, 8, {"onesided": 1}),
    ({"signal": (2, 23, 2), "window": (6,)}, 6, {"onesided": 0}),
]


@pairwise({"shapes, length, attributes": FRAMES, "opened": [False, True], "opset": [18, NEWEST_OPSET]})
def test_stft(
    shapes: Mapping[str, Sequence[int]], length: int | None, attributes: dict[str, int], opened: bool, opset: int
) -> None:
    feeds = uniform(shapes)
    constants = {"step": np.array(3)} | ({} if length is None else {"length": np.array(length)})
    inputs = ["signal", "step", "window" if "window" in feeds else "", "length" if length else ""]
    made = node_model("STFT", feeds, attributes, opened=opened, opset=opset, constants=constants, inputs=inputs)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    if opened:
        made.graph.input[0].type.tensor_type.shape.dim[2].dim_value = shapes["signal"][2]
    check(made, feeds, list(feeds), step=1e-2)


BLOCKS: list[Any] = [
    ((2, 12, 4), [5, 5], [2, 2], {"strides": [3, 3]}),
    ((2, 12, 16), [5, 5], [2, 2], {}),
    ((1, 6, 20), [5, 4], [2, 3], {"pads": [1, 0, 0, 2], "strides": [1, 1]}),
    ((1, 6, 12), [7, 8], [2, 3], {"dilations": [3, 2], "strides": [1, 1], "pads": [0, 0, 0, -1]}),
    ((1, 10, 16), [4, 4, 4], [1, 1, 5], {"pads": [0, 0, 0, 0, 0, 1]}),
    ((2, 6, 3), [8], [3], {"strides": [2]}),
]


@pairwise({"shape, image, block, attributes": BLOCKS, "is_constant": [False, True], "opened": [False, True]})
def test_col2im(
    shape: tuple[int, ...],
    image: list[int],
    block: list[int],
    attributes: dict[str, Any],
    is_constant: bool,
    opened: bool,
) -> None:
    if "pads" in attributes and min(attributes["pads"]) < 0:
        shape = (1, 6, 4 * 3)
    numbers = {"image": np.array(image), "block": np.array(block)}
    feeds: dict[str, Array] = uniform({"x": shape}, np.float32)
    fed = feeds if is_constant else {**feeds, **numbers}
    inputs = ["x", "image", "block"]
    made = node_model("Col2Im", fed, attributes, opened=opened, constants=numbers if is_constant else {}, inputs=inputs)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    for value in made.graph.input[1:]:
        value.type.tensor_type.shape.dim[0].dim_value = len(image)
    check(made, fed, ["x"], step=1, tolerance=1e-5)


@not_of_old
@pytest.mark.parametrize(
    ("shape", "axes"), [([3, 9, 6], None), ([8, 3], [-1, 0]), ([6, 5], [1, 2]), ([1], [1])], ids=str
)
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("is_constant", [False, True])
def test_center_crop_pad(shape: list[int], axes: list[int] | None, opened: bool, is_constant: bool) -> None:
    feeds: dict[str, Array] = uniform({"x": (4, 6, 5)})
    numbers = {"shape": np.array(shape)}
    fed = feeds if is_constant else {**feeds, **numbers}
    made = node_model(
        "CenterCropPad",
        fed,
        {} if axes is None else {"axes": axes},
        opened=opened,
        constants=numbers if is_constant else {},
        inputs=["x", "shape"],
    )
    for value in made.graph.input[1:]:
        value.type.tensor_type.shape.dim[0].dim_value = len(shape)
    check(made, fed, ["x"], step=1)
