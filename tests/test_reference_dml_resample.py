"""What the reference of DirectML's Resample computes: published numbers, NumPy, exact fractions, and its own transpose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ortops.operators import BY_NAME
from ortops.reference import evaluate

Array = npt.NDArray[np.float64]
Attributes = dict[str, Any]

SETTINGS = settings(deadline=None, max_examples=150, derandomize=True)
DIRECTIONS = ("half_up", "increasing", "decreasing")
INTERPOLATIONS = ("linear", "nearest_neighbor")
NEAREST: Attributes = {"interpolation_mode": "nearest_neighbor"}


def forward(x: npt.ArrayLike, **attributes: Any) -> Array:
    (y,) = evaluate(BY_NAME["DmlResample"], [np.asarray(x, np.float64)], attributes)
    assert y is not None
    return y


def backward(dy: npt.ArrayLike, x_shape: Sequence[int], **attributes: Any) -> Array:
    (dx,) = evaluate(BY_NAME["DmlResampleGrad"], [np.asarray(dy, np.float64), np.array(x_shape)], attributes)
    assert dx is not None
    return dx


def offsets(first: float, second: float, rank: int = 1) -> Attributes:
    """The same input and output pixel offset on every axis."""
    return {"input_pixel_offsets": [first] * rank, "output_pixel_offsets": [second] * rank}


def of_gradient(attributes: Mapping[str, Any]) -> Attributes:
    """What the gradient takes of the forward operator's attributes."""
    return {name: value for name, value in attributes.items() if name != "output_sizes"}


# --- published numbers ---------------------------------------------------------------------------------------------

WIDER_AND_LOWER: Attributes = {**NEAREST, "scales": [0.5, 1.5]}
"""Of the worked examples: half the height, and width times 1.5."""


@pytest.mark.parametrize(
    ("direction", "first", "second"),
    [("half_up", 0.5, 0.0), ("decreasing", 0.5, -0.5), ("decreasing", 0.0, 0.0)],
)
def test_the_worked_example_of_the_gradient_pages_holds(direction: str, first: float, second: float) -> None:
    # DML_RESAMPLE_GRAD_OPERATOR_DESC and DML_RESAMPLE_GRAD1_OPERATOR_DESC, which do not say what the offsets are.
    attributes = {**WIDER_AND_LOWER, "rounding_direction": direction, **offsets(first, second, 2)}
    np.testing.assert_array_equal(forward([[1, 2], [3, 4]], **attributes), [[1, 1, 2]])
    np.testing.assert_array_equal(backward([[4, 5, 6]], [2, 2], **attributes), [[9, 6], [0, 0]])


def test_enlarging_by_linear_interpolation_is_that_of_tensorflow() -> None:
    # testResizeUp of its image_ops_test.py, which its DirectML plugin passes.
    x = np.reshape([64, 32, 32, 64, 50, 100], (1, 3, 2, 1))
    expected = [
        [64, 56, 40, 32],
        [56, 52, 44, 40],
        [40, 44, 52, 56],
        [36.5, 45.625, 63.875, 73],
        [45.5, 56.875, 79.625, 91],
        [50, 62.5, 87.5, 100],
    ]
    np.testing.assert_array_equal(forward(x, output_sizes=[1, 6, 4, 1])[0, ..., 0], expected)


SQUARE = np.array([[[[1.0, 2.0], [3.0, 4.0]]]])


def test_directmls_gradient_is_adjoint_with_its_offsets_exchanged() -> None:
    # test_resample_grad_is_the_adjoint_of_resample of PyDirectML: its forward call rounds up at 0.5 and -0.5; its
    # gradient, given 0.5 and -0.5 too, takes them for the offsets of its own input and output.
    dy = np.arange(16.0).reshape(1, 1, 4, 4)
    y = forward(SQUARE, **NEAREST, rounding_direction="increasing", output_sizes=[1, 1, 4, 4])
    assert (y * dy).sum() == 444
    given_to_directml = {"first": 0.5, "second": -0.5}
    exchanged = offsets(given_to_directml["second"], given_to_directml["first"], 4)
    assert (SQUARE * backward(dy, SQUARE.shape, **NEAREST, **exchanged)).sum() == 444
    as_they_are = offsets(given_to_directml["first"], given_to_directml["second"], 4)
    assert (SQUARE * backward(dy, SQUARE.shape, **NEAREST, **as_they_are)).sum() == 372


@pytest.mark.parametrize(("length", "size"), [(3, 5), (4, 9), (7, 13)])
def test_what_tensorflow_gives_directmls_gradient_is_right_with_the_offsets_exchanged(length: int, size: int) -> None:
    # TensorFlow's nearest neighbour reads floor(o/S); for the gradient its plugin passes 0 and 0.5, and a forward scale.
    dy = np.random.default_rng(0).standard_normal(size)
    expected = np.zeros(length)
    np.add.at(expected, np.arange(size) * length // size, dy)
    np.testing.assert_allclose(backward(dy, [length], **NEAREST, **offsets(0.5, 0.0)), expected, rtol=1e-15, atol=0)
    as_they_are = backward(dy, [length], **NEAREST, **offsets(0.0, 0.5))
    assert not np.allclose(as_they_are, expected)


# --- attributes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("length", [1, 2, 3, 5, 7, 14, 30])
def test_without_scales_their_ratio_is_exact(length: int, direction: str) -> None:
    # A ratio that is rounded, as 3/7 is, would put some of what lies on a pixel before or after it.
    for size in range(1, 51):
        o = np.arange(size)
        exact = {
            "half_up": (2 * o * length + size) // (2 * size),
            "increasing": -(-o * length // size),
            "decreasing": o * length // size,
        }[direction]
        y = forward(np.arange(length), **NEAREST, rounding_direction=direction, output_sizes=[size], **offsets(0, 0))
        np.testing.assert_array_equal(y, np.minimum(exact, length - 1), err_msg=f"{length} to {size} pixels")


# --- any call ------------------------------------------------------------------------------------------------------

SCALES = (1.0, 2.0, 0.5, 3.0, 1.5, 1.7, 0.3)
OFFSETS = (0.5, -0.5, 0.0, 0.3, -1.75, 4.0)


@st.composite
def calls(draw: st.DrawFn) -> tuple[Array, Attributes]:
    """A tensor of any rank and attributes; the output's lengths follow from the scales, fit them, or do not."""
    rank = draw(st.integers(1, 4))

    def one_an_axis(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=rank, max_size=rank))

    shape = one_an_axis(st.integers(1, (12, 5, 4, 3)[rank - 1]))
    attributes: Attributes = {
        "interpolation_mode": draw(st.sampled_from(INTERPOLATIONS)),
        "rounding_direction": draw(st.sampled_from(DIRECTIONS)),
    }
    lists = {"scales": SCALES, "input_pixel_offsets": OFFSETS, "output_pixel_offsets": OFFSETS}
    attributes |= {name: one_an_axis(st.sampled_from(values)) for name, values in lists.items() if draw(st.booleans())}
    if "scales" not in attributes or draw(st.booleans()):
        attributes["output_sizes"] = one_an_axis(st.integers(0, (15, 6, 5, 4)[rank - 1]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.uniform(-1, 1, shape), attributes


def dy_of(y: Array) -> Array:
    return np.random.default_rng(10).uniform(-1, 1, y.shape)


def exact_value(attributes: Attributes, name: str, axis: int, default: Fraction) -> Fraction:
    return Fraction(float(np.float32(attributes[name][axis]))) if name in attributes else default


def exact_weights(length: int, size: int, axis: int, attributes: Attributes) -> Array:
    """[size, length]: what each output takes of each pixel, by distances to the exact coordinate."""
    scale = exact_value(attributes, "scales", axis, Fraction(size, length))
    first = exact_value(attributes, "input_pixel_offsets", axis, Fraction(1, 2))
    second = exact_value(attributes, "output_pixel_offsets", axis, Fraction(-1, 2))
    weights = np.zeros((size, length))
    for o in range(size):
        coordinate = min(max((o - second) / scale - first, Fraction(0)), Fraction(length - 1))
        distances = [pixel - coordinate for pixel in range(length)]
        if attributes["interpolation_mode"] == "linear":
            weights[o] = [float(max(1 - abs(distance), Fraction(0))) for distance in distances]
            continue
        best = {
            "half_up": lambda distance: (abs(distance), -distance),
            "increasing": lambda distance: (distance < 0, distance),
            "decreasing": lambda distance: (distance > 0, -distance),
        }[attributes["rounding_direction"]]
        weights[o, distances.index(min(distances, key=best))] = 1
    return weights


@given(calls())
@SETTINGS
def test_the_output_is_made_of_the_exact_weights_of_every_axis(call: tuple[Array, Attributes]) -> None:
    x, attributes = call
    y = forward(x, **attributes)
    expected = x
    for axis, (length, size) in enumerate(zip(x.shape, y.shape, strict=True)):
        weights = exact_weights(length, size, axis, attributes)
        expected = np.moveaxis(np.tensordot(weights, expected, (1, axis)), 0, axis)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-13)


@given(calls())
@SETTINGS
def test_the_gradient_is_the_transpose_of_the_matrix_that_the_forward_operator_is(
    call: tuple[Array, Attributes],
) -> None:
    x, attributes = call
    units = np.eye(x.size).reshape(x.size, *x.shape)
    rows = np.array([forward(unit, **attributes).ravel() for unit in units])
    dy = dy_of(forward(x, **attributes))
    dx = backward(dy, x.shape, **of_gradient(attributes))
    assert dx.shape == x.shape
    np.testing.assert_allclose(dx.ravel(), rows @ dy.ravel(), rtol=0, atol=1e-13)


# --- infinities, NaN, huge coordinates -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_what_is_not_finite_reaches_those_that_read_it_and_no_other(interpolation: str, value: float) -> None:
    # Along the first axis some outputs lie on a pixel, others between two, others beyond the edges.
    attributes: Attributes = {"interpolation_mode": interpolation, "scales": [2, 1], **offsets(0, 1, 2)}
    units = np.eye(6).reshape(6, 3, 2)
    matrix = np.array([forward(unit, **attributes, output_sizes=[8, 3]).ravel() for unit in units]).T
    assert (matrix == 0).any(axis=0).all()
    for pixel in range(6):
        x = np.ones(6)
        x[pixel] = value
        y = forward(x.reshape(3, 2), **attributes, output_sizes=[8, 3])
        np.testing.assert_array_equal(y.ravel(), np.where(matrix[:, pixel] > 0, value, 1.0))
    for o in range(24):
        dy = np.zeros(24)
        dy[o] = value
        dx = backward(dy.reshape(8, 3), [3, 2], **attributes)
        np.testing.assert_array_equal(dx.ravel(), np.where(matrix[o] > 0, value, 0.0))


def test_infinities_of_both_signs_cancel_to_nan() -> None:
    np.testing.assert_array_equal(forward([np.inf, -np.inf], scales=[1], **offsets(0, -0.5)), [np.nan, -np.inf])
    np.testing.assert_array_equal(backward([np.inf, -np.inf], [1], scales=[1]), [np.nan])


TINY, HUGE = float(np.float32(1e-45)), float(np.finfo(np.float32).max)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("scale", "first", "second", "pixel"),
    [
        (TINY, 0.5, -0.5, 3),
        (TINY, 0.5, HUGE, 0),
        (TINY, HUGE, -HUGE, 3),
        (HUGE, 0.5, -0.5, 0),
        (HUGE, -2.0, 0.0, 2),
        (1.0, HUGE, -0.5, 0),
        (1.0, -HUGE, -0.5, 3),
    ],
)
def test_the_farthest_coordinates_read_a_pixel(
    scale: float, first: float, second: float, pixel: int, direction: str, interpolation: str
) -> None:
    attributes: Attributes = {"interpolation_mode": interpolation, "rounding_direction": direction}
    attributes |= {"scales": [scale], **offsets(first, second)}
    x = np.array([10.0, 11.0, 12.0, 13.0])
    y = forward(x, **attributes, output_sizes=[1])
    np.testing.assert_array_equal(y, x[pixel : pixel + 1])
    np.testing.assert_array_equal(backward([5.0], [4], **attributes), 5 * np.eye(4)[pixel])
