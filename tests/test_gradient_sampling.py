"""Gradients of operators that interpolate, of Fourier transforms, and of Col2Im."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, of_sum
from gradient_nodes import node_model, not_of_old, uniform
from onnx_models.gradient import ZeroGradientWarning, gradient

PADDINGS = ("zeros", "border", "reflection")


def _grid_feeds(shape: Sequence[int], points: Sequence[int], dtype: type = np.float64) -> dict[str, Array]:
    """Points in the tensor, and outside of it as far as several of its lengths."""
    x = uniform({"x": shape}, dtype)["x"]
    grid = uniform({"grid": [shape[0], *points, len(shape) - 2]}, dtype, -1.5, 1.5)["grid"]
    grid.reshape(-1)[:4] *= 4
    return {"x": x, "grid": grid}


@pytest.mark.parametrize(
    ("shape", "padding", "align", "opened"),
    [((2, 3, 4, 5), "zeros", 0, False), ((1, 2, 3, 4, 2), "border", 1, True), ((2, 3, 4, 5), "reflection", 1, True)],
)
def test_grid_sample_of_the_nearest_pixel_has_no_gradient_by_the_grid(
    shape: tuple[int, ...], padding: str, align: int, opened: bool
) -> None:
    feeds = _grid_feeds(shape, (3,) * (len(shape) - 2))
    attributes = {"mode": "nearest", "padding_mode": padding, "align_corners": align}
    made = node_model("GridSample", feeds, attributes, opened=opened, opset=20)
    with pytest.warns(ZeroGradientWarning, match="Round"):
        by_grid = check(made, feeds, ["x", "grid"])["grid"]
    assert not by_grid.any()


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


def test_dft_along_an_axis_that_is_known_at_run_time() -> None:
    feeds: dict[str, Array] = {**uniform({"x": (2, 5, 3, 1)}), "length": np.array(4), "axis": np.array(1)}
    made = node_model("DFT", feeds, {"onesided": 1}, opened=True, opset=20)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    check(made, feeds, ["x"], step=1)
