# SPDX-License-Identifier: MIT
"""MSDeformAttn: its kernels where maps are packed and where they are read in place, which random cases are too small for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ortops
from ortops import compute
from ortops.operators import BY_NAME
from ortops.reference import evaluate

SHAPES = np.array([[12, 17], [5, 9]])


def inputs(queries: int, channels: int, dtype: Any = np.float32, points: int = 4) -> list[Any]:
    """The inputs of a call, with points off the map, NaN and infinite ones, and some pixels and weights of both kinds."""
    rng, pixels = np.random.default_rng(3), int(SHAPES.prod(1).sum())
    value, weights = rng.normal(size=(2, pixels, 3, channels)), rng.uniform(size=(2, queries, 3, 2, points))
    locations = rng.uniform(-0.2, 1.2, (*weights.shape, 2))
    locations[0, 0, 0, 0, 0], locations[0, 1, 1, 0, 0, 1] = np.nan, np.inf
    value[1, 7, 2], value[0, 30, 1, 0], weights[1, 1, 0, 1, 2] = np.inf, np.nan, np.inf
    return [value.astype(dtype), SHAPES, None, locations.astype(dtype), weights.astype(dtype)]


def on_threads(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "available_cpus", lambda: count)


@pytest.mark.parametrize("channels", [16, 32, 48, 80, 144])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_query_has_the_same_bits_with_and_without_a_panel(channels: int, dtype: Any) -> None:
    value, shapes, starts, locations, weights = inputs(200, channels, dtype)
    dy = np.random.default_rng(4).normal(size=(2, 200, 3 * channels)).astype(dtype)
    y = ortops.ms_deform_attn(value, shapes, starts, locations, weights)  # 1600 points, 249 pixels
    of_all: Any = ortops.ms_deform_attn_grad(dy, value, shapes, starts, locations, weights)
    few = slice(0, 3)
    of_few = locations[:, few], weights[:, few]
    np.testing.assert_array_equal(ortops.ms_deform_attn(value, shapes, starts, *of_few), y[:, few])
    wanted: Any = ("dlocations", "dweights")
    of_some: Any = ortops.ms_deform_attn_grad(dy[:, few], value, shapes, starts, *of_few, outputs=wanted)
    for some, all_ in zip(of_some[1:], of_all[1:], strict=True):
        np.testing.assert_array_equal(some, all_[:, few])


@pytest.mark.parametrize("channels", [5, 32, 70])
def test_bits_do_not_depend_on_threads(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given, results = inputs(2000, channels), []
    dy = np.random.default_rng(4).normal(size=(2, 2000, 3 * channels)).astype(np.float32)
    for threads in (1, 2, 5):
        on_threads(threads, monkeypatch)
        results.append([ortops.ms_deform_attn(*given), *ortops.ms_deform_attn_grad(dy, *given)])
    for other in results[1:]:
        for array, expected in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("queries", "channels", "points"), [(3, 64, 40), (60, 33, 3), (60, 64, 17)])
def test_kernels_agree_with_the_reference(queries: int, channels: int, points: int, dtype: Any) -> None:
    given = inputs(queries, channels, dtype, points)
    dy = np.random.default_rng(4).normal(size=(2, queries, 3 * channels)).astype(dtype)
    expected: Any = evaluate(BY_NAME["MSDeformAttn"], given, {}) + evaluate(
        BY_NAME["MSDeformAttnGrad"], [dy, *given], {}
    )
    results: Any = [ortops.ms_deform_attn(*given), *ortops.ms_deform_attn_grad(dy, *given)]
    precision = 1e-4 if dtype == np.float32 else 1e-12
    for array, right in zip(results, expected, strict=True):
        np.testing.assert_allclose(array, right, rtol=precision, atol=precision)
