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


@pytest.mark.parametrize("direction", ["half_up", "increasing"])
def test_other_directions_give_other_numbers_with_half_pixels(direction: str) -> None:
    # Rows at 0.5, columns at -1/6, 0.5 and 7/6.
    y = forward([[1, 2], [3, 4]], **WIDER_AND_LOWER, rounding_direction=direction)
    np.testing.assert_array_equal(y, [[3, 4, 4]])


def test_of_two_pixels_as_near_directml_takes_the_later() -> None:
    # Recorded in web-platform-tests pull request 41811.
    x = [
        [3.86005284, 45.18463077, 87.67153743, 98.78210347, 66.37414347, 3.41158349],
        [86.14930501, 95.9813372, 76.87126314, 16.52591355, 65.98782867, 25.47092156],
        [22.56010548, 92.08479613, 85.80876635, 92.63166027, 29.91620871, 75.40461275],
        [62.06375451, 1.77121588, 99.47231285, 11.44055014, 25.39634271, 67.02175102],
    ]
    expected = [[[[95.9813372, 16.52591355, 25.47092156], [1.77121588, 11.44055014, 67.02175102]]]]
    by_sizes = forward([[x]], **NEAREST, output_sizes=[1, 1, 2, 3])
    np.testing.assert_array_equal(by_sizes, expected)
    np.testing.assert_array_equal(forward([[x]], **NEAREST, scales=[1, 1, 0.5, 0.5]), by_sizes)


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


def test_doubling_without_offsets_repeats_as_directml_does() -> None:
    # test_resample_repeats_the_nearest_neighbour of PyDirectML.
    y = forward(SQUARE, **NEAREST, rounding_direction="decreasing", output_sizes=[1, 1, 4, 4], **offsets(0, 0, 4))
    np.testing.assert_array_equal(y, SQUARE.repeat(2, 2).repeat(2, 3))


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


# --- NumPy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_scale_1_is_the_identity(rank: int, interpolation: str) -> None:
    x = np.random.default_rng(rank).standard_normal((2, 3, 4, 5)[:rank])
    attributes: Attributes = {"interpolation_mode": interpolation, "scales": [1] * rank}
    np.testing.assert_array_equal(forward(x, **attributes), x)
    np.testing.assert_array_equal(backward(x, x.shape, **attributes), x)


@pytest.mark.parametrize("factors", [(3,), (1, 2), (2, 1, 3), (2, 3, 1, 4)])
def test_nearest_by_a_whole_factor_repeats_and_its_gradient_adds(factors: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 3, 1, 2)[: len(factors)])
    expected = x
    for axis, factor in enumerate(factors):
        expected = expected.repeat(factor, axis)
    np.testing.assert_array_equal(forward(x, **NEAREST, scales=factors), expected)
    dy = rng.standard_normal(expected.shape)
    split = dy.reshape([part for pair in zip(x.shape, factors, strict=True) for part in pair])
    summed = split.sum(axis=tuple(range(1, 2 * x.ndim, 2)))
    np.testing.assert_allclose(backward(dy, x.shape, **NEAREST, scales=factors), summed, rtol=1e-14, atol=1e-15)


def test_linear_halving_is_the_mean_of_pairs() -> None:
    x = np.random.default_rng(2).standard_normal((4, 6))
    expected = x.reshape(2, 2, 3, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(forward(x, scales=[0.5, 0.5]), expected, rtol=1e-14)


@pytest.mark.parametrize(("first", "second"), [(0.5, -0.5), (0, 0), (0.25, 1.5), (-7, 0.75), (3, 9)])
@pytest.mark.parametrize("scale", [0.5, 2.0, 0.25, 8.0])
def test_along_one_axis_linear_is_numpys_interp(scale: float, first: float, second: float) -> None:
    x = np.random.default_rng(3).standard_normal(7)
    coordinates = (np.arange(12) - second) / scale - first
    y = forward(x, scales=[scale], output_sizes=[12], **offsets(first, second))
    np.testing.assert_allclose(y, np.interp(coordinates, np.arange(7), x), rtol=0, atol=1e-15)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_what_the_scaled_input_has_too_much_is_cut_off(interpolation: str) -> None:
    x = np.random.default_rng(4).standard_normal((3, 4))
    attributes: Attributes = {"interpolation_mode": interpolation, "scales": [2, 1.5]}
    whole = forward(x, **attributes)
    assert whole.shape == (6, 6)
    np.testing.assert_array_equal(forward(x, **attributes, output_sizes=[5, 2]), whole[:5, :2])
    dy = np.random.default_rng(5).standard_normal((5, 2))
    padded = np.pad(dy, ((0, 1), (0, 4)))
    np.testing.assert_array_equal(backward(dy, x.shape, **attributes), backward(padded, x.shape, **attributes))


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_what_it_has_too_little_is_its_edge_and_comes_back_to_the_edge(interpolation: str) -> None:
    x = np.random.default_rng(6).standard_normal((3, 2))
    # Output o reads pixel o - 2 and o - 1.
    attributes = {"interpolation_mode": interpolation, "scales": [1, 1]}
    attributes |= {"input_pixel_offsets": [0, 0.25], "output_pixel_offsets": [2, 0.75]}
    y = forward(x, **attributes, output_sizes=[6, 5])
    np.testing.assert_array_equal(y, np.pad(x, ((2, 1), (1, 2)), "edge"))
    expected = np.outer([3, 1, 2], [2, 3])
    np.testing.assert_array_equal(backward(np.ones((6, 5)), x.shape, **attributes), expected)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_all_axes_are_alike(interpolation: str) -> None:
    x = np.random.default_rng(7).standard_normal((2, 3, 4, 5))
    attributes: Attributes = {
        "scales": [2, 0.75, 1.5, 0.5],
        "input_pixel_offsets": [0.5, 0, 0.25, -1],
        "output_pixel_offsets": [0, -0.5, 1, 0.25],
        "output_sizes": [3, 4, 2, 5],
    }
    order = (2, 0, 3, 1)
    permuted = {name: [values[axis] for axis in order] for name, values in attributes.items()}
    y = forward(x, interpolation_mode=interpolation, **attributes)
    other = forward(x.transpose(order), interpolation_mode=interpolation, **permuted)
    np.testing.assert_allclose(other, y.transpose(order), rtol=0, atol=1e-15)


# --- attributes ----------------------------------------------------------------------------------------------------


def test_without_output_sizes_lengths_are_rounded_down() -> None:
    assert forward(np.zeros((3, 5, 1, 4)), scales=[1.5, 0.5, 2.75, 0.24]).shape == (4, 2, 2, 0)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_without_offsets_pixels_have_their_centres_at_a_half(interpolation: str) -> None:
    x = np.random.default_rng(8).standard_normal((3, 4))
    attributes: Attributes = {"interpolation_mode": interpolation, "scales": [1.5, 0.75]}
    y = forward(x, **attributes)
    np.testing.assert_array_equal(y, forward(x, **attributes, **offsets(0.5, -0.5, 2)))
    assert not np.array_equal(y, forward(x, **attributes, **offsets(0.0, 0.0, 2)))
    dx = backward(y, x.shape, **attributes)
    np.testing.assert_array_equal(dx, backward(y, x.shape, **attributes, **offsets(0.5, -0.5, 2)))


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


@pytest.mark.parametrize(
    ("coordinate", "half_up", "increasing", "decreasing"),
    [
        (-0.75, 0, 0, 0),
        (0.0, 0, 0, 0),
        (0.25, 0, 1, 0),
        (0.5, 1, 1, 0),
        (1.5, 2, 2, 1),
        (2.0, 2, 2, 2),
        (2.5, 3, 3, 2),
        (2.75, 3, 3, 2),
        (3.25, 3, 3, 3),
    ],
)
def test_the_directions_round_to_the_nearest_the_next_and_the_previous_pixel(
    coordinate: float, half_up: int, increasing: int, decreasing: int
) -> None:
    attributes: Attributes = {"scales": [1], "output_sizes": [1], **offsets(0, -coordinate)}
    for direction, expected in zip(DIRECTIONS, (half_up, increasing, decreasing), strict=True):
        y = forward([0, 1, 2, 3], **NEAREST, rounding_direction=direction, **attributes)
        assert y.item() == expected, direction
        dx = backward([1.0], [4], **NEAREST, rounding_direction=direction, **of_gradient(attributes))
        np.testing.assert_array_equal(dx, np.eye(4)[expected], err_msg=direction)


@pytest.mark.parametrize("direction", ["increasing", "decreasing"])
def test_linear_knows_no_direction(direction: str) -> None:
    x = np.random.default_rng(9).standard_normal((3, 4))
    y = forward(x, scales=[1.5, 0.7])
    np.testing.assert_array_equal(forward(x, scales=[1.5, 0.7], rounding_direction=direction), y)
    dx = backward(y, x.shape, scales=[1.5, 0.7])
    np.testing.assert_array_equal(backward(y, x.shape, scales=[1.5, 0.7], rounding_direction=direction), dx)


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


@given(calls())
@SETTINGS
def test_output_times_dy_is_data_times_dx(call: tuple[Array, Attributes]) -> None:
    x, attributes = call
    y = forward(x, **attributes)
    dy = dy_of(y)
    dx = backward(dy, x.shape, **of_gradient(attributes))
    assert (y * dy).sum() == pytest.approx((x * dx).sum(), rel=0, abs=1e-12)


@given(calls())
@SETTINGS
def test_a_constant_stays_constant_and_no_gradient_is_lost(call: tuple[Array, Attributes]) -> None:
    x, attributes = call
    y = forward(np.full(x.shape, 3.0), **attributes)
    np.testing.assert_allclose(y, np.full(y.shape, 3.0), rtol=1e-14)
    dy = dy_of(y)
    dx = backward(dy, x.shape, **of_gradient(attributes))
    assert dx.sum() == pytest.approx(dy.sum(), rel=0, abs=1e-12)


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


# --- nothing to read, and errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "sizes"), [([0], [0]), ([3, 2], [0, 4]), ([0, 2], [4, 0]), ([2, 0, 1], [3, 0, 2])])
def test_an_empty_output_asks_for_no_pixels(shape: list[int], sizes: list[int]) -> None:
    assert forward(np.ones(shape), output_sizes=sizes).shape == tuple(sizes)
    np.testing.assert_array_equal(backward(np.ones(sizes), shape), np.zeros(shape))


def test_an_empty_axis_scaled_is_empty() -> None:
    assert forward(np.ones((0, 2)), scales=[3, 3]).shape == (0, 6)


@pytest.mark.parametrize("shape", [[0], [2, 0], [0, 0, 1]])
def test_outputs_without_pixels_to_read_are_refused(shape: list[int]) -> None:
    says = rf"^InputTensor has shape \[{', '.join(map(str, shape))}\]: must have elements where OutputTensor has some$"
    with pytest.raises(ValueError, match=says):
        forward(np.ones(shape), output_sizes=[2] * len(shape))
    says = rf"^x_shape is \[{', '.join(map(str, shape))}\]: must not have a 0 where InputGradientTensor has elements$"
    with pytest.raises(ValueError, match=says):
        backward(np.ones([2] * len(shape)), shape)


@pytest.mark.parametrize(
    ("shape", "attributes", "says"),
    [
        ([2], {}, "scales and output_sizes are empty"),
        ([2, 2], {"scales": [2]}, "InputTensor has shape .* rank"),
        ([1] * 5, {"scales": [1] * 4}, "InputTensor has shape"),
        ([2], {"scales": [1], "input_pixel_offsets": [0, 0]}, "one for each axis"),
        ([2], {"scales": [0]}, r"scales\[0\] = 0: must be finite and > 0"),
        ([2], {"scales": [math.inf]}, r"scales\[0\] = inf: must be finite and > 0"),
        ([2], {"scales": [1], "output_pixel_offsets": [math.nan]}, r"output_pixel_offsets\[0\] = nan: must be finite"),
        ([2], {"output_sizes": [-1]}, r"output_sizes\[0\] = -1: must be >= 0"),
        ([2], {"scales": [1], "rounding_direction": "half_even"}, "rounding_direction = 'half_even': must be one of"),
    ],
)
def test_attributes_that_break_a_rule_are_refused(shape: list[int], attributes: Attributes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        forward(np.ones(shape), **attributes)


@pytest.mark.parametrize(
    ("x_shape", "attributes", "says"),
    [
        ([2], {}, "x_shape"),
        ([2, -1], {}, r"x_shape\[1\] must be >= 0"),
        ([2, 2], {"scales": [1]}, "InputGradientTensor has shape .* rank"),
    ],
)
def test_shapes_that_the_gradient_cannot_have_are_refused(
    x_shape: list[int], attributes: Attributes, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        backward(np.ones((2, 3)), x_shape, **attributes)
