# SPDX-License-Identifier: MIT
"""The bits of RoiAlign's kernels in any company, tables that do not fit at once, and the memory that all kernels take."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ortops
from ortops.operators import BY_NAME
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.spec import Operator
from problems import MODES, SHAPES_OF_ROIS, Array, Problem, make_problem, problems
from processes import python
from samples import Sample, every, samples

MAX_TEMPORARY_BYTES = 64 << 20
"""The most temporary memory of a call, as docs/run.md says."""


def forward(problem: Problem) -> Array:
    return ortops.roi_align(problem.x, problem.rois, problem.batch_indices, **problem.attributes)


def gradient(problem: Problem) -> tuple[Array, Array]:
    dx, drois = ortops.roi_align_grad(
        problem.dy, problem.rois, problem.batch_indices, problem.x.shape, x=problem.x, **problem.gradient_attributes
    )
    assert dx is not None
    assert drois is not None
    return dx, drois


def part(problem: Problem, channels: slice, rois: slice = slice(None)) -> Problem:
    dy = problem.dy[rois, channels]
    return replace(
        problem,
        x=problem.x[:, channels],
        rois=problem.rois[rois],
        batch_indices=problem.batch_indices[rois],
        given_dy=dy,
    )


@st.composite
def large_problems(draw: st.DrawFn) -> Problem:
    """Problems for several threads whose maps are packed as a whole, by window, or not at all."""
    problem = draw(problems(output_height=draw(st.integers(1, 7)), output_width=draw(st.integers(1, 7))))
    size = draw(
        st.tuples(st.integers(1, 3), st.sampled_from([1, 7, 8, 33, 256]), st.integers(1, 40), st.integers(1, 40))
    )
    kinds = tuple(draw(st.lists(st.sampled_from(SHAPES_OF_ROIS), min_size=1, max_size=40)))
    return make_problem(draw(st.integers(0, 99)), problem.x.dtype, problem.attributes, kinds, size)


def same_bits(actual: Array, expected: Array) -> None:
    assert actual.shape == expected.shape
    assert np.ascontiguousarray(actual).tobytes() == np.ascontiguousarray(expected).tobytes()


@given(large_problems(), st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
def test_channel_and_roi_have_same_bits_alone(problem: Problem, data: st.DataObject) -> None:
    channel = data.draw(st.integers(0, problem.x.shape[1] - 1))
    y, (dx, drois) = forward(problem), gradient(problem)
    alone = part(problem, slice(channel, channel + 1))
    same_bits(forward(alone), y[:, channel : channel + 1])
    dx_alone, drois_alone = gradient(alone)
    same_bits(dx_alone, dx[:, channel : channel + 1])
    # drois is a sum over channels: the others get no gradient.
    only = np.zeros_like(problem.dy)
    only[:, channel] = problem.dy[:, channel]
    same_bits(drois_alone, gradient(replace(problem, given_dy=only))[1])
    for r in range(0, len(problem.rois), 7):
        alone = part(problem, slice(None), slice(r, r + 1))
        same_bits(forward(alone), y[r : r + 1])
        same_bits(gradient(alone)[1], drois[r : r + 1])


@pytest.mark.parametrize("mode", ["max", "max_interpolated"])
def test_channel_has_same_maxima_of_nan_alone(mode: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.choice(
        np.array([-np.inf, -1, -0.0, 0.0, 1, np.nan, -np.nan], np.float32),
        (1, 20, 16, 24),
        p=[0.1, *[0.18] * 4, 0.09, 0.09],
    )
    rois = np.array([[1.5, 0.2, 20, 12], [-3, -3, 4, 30], [2, 3, 2.5, 3.5]], np.float32)
    sizes: dict[str, Any] = {"output_height": 3, "output_width": 4, "mode": mode}
    y = ortops.roi_align(x, rois, [0] * 3, **sizes)
    assert 0 < np.isnan(y).sum() < y.size
    for c in range(x.shape[1]):
        same_bits(ortops.roi_align(x[:, c : c + 1], rois, [0] * 3, **sizes), y[:, c : c + 1])


@pytest.mark.parametrize("mode", MODES)
def test_failing_runner_is_memory_error(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def run(_context: int, _task: int, count: int, _batches: int, _data: int) -> int:
        calls.append(count)
        return 1

    runner = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 2, *[ctypes.c_size_t] * 2, ctypes.c_void_p)(run)
    address = ctypes.cast(runner, ctypes.c_void_p).value
    monkeypatch.setattr("ortops.compute.runner_on_all_cpus", lambda: (address, 0))
    x, rois = np.ones((1, 64, 100, 100), np.float32), np.tile(np.array([[0, 0, 90, 90]], np.float32), (30, 1))
    indices, dy = np.zeros(30, np.int64), np.ones((30, 64, 2, 2), np.float32)
    with pytest.raises(MemoryError):
        ortops.roi_align(x, rois, indices, output_height=2, output_width=2, mode=mode)
    for output in ("dx", "drois"):
        with pytest.raises(MemoryError):
            ortops.roi_align_grad(dy, rois, indices, x.shape, x=x, mode=mode, outputs=(output,))
    with pytest.raises(MemoryError):
        ortops.max_roi_pool(x, np.column_stack([indices.astype(np.float32), rois]), pooled_shape=(2, 2))
    with pytest.raises(MemoryError):
        ortops.max_roi_pool_grad(dy, x, np.column_stack([indices.astype(np.float32), rois]))
    assert len(calls) == 5


HUGE = [
    roi
    for far in (1e9, 1e300)
    for roi in (
        [5, 5, far, far],
        [-far, -far, far, far],
        [far, -far, -far, far],
        [-far, 5, 2 * far, 9],
        [5, 5, -far, 8],
    )
]
"""Corners of RoIs, or their centres and sizes."""


def of_huge_rois(operator: Operator) -> list[Sample]:
    """The samples of an operator with RoIs that read all of the map or none of it, and 100 bins in a row."""
    huge = []
    for sample in samples(operator, "double") if "num_rois" in operator.outputs[0].shape else []:
        x, rois, *indices = sample.inputs.values()
        columns = {5: [[0.0, *roi] for roi in HUGE] if not indices else [[*roi, 0.7] for roi in HUGE]}
        rois = np.array(columns.get(rois.shape[1], HUGE))
        wide = {"output_width": 100} if "output_width" in sample.attributes else {"pooled_shape": (2, 100)}
        wide = wide if "C" in operator.outputs[0].shape else {}  # bins that are not tied to channels
        arrays = [np.ones_like(x), rois, *(np.zeros(len(rois), np.int64) for _ in indices)]
        inputs = dict(zip(sample.inputs, arrays, strict=True))
        huge.append(Sample(operator, sample.name, inputs, {**sample.attributes, **wide}))
    return huge


@pytest.mark.parametrize(**every(of_huge_rois))
def test_huge_rois_read_map_alone(sample: Sample) -> None:
    (y,) = sample.function()
    outside = sample.attributes.get("out_of_bounds_input_value", 0)
    assert np.all((y >= min(outside, 0) - 1e-9) & (y <= 1 + 1e-9))
    gradient = BY_NAME[sample.operator.gradient or ""]
    x = next(iter(sample.inputs.values()))
    given = {**sample.inputs, gradient.inputs[0].name: np.ones_like(y), "x_shape": np.array(x.shape)}
    known = {a.name for a in gradient.attributes}
    attributes = {name: value for name, value in sample.attributes.items() if name in known}
    huge = Sample(gradient, "huge", {tensor.name: given[tensor.name] for tensor in gradient.inputs}, attributes)
    assert np.all(np.isfinite(huge.function()[0]))


@pytest.mark.parametrize("mode", MODES)
def test_huge_sampling_ratio_reads_map_alone(mode: str) -> None:
    rng = np.random.default_rng(0)
    x, roi = rng.uniform(1, 2, (1, 1, 8, 8)), [[0.7, 1.3, 6.1, 9.4]]
    many: dict[str, Any] = {"output_height": 2, "output_width": 2, "mode": mode}
    limit = ortops.roi_align(x, roi, [0], sampling_ratio=2**62, **many)
    np.testing.assert_allclose(limit, ortops.roi_align(x, roi, [0], sampling_ratio=3000, **many), rtol=1e-3)


def test_bins_of_far_roi_keep_within_tables() -> None:
    # So far from 0 that one rounding of a coordinate is wider than the map.
    x = np.ones((1, 1, 1000, 1000), np.float32)
    for far in (1e17, 1e21, 1e25):
        rois = np.array([[-far, -far, far, far], [-far, -far, 1000 - far, 1000]], np.float32)
        y = ortops.roi_align(x, rois, [0, 0], output_height=3000, output_width=2)
        assert np.all((y >= 0) & (y <= 1))


def test_kernel_reads_and_writes_every_16_bit_number() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = np.arange(65536, dtype=np.uint16).view(dtype).reshape(1, 1, 256, 256)
        # A point on a pixel is that pixel: reading and writing are all that happens to it.
        columns, rows = np.meshgrid(np.arange(256), np.arange(256))
        corners = np.stack([columns, rows, columns, rows], axis=-1).reshape(-1, 4).astype(dtype)
        sizes: dict[str, Any] = {"output_height": 1, "output_width": 1, "sampling_ratio": 1}
        y = ortops.roi_align(x, corners + dtype(0.5), np.zeros(65536, int), **sizes)
        exact = (corners.astype(float) + 0.5 == (corners + dtype(0.5)).astype(float)).all(axis=1)
        clean = np.isfinite(x.astype(np.float32)).reshape(-1)
        # A neighbour that is not finite spoils the sum even at weight 0.
        near = clean.reshape(256, 256)
        near = near & np.roll(near, -1, 0) & np.roll(near, -1, 1) & np.roll(np.roll(near, -1, 0), -1, 1)
        checked = exact & near.reshape(-1)
        assert checked.sum() > 60_000 if dtype is np.float16 else checked.any()
        np.testing.assert_array_equal(y.reshape(-1)[checked], x.reshape(-1)[checked])


def test_sums_in_16_bits_do_not_stall() -> None:
    # In float16 a running sum of ones stops at 2048.
    dy, rois = np.ones((4096, 1, 1, 1), np.float16), np.tile(np.array([[0.5, 0.5, 1.5, 1.5]], np.float16), (4096, 1))
    dx, _ = ortops.roi_align_grad(dy, rois, np.zeros(4096, int), (1, 1, 3, 3), outputs=("dx",))
    assert dx is not None
    assert dx.astype(float).sum() == 4096
    at_0 = ortops.max_roi_pool_grad(dy, np.ones((1, 1, 2, 2), np.float16), np.zeros((4096, 5), np.float16))
    assert at_0.ravel().tolist() == [4096, 0, 0, 0]
    assert ortops.dml_resample_grad(np.ones(4097, np.float16), [1]).item() == 4096  # 4097 rounded once, to even


@pytest.mark.parametrize(
    "attributes",
    [
        {"input_pixel_offset": 1e38},
        {"output_pixel_offset": -3e38},
        {"spatial_scale_x": 3e38},
        {"minimum_samples_per_output": UINT32_MAX},
        {"minimum_samples_per_output": UINT32_MAX, "reduction_function": "max"},
        {
            "minimum_samples_per_output": UINT32_MAX,
            "align_regions_to_corners": True,
            "interpolation_mode": "nearest_neighbor",
        },
    ],
)
def test_huge_regions_and_attributes_read_map_alone(attributes: dict[str, Any]) -> None:
    x = np.ones((1, 2, 20, 20))
    for roi in ([0, 0, 1e308, 1e308], [-1e308, -1e308, 1e308, 1e308], [5, 5, 5, 5], [1e308, 0, -1e308, 3]):
        y = ortops.dml_roi_align(x, [roi], [0], output_height=7, output_width=300, **attributes)
        assert np.all((y >= 0) & (y <= 1 + 1e-9))
        dx, _ = ortops.dml_roi_align_grad(np.ones_like(y), [roi], [0], x.shape, x=x, **attributes)
        assert dx is not None
        assert np.all(np.isfinite(dx))


@pytest.mark.parametrize("reduction", ["average", "max"])
def test_nearest_pixels_give_regions_no_gradient(reduction: str) -> None:
    x = np.full((1, 2, 5, 6), np.inf, np.float32)
    x[0, 1] = np.nan
    dy, rois = np.full((1, 2, 2, 2), np.nan, np.float32), np.array([[0.3, 0.2, 4.1, 3.7]], np.float32)
    attributes: dict[str, Any] = {"reduction_function": reduction, "interpolation_mode": "nearest_neighbor"}
    dx, drois = ortops.dml_roi_align_grad(dy, rois, [0], x.shape, x=x, **attributes)
    np.testing.assert_array_equal(drois, np.zeros((1, 4)))
    assert dx is not None
    assert np.isnan(dx).any()
    alone = ortops.dml_roi_align_grad(dy, rois, [0], x.shape, x=x, outputs=("drois",), **attributes)
    np.testing.assert_array_equal(alone[1], np.zeros((1, 4)))


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux forgets how large a process has been"
)
def test_sixteen_threads_take_64_mib() -> None:
    # One panel of these maps takes 16 MiB, and there are ten.
    code = """
import pathlib, re
import numpy as np
import ortops
from ortops import compute
compute.available_cpus = lambda: 16
peak = lambda: int(re.search("VmHWM: *([0-9]+) kB", pathlib.Path("/proc/self/status").read_text().replace("\t", " "))[1])
def prepare(channels, size):
    global x, rois, of, dy
    x = np.ones((1, channels, size, size), np.float32)
    rois, of = np.array([[0, 0, size, size]] * 4, np.float32), np.zeros(4, np.int64)
    dy = np.ones((4, channels, 2, 2), np.float32)
forward = lambda: (ortops.roi_align(x, rois, of, output_height=2, output_width=2),)
backward = lambda name: ortops.roi_align_grad(dy, rois, of, x.shape, x=x, outputs=(name,))
for call in (forward, lambda: backward("dx"), lambda: backward("drois")):
    prepare(160, 32)
    call()
    prepare(160, 512)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    result = call()
    print((peak() - before) * 1024 - sum(array.nbytes for array in result if array is not None))
    del result
"""
    assert max(map(int, python(code).split())) <= MAX_TEMPORARY_BYTES


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's threads")
def test_late_threads_change_no_result_and_end() -> None:
    # Beside processes that spin on all processors, the last task has often begun before all threads run.
    code = """
import os, subprocess, sys, time
import numpy as np
import ortops
from ortops import compute
compute.available_cpus = lambda: 16
x = np.random.default_rng(0).standard_normal((1, 256, 64, 64), np.float32)
rois, of = np.array([[0, 0, 64, 64]] * 20, np.float32), np.zeros(20, np.int64)
call = lambda: ortops.roi_align(x, rois, of, output_height=7, output_width=7).tobytes()
threads = lambda: len(os.listdir("/proc/self/task"))
expected, before = call(), threads()
spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
try:
    print({call() for _ in range(100)} == {expected})
finally:
    for one in spinning:
        one.kill()
        one.wait()
end = time.monotonic() + 60
while threads() > before and time.monotonic() < end:
    time.sleep(0.01)
print(threads() <= before)
"""
    assert python(code).split() == ["True", "True"]


MANY = [
    # 49 bins of 12 to 16 pixels of 12 bytes or more each: 16 MiB are full after some 2000 RoIs.
    *(("RoIAlignRotated", kind, {"output_height": 7, "output_width": 7, "sampling_ratio": 2}, 3000)
      for kind in ("float16", "float", "double")),
    ("MaxRoiPool_22", "float", {"pooled_shape": (60, 1)}, 6000),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "attributes", "count"), MANY)
def test_rois_beyond_room_of_tables_give_same_bits(
    name: str, kind: str, attributes: dict[str, Any], count: int
) -> None:
    forward, many = BY_NAME[name], np.arange(count) % 5
    few = Sample(forward, "few", samples(forward, kind)[0].inputs, attributes)
    (y,) = few.function()
    same_bits(repeated(few, many).function()[0], y[many])
    gradient = BY_NAME[forward.gradient or ""]
    dy = np.random.default_rng(3).integers(-4, 5, y.shape).astype(y.dtype)
    given = {**few.inputs, gradient.inputs[0].name: dy, "x_shape": np.array(few.inputs["X"].shape)}
    few = Sample(gradient, "few", {tensor.name: given[tensor.name] for tensor in gradient.inputs}, {})
    (dx, *drois), (expected, *rows) = repeated(few, many).function(), few.function()
    rounding = {2: 2.0**-7, 4: 1e-4, 8: 1e-9}[y.dtype.itemsize]
    expected = count / 5 * expected.astype(float)
    np.testing.assert_allclose(dx.astype(float), expected, rtol=rounding, atol=rounding * np.abs(expected).max())
    for many_rows, row in zip(drois, rows, strict=True):
        same_bits(many_rows, row[many])


def repeated(sample: Sample, many: Array) -> Sample:
    """The call with RoIs several times."""
    inputs = {
        tensor.name: sample.inputs[tensor.name][many] if tensor.shape[0] == "num_rois" else sample.inputs[tensor.name]
        for tensor in sample.operator.inputs
    }
    return Sample(sample.operator, "many", inputs, sample.attributes)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_bins_beyond_room_of_tables_give_result_of_upright_roi(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 9, 50, 60)).astype(dtype)
    rois, boxes = np.array([[30, 25, 56, 44, 0]], dtype), np.array([[2, 3, 58, 47]], dtype)
    sizes: dict[str, Any] = {"output_height": 501, "output_width": 303, "sampling_ratio": 2}
    y, expected = ortops.roi_align_rotated(x, rois, [0], **sizes), ortops.roi_align(x, boxes, [0], **sizes)
    # Roundings of the type, and of coordinates up to 60 pixels in float64.
    error = max(16 * float(np.finfo(dtype).eps), 1e-12)
    np.testing.assert_allclose(y.astype(float), expected.astype(float), atol=error)
    dy = rng.standard_normal((1, 9, 501, 303)).astype(dtype)
    dx, drois = ortops.roi_align_rotated_grad(dy, rois, [0], x.shape, x, sampling_ratio=2)
    expected_dx, by_corners = ortops.roi_align_grad(dy, boxes, [0], x.shape, x=x, sampling_ratio=2)
    assert dx is not None
    assert expected_dx is not None
    assert drois is not None
    assert by_corners is not None
    np.testing.assert_allclose(dx.astype(float), expected_dx.astype(float), rtol=100 * error, atol=100 * error)
    both = by_corners.astype(float)[0, :2] + by_corners.astype(float)[0, 2:]
    np.testing.assert_allclose(drois.astype(float)[0, :2], both, rtol=100 * error, atol=2e4 * error)
