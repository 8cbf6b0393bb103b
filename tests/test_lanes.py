"""Vectors of LANES float64s, from elements of each type."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest

from ortops.jit import LANES
from ortops.jit.kernel import Kernel
from ortops.jit.source import FunctionName
from problems import DTYPES


@pytest.fixture(autouse=True)
def _kernels_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels be in `lane_kernels`, which code on disk does not depend on."""
    monkeypatch.setitem(sys.modules, "ortops.kernels.lane_kernels", importlib.import_module("lane_kernels"))
    monkeypatch.setattr("ortops.jit.kernel.disk.find", lambda *_: None)
    monkeypatch.setattr("ortops.jit.kernel.disk.save", lambda *_: None)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_are_rounded_to_float64_alone(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal(4 * LANES).astype(dtype) for _ in range(2))
    first[:3], second[:3] = [np.inf, np.nan, 1e-4], [-np.inf, 1.0, 1e4]
    target = np.empty(first.size)
    assert Kernel(FunctionName("kernels.lane_kernels", "sums"))(first, second, target, first.size) == 0
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(target, first.astype(np.float64) + second.astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_argmax_is_numpys(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(-2, 3, (9, LANES)).astype(dtype)  # many of them tie
    values[rng.random(values.shape) < 0.05] = np.nan
    values[rng.random(values.shape) < 0.2] = -np.inf
    values[:, 0] = -np.inf
    places = np.empty(LANES)
    assert Kernel(FunctionName("kernels.lane_kernels", "argmax"))(values, places, len(values)) == 0
    np.testing.assert_array_equal(places, values.astype(np.float64).argmax(axis=0))
