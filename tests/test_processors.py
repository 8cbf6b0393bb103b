# SPDX-License-Identifier: MIT
"""Instructions that kernels need: fused multiply-add, and conversions of float16."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from llvmlite import binding as llvm

import onnx_models
import ortops
from in_process import c_function
from ortops.compiler import machine_code
from ortops.compiler.compile import compiled
from ortops.compiler.scalar import load, store
from ortops.compiler.simd import load_lanes, store_lanes
from ortops.memory import data_pointer
from ortops.native.elements import LANES, Stored, Values
from processes import python

Array = np.ndarray[Any, Any]

HALVES = np.arange(65536, dtype=np.uint16).view(np.float16)


def results(channels: int, dtype: type[np.floating[Any]]) -> tuple[Array, Array]:
    """y and dX of float16 inputs: subnormal in one image, and so large in another that its dX overflows."""
    rng = np.random.default_rng(channels)
    scale, of = np.array([2.0**-17, 1.0, 30000.0]), np.arange(60) % 3
    x = rng.uniform(-1, 2, (3, channels, 20, 23)) * scale[:, None, None, None]
    dy = rng.uniform(-1, 2, (60, channels, 3, 2)) * scale[of, None, None, None]
    corners = rng.uniform(6, 9, (60, 2))
    rois = np.concatenate([corners, corners + rng.uniform(0.5, 5, (60, 2))], axis=1)
    x, dy, rois = (array.astype(np.float16).astype(dtype) for array in (x, dy, rois))
    y = ortops.roi_align(x, rois, of, output_height=3, output_width=2)
    dx, _ = ortops.roi_align_grad(dy, rois, of, x.shape, outputs=["dx"])
    assert dx is not None
    return y, dx


def check_results() -> None:
    """Check that results in float16 are those in float32, rounded once."""
    for channels in (1, LANES + 4):
        y, dx = halves = results(channels, np.float16)
        for half, single in zip(halves, results(channels, np.float32), strict=True):
            with np.errstate(over="ignore"):
                same(half, single.astype(np.float16))
        for half in halves:
            assert np.any((half != 0) & (np.abs(half) < np.finfo(np.float16).tiny))
        assert np.isfinite(y).all()
        assert np.isinf(dx).any()


def singles() -> Array:
    """float32 values: all finite float16 values, the midpoints between them, their neighbours, and random bits."""
    finite = np.sort(HALVES[np.isfinite(HALVES)].astype(np.float32))
    finite = np.concatenate([[-65536], finite, [65536]], dtype=np.float32)
    edges = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2])
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 20, dtype=np.uint32)
    others = [np.inf, -np.inf, np.nan, -np.nan, 3e38, 1e-40, -1e-40, 2.0**-149]
    near = [np.nextafter(edges, np.float32(to)) for to in (-np.inf, np.inf)]
    return np.concatenate([edges, *near, bits.view(np.float32), np.array(others, np.float32)])


# C functions that convert arrays to the compute type and back, one element or LANES at a time.


@compiled
def widen(source: Stored, target: Values, count: int) -> int:
    for i in range(count):
        store(target, i, load(source, i))
    return 0


@compiled
def widen_lanes(source: Stored, target: Values, count: int) -> int:
    for i in range(0, count, LANES):
        store_lanes(target, i, load_lanes(source, i))
    return 0


@compiled
def narrow(source: Values, target: Stored, count: int) -> int:
    for i in range(count):
        store(target, i, load(source, i))
    return 0


@compiled
def narrow_lanes(source: Values, target: Stored, count: int) -> int:
    for i in range(0, count, LANES):
        store_lanes(target, i, load_lanes(source, i))
    return 0


def check_conversions(singles: Array, rounded: Array, widened: Array) -> None:
    convert = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    to_halves = narrow, narrow_lanes
    from_halves = widen, widen_lanes
    for source, expected, functions in ((singles, rounded, to_halves), (HALVES, widened, from_halves)):
        padded = np.resize(source, -(-source.size // LANES) * LANES)
        for function in functions:
            target = np.empty(padded.size, expected.dtype)
            run = convert(c_function(function, "float16"))
            assert run(data_pointer(padded), data_pointer(target), padded.size) == 0
            same(target[: source.size], expected)


def same(actual: Array, expected: Array) -> None:
    """Check for the same bits; of NaN, only the sign counts."""
    is_nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), is_nan)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))
    words = f"u{expected.itemsize}"
    np.testing.assert_array_equal(actual[~is_nan].view(words), expected[~is_nan].view(words))


def take_subnormals_for_zero() -> None:
    """Have this thread flush subnormals to 0, as a session's option does."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    onnxruntime.InferenceSession(onnx_models.roi_align(16, standard=True).SerializeToString(), options)
    assert np.array([1e-40], np.float32) * 1 == 0


def check_all() -> None:
    numbers = singles()
    with np.errstate(over="ignore"):
        given = (numbers, numbers.astype(np.float16), HALVES.astype(np.float32))
    check_conversions(*given)
    check_results()
    take_subnormals_for_zero()
    check_conversions(*given)
    check_results()


def test_conversions_of_float16_are_those_of_numpy() -> None:
    # In a process of its own: ONNX Runtime's option for subnormals counts in the first session alone, and for good.
    python("import test_processors; test_processors.check_all()", cwd=Path(__file__).parent)


@pytest.mark.parametrize(
    ("triple", "name", "features", "fma", "float16"),
    [
        ("x86_64-unknown-linux-gnu", "generic", "", False, False),
        ("x86_64-unknown-linux-gnu", "haswell", "", True, True),
        ("x86_64-unknown-linux-gnu", "generic", "+fma", True, False),
        ("x86_64-unknown-linux-gnu", "generic", "-avx,+f16c,+fma", True, True),
        ("x86_64-unknown-linux-gnu", "generic", "+f16c,+fma,-avx", False, False),
        ("aarch64-unknown-linux-gnu", "generic", "+neon", True, True),
        ("armv7-unknown-linux-gnueabihf", "generic", "", False, False),
    ],
)
def test_llvm_tells_instructions_of_processor(triple: str, name: str, features: str, fma: bool, float16: bool) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=name, features=features)
    assert (machine_code.has_fma(machine), machine_code.has_float16(machine)) == (fma, float16)
