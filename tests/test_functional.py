"""The operators on NumPy arrays."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ortops
from samples import FORWARD, GRADIENT


def forward(inputs: dict[str, Any], **attributes: Any) -> Any:
    attributes = {"output_height": 2, "output_width": 2} | attributes
    return ortops.roi_align(inputs["X"], inputs["rois"], inputs["batch_indices"], **attributes)


def gradient(inputs: dict[str, Any], **arguments: Any) -> Any:
    required = (inputs[name] for name in ("dY", "rois", "batch_indices", "x_shape"))
    return ortops.roi_align_grad(*required, x=inputs["X"], **arguments)


def pooled(**attributes: Any) -> Any:
    return ortops.max_roi_pool(np.ones((1, 1, 5, 5)), np.zeros((1, 5)), **attributes)


def resampled(**attributes: Any) -> Any:
    return ortops.dml_resample(np.ones((2, 3)), **attributes)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"X": FORWARD["X"].astype(np.int32)}, "X has type int32: must be bfloat16 or float16 or float32 or float64"),
        ({"X": FORWARD["X"].astype(">f4")}, "X has type >f4"),
        ({"rois": FORWARD["rois"].astype(np.float64)}, "rois has type float64: must be float32"),
        ({"batch_indices": np.array(["0", "1"])}, "batch_indices has type <U1: must be int64"),
    ],
)
def test_wrong_element_types_are_named(inputs: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        forward(FORWARD | inputs)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"sampling_ratio": 2.0}, "sampling_ratio = 2.0: INT attribute"),
        ({"sampling_ratio": True}, "sampling_ratio = True: INT attribute"),
        ({"mode": 1}, "mode = 1: STRING attribute"),
        ({"output_height": None}, "output_height = None: INT attribute"),
    ],
)
def test_wrong_types_of_attributes_are_named(attributes: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        forward(FORWARD, **attributes)


@pytest.mark.parametrize(
    ("function", "attributes", "says"),
    [
        (pooled, {"pooled_shape": 3}, "pooled_shape = 3: INTS attribute, must be a list"),
        (pooled, {"pooled_shape": [2]}, "pooled_shape = [2]: must have 2 values, output_height, output_width"),
        (pooled, {"pooled_shape": [2.5, 2]}, "pooled_shape[0] = 2.5: INTS attribute, must be >= 1"),
        (pooled, {"pooled_shape": [2**64, 2]}, "pooled_shape[0] = 18446744073709551616: must fit in 64 bits"),
        (resampled, {}, "scales and output_sizes are empty: at least one must have values"),
        (resampled, {"scales": [1.0]}, "InputTensor has shape [2, 3]: rank must be 1 (rank of scales)"),
        (
            resampled,
            {"scales": [1.0, 1.0], "output_sizes": [1]},
            "scales has 2, output_sizes has 1 values: must have the",
        ),
        (resampled, {"scales": [1.0] * 5}, "scales has 5 values: must have at most 4, one for each axis"),
        (resampled, {"scales": [3e38, 1.0]}, "must not make an axis longer"),
        *((resampled, {"scales": scales}, "FLOATS attribute, must be") for scales in (2.0, "2", [True, 1.0], None)),
    ],
)
def test_lists_that_break_their_rule_are_named(function: Any, attributes: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(says)):
        function(**attributes)


def test_integers_beyond_64_bits_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sampling_ratio = \d+: must fit in 64 bits"):
        forward(FORWARD, sampling_ratio=2**63)
    for indices in (np.array([0, 2**63], np.uint64), [0, 2**63], (0, np.uint64(2**63))):
        with pytest.raises(ValueError, match=r"^batch_indices\[1\] = 9223372036854775808: must fit in int64$"):
            forward(FORWARD | {"batch_indices": indices})
    with pytest.raises(ValueError, match=r"^x_shape\[3\] = -9223372036854775809: must fit in int64$"):
        gradient(GRADIENT | {"x_shape": [2, 1, 5, -(2**63) - 1]})
    with pytest.raises(ValueError, match=r"spatial_scale = 1e\+39: must be finite"):
        forward(FORWARD, spatial_scale=1e39)


def test_lists_take_the_type_of_the_map_and_integers_any_width() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64):
        for integers in (np.int8, np.uint16, np.uint64, np.int64):
            inputs = FORWARD | {
                "X": FORWARD["X"].astype(dtype),
                "rois": FORWARD["rois"].tolist(),
                "batch_indices": np.array([0, 1], integers),
            }
            y = forward(inputs)
            assert y.dtype == dtype
            np.testing.assert_array_equal(y, forward(inputs | {"rois": FORWARD["rois"].astype(dtype)}))


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"batch_indices": [0, 1.9]}, "batch_indices[1] = 1.9 has type float: must be an integer"),
        ({"batch_indices": [0, np.float32(1)]}, "batch_indices[1] = 1.0 has type float: must be an integer"),
        ({"batch_indices": ["0", "1"]}, "batch_indices[0] = '0' has type str: must be an integer"),
        ({"batch_indices": [0, True]}, "batch_indices[1] = True has type bool: must be an integer"),
        ({"batch_indices": (0, None)}, "batch_indices[1] = None has type NoneType: must be an integer"),
        ({"batch_indices": [0, np.array([1.5])]}, "batch_indices[1, 0] = 1.5 has type float: must be an integer"),
        ({"batch_indices": True}, "batch_indices has type bool: must be int64"),
        ({"batch_indices": "01"}, "batch_indices has type <U2: must be int64"),
        ({"x_shape": [2, 1, 5.9, 6.2]}, "x_shape[2] = 5.9 has type float: must be an integer"),
        ({"x_shape": 2.0}, "x_shape = 2.0 has type float: must be an integer"),
        ({"rois": [["0", "0", "4", "4"]]}, "rois[0, 0] = '0' has type str: must be an int or a float"),
        ({"rois": [np.array([0, 0, 4, 4]) > 1]}, "rois[0, 0] = False has type bool: must be an int or a float"),
    ],
)
def test_lists_of_anything_but_numbers_are_refused(inputs: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(says)}$"):
        gradient(GRADIENT | inputs)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"rois": [[0, 0, 4, 4], [1, 1, 3]]}, "rois = [[0, 0, 4, 4], [1, 1, 3]]: must be rows of equal length"),
        ({"batch_indices": [0, [1]]}, "batch_indices = [0, [1]]: must be rows of equal length"),
        ({"rois": [[0, 0, 4, 10**400]]}, "numbers that fit in float32"),
    ],
)
def test_lists_that_make_no_array_are_refused(inputs: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        gradient(GRADIENT | inputs)


def test_lists_of_numbers_are_as_good_as_arrays() -> None:
    rois, indices = GRADIENT["rois"], GRADIENT["batch_indices"]
    expected = gradient(GRADIENT)
    shape = tuple(map(int, GRADIENT["x_shape"]))
    lists = [
        {"rois": rois.astype(int).tolist(), "batch_indices": range(2), "x_shape": shape},
        {"rois": list(rois), "batch_indices": list(indices), "x_shape": list(GRADIENT["x_shape"])},
        {"rois": [tuple(roi) for roi in rois], "batch_indices": [np.uint64(0), 1], "x_shape": [np.int8(2), *shape[1:]]},
    ]
    for inputs in lists:
        for actual, array in zip(gradient(GRADIENT | inputs), expected, strict=True):
            np.testing.assert_array_equal(actual, array)


def test_an_empty_list_has_every_type() -> None:
    assert forward(FORWARD | {"rois": np.zeros((0, 4), np.float32), "batch_indices": []}).shape == (0, 1, 2, 2)
    assert ortops.dml_resample([[]], output_sizes=[0, 0]).shape == (0, 0)


def test_any_memory_layout_gives_the_same_result() -> None:
    x = FORWARD["X"]
    for layout in (np.asfortranarray(x), np.repeat(x, 2, axis=3)[..., ::2], x[:, :, ::-1][:, :, ::-1]):
        np.testing.assert_array_equal(forward(FORWARD | {"X": layout}), forward(FORWARD))


def test_outputs_that_are_not_asked_for_are_none() -> None:
    dx, drois = gradient(GRADIENT)
    only_dx, no_drois = gradient(GRADIENT | {"X": None}, outputs=("dx",))
    no_dx, only_drois = gradient(GRADIENT, outputs=("drois",))
    assert no_dx is None
    assert no_drois is None
    np.testing.assert_array_equal(only_dx, dx)
    np.testing.assert_array_equal(only_drois, drois)


@pytest.mark.parametrize("outputs", [(), ("dX",), ("dx", "dy")])
def test_unknown_outputs_are_refused(outputs: Any) -> None:
    with pytest.raises(ValueError, match=r"outputs = .*: must be one or both of 'dx' and 'drois'"):
        gradient(GRADIENT, outputs=outputs)


def test_spatial_scale_is_a_float32_as_in_an_onnx_attribute() -> None:
    np.testing.assert_array_equal(
        forward(FORWARD, spatial_scale=0.1), forward(FORWARD, spatial_scale=float(np.float32(0.1)))
    )


def dml(corners: Any) -> list[Any]:
    x, rois, indices = FORWARD.values()
    y = ortops.dml_roi_align(x, rois, indices, output_height=2, output_width=2, align_regions_to_corners=corners)
    return [y, *ortops.dml_roi_align_grad(y, rois, indices, x.shape, x=x, align_regions_to_corners=corners)]


def test_a_flag_is_a_boolean_or_0_or_1() -> None:
    for off, on in ((False, True), (0, 1), (np.False_, np.True_), (np.int64(0), np.uint8(1))):
        for flag, other in ((off, False), (on, True)):
            for actual, expected in zip(dml(flag), dml(other), strict=True):
                np.testing.assert_array_equal(actual, expected)
    assert not np.array_equal(dml(0)[0], dml(1)[0])
