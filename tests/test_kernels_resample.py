"""DirectML's Resample: the kernels against the reference, and which lists they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from ortops.operators.dml_resample import DML_RESAMPLE, DML_RESAMPLE_GRAD
from ortops.reference import evaluate
from problems import Array, assert_close

SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
MARGIN = 1e-9
SCALES = (1.0, 2.0, 0.5, 3.0, 1.7, 0.3)
OFFSETS = (0.5, 0.0, -0.5, 0.3, -1.75, 4.0)


@st.composite
def calls(draw: st.DrawFn, /) -> dict[str, Any]:
    """Any call of DmlResample: x and the attributes, with output sizes that fit the scales or not."""
    rank = draw(st.integers(1, 4))

    def one_an_axis(values: st.SearchStrategy[Any]) -> Any:
        return draw(st.lists(values, min_size=rank, max_size=rank))

    shape = one_an_axis(st.integers(1, 6))
    attributes: dict[str, Any] = {
        "interpolation_mode": draw(st.sampled_from(["linear", "nearest_neighbor"])),
        "rounding_direction": draw(st.sampled_from(["half_up", "increasing", "decreasing"])),
    }
    for name, values in (
        ("scales", st.sampled_from(SCALES)),
        ("input_pixel_offsets", st.sampled_from(OFFSETS)),
        ("output_pixel_offsets", st.sampled_from(OFFSETS)),
    ):
        if draw(st.booleans()):
            attributes[name] = one_an_axis(values)
    if "scales" not in attributes or draw(st.booleans()):
        attributes["output_sizes"] = one_an_axis(st.integers(0, 9))
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return {"x": rng.uniform(-1, 1, shape).astype(dtype), "attributes": attributes}


def is_clear(shape: tuple[int, ...], sizes: tuple[int, ...], attributes: dict[str, Any]) -> bool:
    """Whether no coordinate is so near to a pixel, or to the middle between two, that its rounding decides."""
    for i, (length, size) in enumerate(zip(shape, sizes, strict=True)):
        scale = float(np.float32(attributes["scales"][i])) if "scales" in attributes else size / length
        first, second = (
            float(np.float32(attributes[name][i])) if name in attributes else default
            for name, default in (("input_pixel_offsets", 0.5), ("output_pixel_offsets", -0.5))
        )
        c = 2 * ((np.arange(size) - second) / scale - first)
        # Exactly there is clear too where every number on the way is exact.
        exact = size == 0 or (
            float(np.log2(scale)).is_integer() and (2**20 * np.array([first, second])).sum().is_integer()
        )
        near = np.abs(c - np.round(c)) < MARGIN
        if np.any(near) and not exact:
            return False
    return True


def forward(call: dict[str, Any], dtype: Any = None) -> Array:
    return ortops.dml_resample(call["x"].astype(dtype or call["x"].dtype), **call["attributes"])


def backward(call: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
    """A gradient by the output and the attributes of DmlResampleGrad."""
    (y,) = evaluate(DML_RESAMPLE, [call["x"]], call["attributes"])
    assert y is not None
    dy = np.random.default_rng(3).uniform(-1, 1, y.shape).astype(call["x"].dtype)
    return dy, {name: value for name, value in call["attributes"].items() if name != "output_sizes"}


@given(calls())
@SETTINGS
def test_forward_is_the_reference_rounded(call: dict[str, Any]) -> None:
    (expected,) = evaluate(DML_RESAMPLE, [call["x"]], call["attributes"])
    assert expected is not None
    assume(is_clear(call["x"].shape, expected.shape, call["attributes"]))
    actual = forward(call)
    assert actual.dtype == call["x"].dtype
    assert_close(actual, expected, 2**expected.ndim, 1.0, 10.0)


@given(calls())
@SETTINGS
def test_gradient_is_the_reference_rounded(call: dict[str, Any]) -> None:
    dy, attributes = backward(call)
    assume(is_clear(call["x"].shape, dy.shape, attributes))
    (expected,) = evaluate(DML_RESAMPLE_GRAD, [dy, np.array(call["x"].shape)], attributes)
    assert expected is not None
    actual = ortops.dml_resample_grad(dy, call["x"].shape, **attributes)
    assert actual.dtype == dy.dtype
    assert_close(actual, expected, dy.size + 1, 1.0, 10.0)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"scales": 2.0}, "scales = 2.0 has type FLOAT: must be FLOATS"),
        ({"scales": [2, 2]}, r"scales = \[2, 2\] has type INTS: must be FLOATS"),
        ({"scales": [1.0, -1.0]}, r"scales\[1\] = -1.0: must be finite and > 0"),
        ({"scales": [1.0] * 5}, "scales has 5 values: must have at most 4, one for each axis"),
        ({"scales": [1.0, 1.0], "output_sizes": [3]}, "values: must have the same number"),
        ({}, "scales and output_sizes are empty: at least one must have values"),
    ],
)
def test_wrong_lists_are_refused_when_a_session_is_made(attributes: dict[str, Any], says: str) -> None:
    model = onnx_models.dml_resample(rank=2, scales=[1.0, 1.0])
    (node,) = model.graph.node
    del node.attribute[:]
    node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attributes.items())
    with pytest.raises(Exception, match=says):
        ortops.InferenceSession(model.SerializeToString(), options(), providers=[CPU])


def test_sums_of_half_precision_are_not_half_precision() -> None:
    dy = np.ones(4097, np.float16)
    assert ortops.dml_resample_grad(dy, [1]).item() == 4096  # 4097 rounded once, to even
    y = ortops.dml_resample_grad(np.full(3, 0.1, np.float16), [1])
    assert y.item() == np.float16(3 * np.float64(np.float16(0.1)))


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3, 4), (1, 2, 0, 5)])
def test_nothing_to_compute_is_no_error(shape: tuple[int, ...]) -> None:
    y = ortops.dml_resample(np.ones(shape, np.float32), scales=[2.0] * len(shape))
    assert y.shape == tuple(2 * length for length in shape)
    assert ortops.dml_resample_grad(y, shape).shape == shape
    gradient = ortops.dml_resample_grad(y, [3] * len(shape))
    np.testing.assert_array_equal(gradient, np.zeros([3] * len(shape), np.float32))


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({}, "scales and output_sizes are empty: at least one must have values"),
        ({"scales": [1.0]}, r"x has shape|InputTensor has shape \[2, 3\]: rank must be 1 \(rank of scales\)"),
        ({"scales": [1.0, -2.0]}, r"scales\[1\] = -2.0: must be finite and > 0"),
        (
            {"scales": [1.0, 1.0], "output_sizes": [1]},
            "scales has 2, output_sizes has 1 values: must have the same number",
        ),
        ({"scales": [1.0] * 5}, "scales has 5 values: must have at most 4, one for each axis"),
        ({"scales": [3e38, 1.0]}, r"scales\[0\] = .*: must not make an axis longer"),
    ],
)
def test_wrong_attributes_are_refused(attributes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ortops.dml_resample(np.ones((2, 3)), **attributes)


@pytest.mark.parametrize("scales", [2.0, "2", [True, 1.0], ["1", 2.0], None, {1.0: 2.0}])
def test_what_is_no_list_of_numbers_is_refused(scales: Any) -> None:
    with pytest.raises(TypeError, match=r"scales.* = .*: FLOATS attribute, must be"):
        ortops.dml_resample(np.ones((2, 3)), scales=scales)
