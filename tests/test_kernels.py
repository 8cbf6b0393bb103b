"""All kernels against the reference; the bits of those of RoiAlign in any company, and the memory that they take."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ortops
from conformance import backends
from conformance.fuzz.check import Failure, check
from conformance.fuzz.generate import generate
from conformance.run import CaseRunner, ask
from ortops.jit.kernel import loaded
from ortops.operators.dml_roi_align import UINT32_MAX
from problems import (
    COORDINATES,
    MODES,
    SHAPES_OF_ROIS,
    Array,
    Problem,
    make_problem,
    problems,
)
from processes import python

RANDOM_CASES = 20
"""The number of random cases of each operator. `python -m conformance fuzz --backend ortops` runs any number."""

# The first example compiles the kernels.
SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


TWO_DTYPES = [np.dtype(np.float16), np.dtype(np.float32)]
"""A type whose values are computed as others and one whose are not; `test_bits` has all types."""

LARGE = [*(("avg", dtype) for dtype in TWO_DTYPES), *((mode, TWO_DTYPES[1]) for mode in MODES[1:])]
"""Modes and types for large arrays, which take long: every mode, and both types once."""


def forward(problem: Problem) -> Array:
    return ortops.roi_align(problem.x, problem.rois, problem.batch_indices, **problem.attributes)


def gradient(problem: Problem) -> tuple[Array, Array]:
    dx, drois = ortops.roi_align_grad(
        problem.dy, problem.rois, problem.batch_indices, problem.x.shape, x=problem.x, **problem.gradient_attributes
    )
    assert dx is not None
    assert drois is not None
    return dx, drois


def gradient_of_map(problem: Problem) -> Array:
    dx, _ = ortops.roi_align_grad(
        problem.dy,
        problem.rois,
        problem.batch_indices,
        problem.x.shape,
        x=problem.x,
        outputs=("dx",),
        **problem.gradient_attributes,
    )
    assert dx is not None
    return dx


@pytest.mark.parametrize("name", {one.function: one.name for one in ortops.OPERATORS}.values())
def test_random_cases_have_the_answers_of_the_reference(name: str) -> None:
    runner = CaseRunner(functools.partial(ask, backends.load("ortops")))
    found = [check(generate(1, number, (name,)), runner) for number in range(RANDOM_CASES)]
    assert [one.message for one in found if isinstance(one, Failure)] == []
    assert found.count("passed") >= 0.8 * RANDOM_CASES  # of the others, rounding decides the answer


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
@settings(SETTINGS, max_examples=40)
def test_a_channel_has_the_same_bits_alone_and_among_others(problem: Problem, data: st.DataObject) -> None:
    channel = data.draw(st.integers(0, problem.x.shape[1] - 1))
    alone = part(problem, slice(channel, channel + 1))
    same_bits(forward(alone), forward(problem)[:, channel : channel + 1])
    dx, _ = gradient(problem)
    dx_alone, drois_alone = gradient(alone)
    same_bits(dx_alone, dx[:, channel : channel + 1])
    # drois is a sum over channels: the others get no gradient.
    only = np.zeros_like(problem.dy)
    only[:, channel] = problem.dy[:, channel]
    same_bits(drois_alone, gradient(replace(problem, given_dy=only))[1])


@given(large_problems())
@settings(SETTINGS, max_examples=40)
def test_a_roi_has_the_same_bits_alone_and_among_others(problem: Problem) -> None:
    y, (_, drois) = forward(problem), gradient(problem)
    for r in range(0, len(problem.rois), 7):
        alone = part(problem, slice(None), slice(r, r + 1))
        same_bits(forward(alone), y[r : r + 1])
        same_bits(gradient(alone)[1], drois[r : r + 1])


@pytest.mark.parametrize("mode", MODES)
def test_tables_that_a_failing_runner_leaves_unwritten_are_not_used(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def run(_context: int, _task: int, count: int, _batches: int, _data: int) -> int:
        calls.append(count)
        return 1

    runner = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 2, *[ctypes.c_size_t] * 2, ctypes.c_void_p)(run)
    address = ctypes.cast(runner, ctypes.c_void_p).value
    monkeypatch.setattr("ortops.functional.call.runner_on_all_cpus", lambda: (address, 0))
    x, rois = np.ones((1, 64, 100, 100), np.float32), np.tile(np.array([[0, 0, 90, 90]], np.float32), (30, 1))
    of, dy = np.zeros(30, np.int64), np.ones((30, 64, 2, 2), np.float32)
    with pytest.raises(MemoryError):
        ortops.roi_align(x, rois, of, output_height=2, output_width=2, mode=mode)
    for output in ("dx", "drois"):
        with pytest.raises(MemoryError):
            ortops.roi_align_grad(dy, rois, of, x.shape, x=x, mode=mode, outputs=(output,))
    with pytest.raises(MemoryError):
        ortops.max_roi_pool(x, np.column_stack([of.astype(np.float32), rois]), pooled_shape=(2, 2))
    with pytest.raises(MemoryError):
        ortops.max_roi_pool_grad(dy, x, np.column_stack([of.astype(np.float32), rois]))
    assert len(calls) == 5


@pytest.mark.parametrize(("mode", "dtype"), LARGE, ids=str)
def test_a_large_output_has_the_bits_of_its_parts(dtype: Any, mode: Any) -> None:
    # From 16 MiB on stores are non-temporal; with 15 bins of 33 channels few RoIs are aligned to a cache line.
    attributes: dict[str, Any] = {"output_height": 5, "output_width": 3, "sampling_ratio": 1, "mode": mode}
    attributes |= {"coordinate_transformation_mode": "half_pixel", "spatial_scale": 1.0}
    count = (17 << 20) // (33 * 15 * dtype.itemsize)
    problem = make_problem(1, dtype, attributes, ("inside",) * 50, (1, 33, 8, 9))
    many = np.arange(count) % 50
    problem = replace(problem, rois=problem.rois[many], batch_indices=problem.batch_indices[many])
    y = forward(problem)
    same_bits(y[:50], forward(part(problem, slice(None), slice(50))))
    same_bits(y, y[:50][many])


@pytest.mark.parametrize(("mode", "dtype"), LARGE, ids=str)
def test_a_large_dx_has_the_bits_of_its_channels(dtype: Any, mode: str) -> None:
    # More than 16 MiB, so that stores are non-temporal; panels are summed up in bands of rows, single channels in one piece.
    attributes: dict[str, Any] = {"output_height": 3, "output_width": 2, "sampling_ratio": 0, "mode": mode}
    attributes |= {"coordinate_transformation_mode": "half_pixel", "spatial_scale": 1.0}
    kinds = ("inside", "across", "mirrored", "huge", "point", "flat") * 8
    height = (17 << 20) // (2 * 33 * 251 * dtype.itemsize)
    problem = make_problem(3, dtype, attributes, kinds, (2, 33, height, 251))
    dx = gradient_of_map(problem)
    for channel in (0, 15, 32):
        same_bits(gradient_of_map(part(problem, slice(channel, channel + 1))), dx[:, channel : channel + 1])


@pytest.mark.parametrize("dtype", TWO_DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_a_large_map_has_the_averages_and_maxima_of_its_channels(dtype: Any, mode: str) -> None:
    # Panels of the map slide down it from RoI to RoI, and wrap around; single channels have no panels.
    attributes: dict[str, Any] = {"output_height": 3, "output_width": 2, "sampling_ratio": 0, "mode": mode}
    attributes |= {"coordinate_transformation_mode": "half_pixel", "spatial_scale": 1.0}
    problem = make_problem(5, dtype, attributes, ("inside",) * 150, (2, 17, 310, 190))
    rng = np.random.default_rng(6)
    near = rng.uniform(-20, (170, 300), (150, 2))
    rois = np.concatenate([near, near + rng.uniform(0, (60, 90), (150, 2))], axis=1)
    rois[::5] = rois[::5][:, [2, 3, 0, 1]]
    rois[::31] += 1000
    problem = replace(problem, rois=rois.astype(dtype))
    y = forward(problem)
    for channel in (0, 16):
        same_bits(forward(part(problem, slice(channel, channel + 1))), y[:, channel : channel + 1])


@pytest.mark.parametrize("dtype", TWO_DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [0, 3, 20])
def test_rows_of_dx_that_no_roi_reads_are_0(dtype: Any, mode: str, count: int) -> None:
    attributes: dict[str, Any] = {"output_height": 2, "output_width": 2, "sampling_ratio": 1, "mode": mode}
    attributes |= {"coordinate_transformation_mode": "half_pixel", "spatial_scale": 1.0}
    problem = make_problem(4, dtype, attributes, ("inside",) * count, (2, 17, 200, 190))
    problem = replace(problem, rois=problem.rois / np.array([1, 8, 1, 8], dtype) + np.array([0, 90, 0, 90], dtype))
    dx = gradient_of_map(problem)
    same_bits(dx[:, :, :89], np.zeros_like(dx[:, :, :89]))
    same_bits(dx[:, :, 117:], np.zeros_like(dx[:, :, 117:]))
    if mode != "max":  # which passes on a corner's share
        np.testing.assert_allclose(dx.sum(dtype=np.float64), problem.dy.sum(dtype=np.float64), rtol=0.01, atol=0.1)
    for channel in (0, 16):
        same_bits(gradient_of_map(part(problem, slice(channel, channel + 1))), dx[:, channel : channel + 1])


@pytest.mark.parametrize("dtype", TWO_DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_gradients_have_the_same_bits_whether_windows_are_packed(dtype: Any, mode: Any) -> None:
    # Those of dense RoIs are; those with few samples for their size are not.
    attributes: dict[str, Any] = {"output_height": 4, "output_width": 6, "sampling_ratio": 1, "mode": mode}
    attributes |= {"coordinate_transformation_mode": "half_pixel", "spatial_scale": 1.0}
    problem = make_problem(8, dtype, attributes, ("inside",) * 7, (1, 19, 230, 240))
    boxes = [[3, 4, 9, 11], [200, 90, 216, 109], [230, 5, 250, 30], [1, 1, 235, 225], [40, 8, 90, 90], [7, 7, 7, 7]]
    problem = replace(problem, rois=np.array([*boxes, [-50, -50, -9, -9]], dtype))
    dx, drois = gradient(problem)
    total = np.zeros(drois.shape)
    for channel in range(19):
        alone = gradient(part(problem, slice(channel, channel + 1)))
        same_bits(alone[0], dx[:, channel : channel + 1])
        total += alone[1]
    # The sum over channels is rounded once.
    slack = {8: 1e-12, 4: 1e-5, 2: 0.1}[dtype.itemsize]
    np.testing.assert_allclose(drois.astype(np.float64), total, rtol=slack, atol=slack * np.abs(total).max())


@pytest.mark.parametrize("mode", MODES)
def test_read_only_arrays_and_views_need_no_code_of_their_own(mode: Any) -> None:
    x, rois = np.ones((1, 4, 6, 6), np.float32), np.array([[0, 0, 4, 4]], np.float32)
    ortops.roi_align(x, rois, [0], output_height=1, output_width=1, mode=mode)
    before = len(loaded)
    for array in (np.frombuffer(x.tobytes(), np.float32).reshape(x.shape), np.moveaxis(x, 1, 2), x[:, ::2]):
        for bins in (1, 14):
            ortops.roi_align(array, rois.repeat(bins, 0), [0] * bins, output_height=bins, output_width=bins, mode=mode)
    assert len(loaded) == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("reach", [1e9, 1e30, 1e300])
def test_a_huge_roi_takes_no_more_than_the_map(mode: str, coordinates: str, reach: float) -> None:
    x = np.ones((1, 2, 20, 20))
    rois = np.array([[0.0, 0.0, reach, reach], [-reach, -reach, reach, reach], [reach, -reach, -reach, reach]])
    indices = np.zeros(3, np.int64)
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    y = ortops.roi_align(x, rois, indices, output_height=2, output_width=1000, **attributes)
    assert np.all((y >= 0) & (y <= 1))
    dx, drois = ortops.roi_align_grad(np.ones_like(y), rois, indices, x.shape, x=x, **attributes)
    assert dx is not None
    assert drois is not None
    assert np.all(np.isfinite(dx))


@pytest.mark.parametrize("mode", MODES)
def test_a_huge_sampling_ratio_takes_no_more_than_the_map(mode: str) -> None:
    rng = np.random.default_rng(0)
    x, roi = rng.uniform(1, 2, (1, 1, 8, 8)), [[0.7, 1.3, 6.1, 9.4]]
    many: dict[str, Any] = {"output_height": 2, "output_width": 2, "mode": mode}
    limit = ortops.roi_align(x, roi, [0], sampling_ratio=2**62, **many)
    np.testing.assert_allclose(limit, ortops.roi_align(x, roi, [0], sampling_ratio=3000, **many), rtol=1e-3)


def test_bins_of_a_roi_that_starts_far_away_keep_within_their_tables() -> None:
    # So far from 0 that one rounding of a coordinate is wider than the map.
    x = np.ones((1, 1, 1000, 1000), np.float32)
    for far in (1e17, 1e21, 1e25):
        rois = np.array([[-far, -far, far, far], [-far, -far, 1000 - far, 1000]], np.float32)
        y = ortops.roi_align(x, rois, [0, 0], output_height=3000, output_width=2)
        assert np.all((y >= 0) & (y <= 1))


def test_every_16_bit_word_is_read_and_written_as_numpy_does() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = np.arange(65536, dtype=np.uint16).view(dtype).reshape(1, 1, 256, 256)
        # A point on a pixel is that pixel: reading and writing are all that happens to it.
        columns, rows = np.meshgrid(np.arange(256), np.arange(256))
        corners = np.stack([columns, rows, columns, rows], axis=-1).reshape(-1, 4).astype(dtype)
        y = ortops.roi_align(
            x, corners + dtype(0.5), np.zeros(65536, int), output_height=1, output_width=1, sampling_ratio=1
        )
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


def test_samples_off_the_map_have_their_value_and_no_rounding_reaches_the_others() -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    sizes: dict[str, Any] = {"output_height": 1, "output_width": 3}
    for value in (1e30, np.inf, np.nan):
        y = ortops.dml_roi_align(x, [[0.3, 0.3, 12.3, 3.1]], [0], out_of_bounds_input_value=value, **sizes)
        assert y[0, 0, 0, 0] == pytest.approx(1, abs=1e-6)
        np.testing.assert_array_equal(y[0, 0, 0, 2], np.float32(value))


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
def test_huge_regions_offsets_scales_and_counts_take_no_more_than_the_map(attributes: dict[str, Any]) -> None:
    x = np.ones((1, 2, 20, 20))
    for roi in ([0, 0, 1e308, 1e308], [-1e308, -1e308, 1e308, 1e308], [5, 5, 5, 5], [1e308, 0, -1e308, 3]):
        y = ortops.dml_roi_align(x, [roi], [0], output_height=7, output_width=300, **attributes)
        assert np.all((y >= 0) & (y <= 1 + 1e-9))
        dx, _ = ortops.dml_roi_align_grad(np.ones_like(y), [roi], [0], x.shape, x=x, **attributes)
        assert dx is not None
        assert np.all(np.isfinite(dx))


@pytest.mark.parametrize("reduction", ["average", "max"])
def test_nearest_pixels_that_are_no_numbers_give_the_regions_no_gradient(reduction: str) -> None:
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
def test_sixteen_threads_take_no_more_than_64_mib_to_work_in() -> None:
    # One panel of these maps takes 16 MiB, and there are ten.
    code = """
import pathlib, re
import numpy as np
import ortops.functional.call, ortops
from ortops.jit.runners import thread_runner
ortops.functional.call.runner_on_all_cpus = lambda: thread_runner(16)
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
    assert max(map(int, python(code).split())) <= 64 << 20
