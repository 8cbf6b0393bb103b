"""MaxRoiPool: the same bits in any company, ties and numbers at the edge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ortops.functional.max_roi_pool import max_roi_pool, max_roi_pool_grad
from ortops.jit import LANES
from problems import DTYPES, SHAPES_OF_ROIS, Array, make_problem

# The first example compiles the kernels.
SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)


@dataclass(frozen=True)
class Call:
    """A call of MaxRoiPool and a gradient by its output."""

    x: Array
    rois: Array
    shape: tuple[int, int]
    scale: float

    @property
    def attributes(self) -> dict[str, Any]:
        return {"pooled_shape": self.shape, "spatial_scale": self.scale}

    @property
    def dy(self) -> Array:
        """Whole numbers, whose sums are exact in every type that they are accumulated in."""
        shape = (len(self.rois), self.x.shape[1], *self.shape)
        return np.random.default_rng(3).integers(-4, 5, shape).astype(self.x.dtype)


def forward(call: Call) -> Array:
    return max_roi_pool(call.x, call.rois, **call.attributes)


def gradient(call: Call) -> Array:
    return max_roi_pool_grad(call.dy, call.x, call.rois, spatial_scale=call.scale)


def make_call(
    seed: int, dtype: Any, kinds: tuple[str, ...], size: tuple[int, ...], shape: tuple[int, int], scale: float
) -> Call:
    base = make_problem(seed, dtype, {"spatial_scale": scale}, kinds, size)
    return Call(base.x, np.column_stack([base.batch_indices.astype(dtype), base.rois]), shape, scale)


@st.composite
def calls(draw: st.DrawFn, /, most: tuple[int, ...] = (3, 3, 9, 9), dtype: Any = None, rois: int = 4) -> Call:
    """Any call: pixels that differ, or that often tie and are no numbers."""
    call = make_call(
        draw(st.integers(0, 2**32 - 1)),
        dtype or draw(st.sampled_from(DTYPES)),
        tuple(draw(st.lists(st.sampled_from(SHAPES_OF_ROIS), max_size=rois))),
        tuple(draw(st.integers(1, length)) for length in most),
        (draw(st.integers(1, 7)), draw(st.integers(1, 7))),
        draw(st.sampled_from([1.0, 0.5, 0.3, 1 / 16, 1.7])),
    )
    if draw(st.booleans()):
        return call
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.integers(-2, 3, call.x.shape).astype(call.x.dtype)
    spoiled = rng.uniform(size=x.shape) < draw(st.sampled_from([0.0, 0.1, 0.9]))
    x[spoiled] = rng.choice(SPECIAL, spoiled.sum()).astype(x.dtype)
    return replace(call, x=x)


def same_bits(actual: Array, expected: Array) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert np.ascontiguousarray(actual).tobytes() == np.ascontiguousarray(expected).tobytes()


@given(calls(most=(2, 40, 30, 30), rois=20), st.data())
@settings(SETTINGS, max_examples=30)
def test_a_channel_and_a_roi_have_the_same_bits_alone_and_among_others(call: Call, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, call.x.shape[1] - 1))
    alone, y = replace(call, x=call.x[:, c : c + 1]), forward(call)
    same_bits(forward(alone), y[:, c : c + 1])
    dx = max_roi_pool_grad(call.dy[:, c : c + 1], alone.x, call.rois, spatial_scale=call.scale)
    same_bits(dx, gradient(call)[:, c : c + 1])
    for r in range(0, len(call.rois), 5):
        same_bits(forward(replace(call, rois=call.rois[r : r + 1])), y[r : r + 1])


@pytest.mark.parametrize("channels", [1, LANES + 1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_of_pixels_that_tie_the_first_row_by_row_has_the_gradient(dtype: Any, channels: int) -> None:
    x = np.zeros((1, channels, 4, 4), dtype)
    x[:, :, 1, 3] = x[:, :, 2, 0] = 1
    rois = np.array([[0, 0, 0, 3, 3]], dtype)
    dx = max_roi_pool_grad(np.full((1, channels, 1, 1), 2, dtype), x, rois)
    assert np.argwhere(dx[0, -1]).tolist() == [[1, 3]]
    dx = max_roi_pool_grad(np.full((1, channels, 2, 2), 2, dtype), np.zeros_like(x), rois)
    assert np.argwhere(dx[0, -1]).tolist() == [[0, 0], [0, 2], [2, 0], [2, 2]]
    assert dx.astype(float).max() == 2


@pytest.mark.parametrize("channels", [1, LANES + 1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_wins_and_minus_infinity_is_a_value(dtype: Any, channels: int) -> None:
    x = np.full((1, channels, 4, 4), -np.inf, dtype)
    x[:, :, 1, 0], x[:, :, 0, 1], x[:, :, 1, 1] = np.inf, np.nan, np.nan
    x[:, :, 3, 3] = -2
    rois = np.array([[0, 0, 0, 3, 3]], dtype)
    y = max_roi_pool(x, rois, pooled_shape=(2, 2)).astype(float)
    np.testing.assert_array_equal(y[0, -1], [[np.nan, -np.inf], [-np.inf, -2]])
    dx = max_roi_pool_grad(np.ones(y.shape, dtype), x, rois)
    assert np.argwhere(dx[0, -1]).tolist() == [[0, 1], [0, 2], [2, 0], [3, 3]]


@pytest.mark.parametrize("bins", [1, 7, 100_000])
def test_a_huge_roi_of_many_bins_takes_no_more_than_the_map_and_its_bins(bins: int) -> None:
    x = np.arange(1.0, 401.0).reshape(1, 1, 20, 20)
    y = max_roi_pool(x, [[0, -1e9, -1e9, 1e9, 1e9]], pooled_shape=(2, bins))
    assert y.shape == (1, 1, 2, bins)
    assert y.max() == 400
    dx = max_roi_pool_grad(y, x, [[0, -1e9, -1e9, 1e9, 1e9]])
    assert dx.sum() == y.sum()


@pytest.mark.parametrize("channels", [2, LANES])
def test_many_rois_have_the_bits_of_few(channels: int) -> None:
    # Their tables take too much to be made for all of them at once.
    call = make_call(1, np.float32, ("inside", "across", "point") * 10, (2, channels, 12, 13), (60, 1), 1.0)
    many = np.arange(6000) % 30
    y = forward(replace(call, rois=call.rois[many]))
    same_bits(y, forward(call)[many])
    dx = max_roi_pool_grad(call.dy[many], call.x, call.rois[many])
    np.testing.assert_array_equal(dx, 200 * gradient(call))
