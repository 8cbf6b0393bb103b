"""DirectML's Resample: which lists it refuses, in sessions and as a function, and how it sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnx_models
import ortops
from conformance.backends.session import CPU, options


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
