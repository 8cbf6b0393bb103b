# SPDX-License-Identifier: MIT
"""The operators on NumPy arrays."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ortops
from samples import FORWARD, GRADIENT


def forward(**changed: Any) -> Any:
    """RoiAlign of ordinary inputs and attributes, some of them changed."""
    x, rois, indices = (changed.pop(name, value) for name, value in FORWARD.items())
    return ortops.roi_align(x, rois, indices, **{"output_height": 2, "output_width": 2, **changed})


def gradient(**changed: Any) -> Any:
    given = {name: changed.pop(name, value) for name, value in GRADIENT.items()}
    required = (given[name] for name in ("dY", "rois", "batch_indices", "x_shape"))
    return ortops.roi_align_grad(*required, x=given["X"], **changed)


def pooled(**attributes: Any) -> Any:
    return ortops.max_roi_pool(np.ones((1, 1, 5, 5)), np.zeros((1, 5)), **attributes)


def resampled(**attributes: Any) -> Any:
    return ortops.dml_resample(np.ones((2, 3)), **attributes)


TYPES = "must be bfloat16 or float16 or float32 or float64"

WRONG_TYPES = [
    (forward, "X", FORWARD["X"].astype(np.int32), f" has type int32: {TYPES}"),
    (forward, "X", FORWARD["X"].astype(">f4"), f" has type >f4: {TYPES}"),
    (forward, "rois", FORWARD["rois"].astype(np.float64), " has type float64: must be float32"),
    (forward, "sampling_ratio", 2.0, " = 2.0: INT attribute, must be >= 0"),
    (forward, "sampling_ratio", True, " = True: INT attribute, must be >= 0"),
    (forward, "mode", 1, " = 1: STRING attribute, must be one of 'avg', 'max', 'max_interpolated'"),
    (forward, "output_height", None, " = None: INT attribute, must be >= 1"),
    (pooled, "pooled_shape", 3, " = 3: INTS attribute, must be a list"),
    (pooled, "pooled_shape", [2.5, 2], "[0] = 2.5: INTS attribute, must be >= 1"),
    (resampled, "scales", 2.0, " = 2.0: FLOATS attribute, must be a list"),
    (resampled, "scales", "2", " = '2': FLOATS attribute, must be a list"),
    (resampled, "scales", None, " = None: FLOATS attribute, must be a list"),
    (resampled, "scales", [True, 1.0], "[0] = True: FLOATS attribute, must be finite and > 0"),
    (gradient, "batch_indices", np.array(["0", "1"]), " has type <U1: must be int64"),
    (gradient, "batch_indices", [0, 1.9], "[1] = 1.9 has type float: must be an integer"),
    (gradient, "batch_indices", [0, np.float32(1)], "[1] = 1.0 has type float: must be an integer"),
    (gradient, "batch_indices", ["0", "1"], "[0] = '0' has type str: must be an integer"),
    (gradient, "batch_indices", [0, True], "[1] = True has type bool: must be an integer"),
    (gradient, "batch_indices", (0, None), "[1] = None has type NoneType: must be an integer"),
    (gradient, "batch_indices", [0, np.array([1.5])], "[1, 0] = 1.5 has type float: must be an integer"),
    (gradient, "batch_indices", True, " has type bool: must be int64"),
    (gradient, "batch_indices", "01", " has type <U2: must be int64"),
    (gradient, "x_shape", [2, 1, 5.9, 6.2], "[2] = 5.9 has type float: must be an integer"),
    (gradient, "x_shape", 2.0, " = 2.0 has type float: must be an integer"),
    (gradient, "rois", [["0", "0", "4", "4"]], "[0, 0] = '0' has type str: must be an int or a float"),
    (gradient, "rois", [np.array([0, 0, 4, 4]) > 1], "[0, 0] = False has type bool: must be an int or a float"),
]

WRONG_VALUES = [
    (forward, "sampling_ratio", 2**63, f" = {2**63}: must fit in 64 bits"),
    (forward, "spatial_scale", 1e39, " = 1e+39: must be finite and > 0"),
    (forward, "batch_indices", np.array([0, 2**63], np.uint64), f"[1] = {2**63}: must fit in int64"),
    (forward, "batch_indices", [0, 2**63], f"[1] = {2**63}: must fit in int64"),
    (forward, "batch_indices", (0, np.uint64(2**63)), f"[1] = {2**63}: must fit in int64"),
    (gradient, "x_shape", [2, 1, 5, -(2**63) - 1], f"[3] = {-(2**63) - 1}: must fit in int64"),
    (gradient, "rois", [[0, 0, 4, 4], [1, 1, 3]], " = [[0, 0, 4, 4], [1, 1, 3]]: must be rows of equal length, .*"),
    (gradient, "rois", [[0, 0, 4, 10**400]], " = .*numbers that fit in float32"),
    (gradient, "batch_indices", [0, [1]], " = [0, [1]]: must be rows of equal length, of numbers that fit in int64"),
    (gradient, "outputs", (), " = (): must be one or both of 'dx' and 'drois'"),
    (gradient, "outputs", ("dX",), " = ('dX',): must be one or both of 'dx' and 'drois'"),
    (gradient, "outputs", ("dx", "dy"), " = ('dx', 'dy'): must be one or both of 'dx' and 'drois'"),
    (pooled, "pooled_shape", [2], " = [2]: must have 2 values, output_height, output_width"),
    (pooled, "pooled_shape", [2**64, 2], f"[0] = {2**64}: must fit in 64 bits"),
    (resampled, "scales", [], " and output_sizes are empty: at least one must have values"),
    (resampled, "scales", [1.0] * 5, " has 5 values: must have at most 4, one for each axis"),
    (resampled, "scales", [3e38, 1.0], ".*: must not make an axis longer than .*"),
]


@pytest.mark.parametrize(
    ("error", "function", "name", "value", "says"),
    [*((TypeError, *row) for row in WRONG_TYPES), *((ValueError, *row) for row in WRONG_VALUES)],
)
def test_wrong_arguments_are_named(error: type[Exception], function: Any, name: str, value: Any, says: str) -> None:
    with pytest.raises(error, match=f"^{name}{re.escape(says).replace(re.escape('.*'), '.*')}$"):
        function(**{name: value})


def test_lists_that_disagree_on_the_rank_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^InputTensor has shape \[2, 3\]: rank must be 1 \(rank of scales\)$"):
        resampled(scales=[1.0])
    with pytest.raises(
        ValueError, match=r"^scales has 2, output_sizes has 1 values: must have the same number, one for"
    ):
        resampled(scales=[1.0, 1.0], output_sizes=[1])


def test_lists_take_the_type_of_the_map_and_integers_any_width() -> None:
    rois = FORWARD["rois"]
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64):
        for integers in (np.int8, np.uint16, np.uint64, np.int64):
            inputs = {"X": FORWARD["X"].astype(dtype), "batch_indices": np.array([0, 1], integers)}
            y = forward(rois=rois.tolist(), **inputs)
            assert y.dtype == dtype
            np.testing.assert_array_equal(y, forward(rois=rois.astype(dtype), **inputs))


def test_lists_of_numbers_are_as_good_as_arrays() -> None:
    rois, indices = GRADIENT["rois"], GRADIENT["batch_indices"]
    shape = tuple(map(int, GRADIENT["x_shape"]))
    lists: list[dict[str, Any]] = [
        {"rois": rois.astype(int).tolist(), "batch_indices": range(2), "x_shape": shape},
        {"rois": list(rois), "batch_indices": list(indices), "x_shape": list(GRADIENT["x_shape"])},
        {"rois": [tuple(roi) for roi in rois], "batch_indices": [np.uint64(0), 1], "x_shape": [np.int8(2), *shape[1:]]},
    ]
    for inputs in lists:
        for actual, expected in zip(gradient(**inputs), gradient(), strict=True):
            np.testing.assert_array_equal(actual, expected)


def test_an_empty_list_has_every_type() -> None:
    assert forward(rois=np.zeros((0, 4), np.float32), batch_indices=[]).shape == (0, 1, 2, 2)
    assert ortops.dml_resample([[]], output_sizes=[0, 0]).shape == (0, 0)


def test_any_memory_layout_gives_the_same_result() -> None:
    x = FORWARD["X"]
    for layout in (np.asfortranarray(x), np.repeat(x, 2, axis=3)[..., ::2], x[:, :, ::-1][:, :, ::-1]):
        np.testing.assert_array_equal(forward(X=layout), forward())


def test_outputs_that_are_not_asked_for_are_none() -> None:
    dx, drois = gradient()
    only_dx, no_drois = gradient(X=None, outputs=("dx",))
    no_dx, only_drois = gradient(outputs=("drois",))
    assert no_dx is None
    assert no_drois is None
    np.testing.assert_array_equal(only_dx, dx)
    np.testing.assert_array_equal(only_drois, drois)


def test_spatial_scale_is_a_float32_as_in_an_onnx_attribute() -> None:
    np.testing.assert_array_equal(forward(spatial_scale=0.1), forward(spatial_scale=float(np.float32(0.1))))


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
