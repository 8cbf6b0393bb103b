"""MaxRoiPool: the same bits in any company, ties and numbers at the edge."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onnx_models.build
import ortops
from conformance.backends.session import CPU, options
from onnx_models.schema import register_schemas
from ortops.functional.max_roi_pool import max_roi_pool, max_roi_pool_grad
from ortops.jit import LANES
from ortops.operators.max_roi_pool import MAX_ROI_POOL_22
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


def test_sums_in_16_bits_do_not_stall() -> None:
    # In float16 a running sum of ones stops at 2048.
    dy, rois = np.ones((4096, 1, 1, 1), np.float16), np.zeros((4096, 5), np.float16)
    assert max_roi_pool_grad(dy, np.ones((1, 1, 2, 2), np.float16), rois).ravel().tolist() == [4096, 0, 0, 0]


def test_a_runner_that_fails_is_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 2, *[ctypes.c_size_t] * 2, ctypes.c_void_p)
    fails = signature(lambda *_: 1)
    address = ctypes.cast(fails, ctypes.c_void_p).value
    monkeypatch.setattr("ortops.functional.call.runner_on_all_cpus", lambda: (address, 0))
    x, rois = np.ones((1, 64, 100, 100), np.float32), np.array([[0, 0, 0, 90, 90]] * 30, np.float32)
    with pytest.raises(MemoryError):
        max_roi_pool(x, rois, pooled_shape=(2, 2))
    with pytest.raises(MemoryError):
        max_roi_pool_grad(np.ones((30, 64, 2, 2), np.float32), x, rois)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"pooled_shape": 3}, "pooled_shape = 3: INTS attribute, must be a list"),
        ({"pooled_shape": [2]}, r"pooled_shape = \[2\]: must have 2 values, output_height, output_width"),
        ({"pooled_shape": [2, 2, 2]}, r"pooled_shape = \[2, 2, 2\]: must have 2 values"),
        ({"pooled_shape": []}, r"pooled_shape = \[\]: must have 2 values"),
        ({"pooled_shape": [2.5, 2]}, r"pooled_shape\[0\] = 2.5: INTS attribute, must be >= 1"),
        ({"pooled_shape": [2**64, 2]}, r"pooled_shape\[0\] = 18446744073709551616: must fit in 64 bits"),
    ],
)
def test_wrong_attributes_are_refused(attributes: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        max_roi_pool(np.ones((1, 1, 5, 5)), np.zeros((1, 5)), **attributes)


def without_attributes(**attributes: Any) -> onnx.ModelProto:
    """A model of MaxRoiPool-22 whose node has these attributes alone, and whose output has no shape."""
    model = onnx_models.build.model(MAX_ROI_POOL_22)
    del model.graph.node[0].attribute[:]
    for name, value in attributes.items():
        kind = onnx.AttributeProto.INTS if value == [] else None
        model.graph.node[0].attribute.append(onnx.helper.make_attribute(name, value, attr_type=kind))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"pooled_shape": 2}, "pooled_shape = 2 has type INT: must be INTS"),
        ({"pooled_shape": [2.0, 2.0]}, r"pooled_shape = \[2.0, 2.0\] has type FLOATS: must be INTS"),
        ({"pooled_shape": []}, "pooled_shape .* is an empty list: must be INTS"),
        ({"pooled_shape": [2]}, r"pooled_shape = \[2\]: must have 2 values, output_height, output_width"),
        ({"pooled_shape": [1] * 9}, "must have 2 values, output_height, output_width"),
    ],
)
def test_wrong_attributes_are_refused_when_a_session_is_made(attributes: dict[str, Any], says: str) -> None:
    with pytest.raises(Exception, match=says):
        ortops.InferenceSession(without_attributes(**attributes).SerializeToString(), options(), providers=[CPU])


def test_shape_inference_of_onnx_and_of_onnx_runtime_knows_the_lengths_that_pooled_shape_gives() -> None:
    model = without_attributes(pooled_shape=[2, 3])
    session = ortops.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    assert session.get_outputs()[0].shape == ["num_rois", "C", 2, 3]
    register_schemas([MAX_ROI_POOL_22])
    (output,) = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output
    lengths = [d.dim_value or d.dim_param for d in output.type.tensor_type.shape.dim]
    assert lengths == ["num_rois", "C", 2, 3]
