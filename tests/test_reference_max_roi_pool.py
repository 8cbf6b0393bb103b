"""What the reference of MaxRoiPool computes: ONNX Runtime's kernel, which pixels touch a bin, finite differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ortops.operators import BY_NAME
from ortops.reference import evaluate

Array = npt.NDArray[Any]

SETTINGS = settings(deadline=None, max_examples=100, derandomize=True)
NAN, INFINITY = math.nan, math.inf


def forward(x: npt.ArrayLike, rois: npt.ArrayLike, bins: Sequence[int] = (1, 1), scale: float = 1.0) -> Array:
    attributes = {"pooled_shape": bins, "spatial_scale": scale}
    (y,) = evaluate(BY_NAME["MaxRoiPool_22"], [np.asarray(one, np.float64) for one in (x, rois)], attributes)
    assert y is not None
    return y


def backward(dy: npt.ArrayLike, x: npt.ArrayLike, rois: npt.ArrayLike, scale: float = 1.0) -> Array:
    inputs = [np.asarray(one, np.float64) for one in (dy, x, rois)]
    (dx,) = evaluate(BY_NAME["MaxRoiPoolGrad"], inputs, {"spatial_scale": scale})
    assert dx is not None
    return dx


def of_runtime(x: Array, rois: Array, bins: Sequence[int], scale: float) -> Array:
    """The answer of ONNX Runtime's own kernel."""
    node = onnx.helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=bins, spatial_scale=scale)
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info(name, 1, [None] * rank) for name, rank in (("x", 4), ("rois", 2))],
        [onnx.helper.make_tensor_value_info("y", 1, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x.astype(np.float32), "rois": rois.astype(np.float32)})
    return np.asarray(y)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Array, Array, tuple[int, int], float]:
    """A map of different positive pixels, RoIs of any kind whose scaled ends are quarters of pixels, bins and a scale.

    No bin's bound is rounded in float32: that takes more than ten bins, or forty pixels.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    images, channels, height, width = (draw(st.integers(1, most)) for most in (3, 3, 9, 9))
    shape = (images, channels, height, width)
    x = (rng.permutation(math.prod(shape)).reshape(shape) + 1) / 64
    scale = draw(st.sampled_from((1.0, 0.5, 0.25, 2.0)))
    count = draw(st.integers(0, 4))
    ends = rng.integers(-24, 60, (count, 4)) / 4 / scale
    rois = np.concatenate([rng.integers(0, images, (count, 1)), ends], axis=1)
    return x, rois, (draw(st.integers(1, 10)), draw(st.integers(1, 10))), scale


# --- against others ------------------------------------------------------------------------------------------------


@SETTINGS
@given(problems())
def test_onnx_runtime_agrees_where_float32_bounds_are_exact(
    problem: tuple[Array, Array, tuple[int, int], float],
) -> None:
    np.testing.assert_array_equal(of_runtime(*problem), forward(*problem).astype(np.float32))


@pytest.mark.parametrize(("bins", "size"), [(13, 7), (11, 29), (7, 57)])
def test_onnx_runtime_takes_a_pixel_behind_the_roi_where_float32_bounds_are_not_exact(bins: int, size: int) -> None:
    x, rois = np.arange(1.0, size + 2)[None, None, None], np.array([[0.0, 0, 0, size - 1, 0]])
    exact, rounded = forward(x, rois, (1, bins)), of_runtime(x, rois, (1, bins), 1.0)
    np.testing.assert_array_equal(rounded[..., :-1], exact[..., :-1])
    assert (exact[0, 0, 0, -1], rounded[0, 0, 0, -1]) == (size, size + 1)


@SETTINGS
@given(problems())
def test_a_bin_has_the_pixels_that_it_touches(problem: tuple[Array, Array, tuple[int, int], float]) -> None:
    x, rois, bins, scale = problem
    y = forward(*problem)

    def touched(r1: float, r2: float, count: int, p: int, length: int) -> list[int]:
        start, end = (int(np.sign(r) * math.floor(abs(r) * scale + 0.5)) for r in (r1, r2))
        size = max(end - start + 1, 1)
        low, high = Fraction(p * size, count), Fraction((p + 1) * size, count)
        return [i for i in range(length) if i - start + 1 > low and i - start < high]

    for (r, c, p, q), value in np.ndenumerate(y):
        n, x1, y1, x2, y2 = rois[r]
        rows, columns = touched(y1, y2, bins[0], p, x.shape[2]), touched(x1, x2, bins[1], q, x.shape[3])
        assert value == max((x[int(n), c, i, j] for i in rows for j in columns), default=0.0)


# --- the gradient --------------------------------------------------------------------------------------------------


@SETTINGS
@given(problems())
def test_the_gradient_is_the_adjoint_of_taking_the_largest_pixels(
    problem: tuple[Array, Array, tuple[int, int], float],
) -> None:
    x, rois, _, scale = problem
    y = forward(*problem)
    dy = np.random.default_rng(y.size).integers(-8, 9, y.shape).astype(np.float64)
    # Sums of short binary fractions are exact.
    assert np.sum(dy * y) == np.sum(backward(dy, x, rois, scale) * x)


@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_is_that_of_finite_differences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.permutation(2 * 2 * 5 * 6).reshape(2, 2, 5, 6).astype(np.float64)
    rois = np.array([[1, 0, 0, 4, 3], [0, 2, 1, 9, 4], [1, 1, 1, 3, 2]], np.float64)
    dy = rng.normal(size=(3, 2, 2, 3))
    dx, step = backward(dy, x, rois), 0.25
    for place in np.ndindex(x.shape):
        moved = np.zeros(x.shape)
        moved[place] = step
        slope = np.sum(dy * (forward(x + moved, rois, (2, 3)) - forward(x - moved, rois, (2, 3)))) / (2 * step)
        assert dx[place] == pytest.approx(slope, abs=1e-12)


def test_infinite_gradients_of_both_signs_add_up_to_nan_without_a_warning() -> None:
    dx = backward([[[[INFINITY]]], [[[-INFINITY]]]], np.ones((1, 1, 1, 1)), np.zeros((2, 5)))
    assert np.isnan(dx).all()
