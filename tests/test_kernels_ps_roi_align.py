# SPDX-License-Identifier: MIT
"""PSRoIAlign: its kernels against RoiAlign's bits, in what the cases of the suite are too small for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ortops
from library_structs import limit_parts
from ortops.compute import Bound, runner_on
from ortops.operators import BY_NAME
from problems import Array, Problem, make_problem

FORWARD, GRADIENT = BY_NAME["PSRoIAlign"], BY_NAME["PSRoIAlignGrad"]
KINDS = ("inside", "across", "mirrored", "flat", "outside")


def in_bins(problem: Problem) -> Problem:
    """The problem of RoiAlign with as many channels for each bin, and without the mode that PSRoIAlign does not have."""
    attributes = {name: value for name, value in problem.attributes.items() if name != "mode"}
    n, channels, height, width = problem.x.shape
    bins = attributes["output_height"] * attributes["output_width"]
    # Distinct values that all types hold exactly, as `make_problem` has them.
    shape = n, channels * bins, height, width
    x = (np.random.default_rng(1).permutation(np.prod(shape)).reshape(shape) % 251 - 125) / 64
    rng = np.random.default_rng(2)
    dy = rng.uniform(-1, 1, (len(problem.rois), channels, attributes["output_height"], attributes["output_width"]))
    return replace(problem, x=x.astype(problem.x.dtype), attributes=attributes, given_dy=dy.astype(problem.x.dtype))


def large(dtype: Any, size: tuple[int, ...], bins: tuple[int, int], rois: int = 30, ratio: int = 2) -> Problem:
    """Work for several threads; the size is of the map with the channels of one bin."""
    attributes = {"output_height": bins[0], "output_width": bins[1], "sampling_ratio": ratio, "spatial_scale": 0.5}
    return in_bins(make_problem(5, np.dtype(dtype), attributes, (KINDS * rois)[:rois], size))


def forward(problem: Problem) -> Array:
    return ortops.ps_roi_align(problem.x, problem.rois, problem.batch_indices, **problem.attributes)


def gradients(problem: Problem) -> tuple[Array, Array]:
    dx, drois = ortops.ps_roi_align_grad(
        problem.dy, problem.rois, problem.batch_indices, problem.x.shape, x=problem.x, **problem.gradient_attributes
    )
    assert dx is not None
    assert drois is not None
    return dx, drois


def of_all_bins(problem: Problem) -> tuple[Array, Array]:
    """The bins of RoiAlign that read their own channels, and the dX of RoiAlign for a dY that is 0 in all others."""
    indices, attributes = problem.batch_indices, problem.gradient_attributes
    y = ortops.roi_align(problem.x, problem.rois, indices, **problem.attributes)
    bins, shape = np.arange(y.shape[2] * y.shape[3]), problem.dy.shape[:2]
    dy = np.zeros((*shape, len(bins), len(bins)), y.dtype)
    dy[:, :, bins, bins] = problem.dy.reshape(*shape, -1)
    dx, _ = ortops.roi_align_grad(
        dy.reshape(y.shape), problem.rois, indices, problem.x.shape, outputs=("dx",), **attributes
    )
    assert dx is not None
    return y.reshape(dy.shape)[:, :, bins, bins].reshape(problem.dy.shape), dx


LARGE = {
    "whole maps": ((1, 20, 40, 50), (7, 7), 60),
    "windows": ((2, 33, 60, 70), (3, 2), 7),
    "planes": ((2, 1, 90, 200), (2, 2), 40),
    "bands, and non-temporal stores of dX": ((1, 16, 200, 304), (2, 3), 60),
    "tables of each worker": ((1, 2, 1, 1_000_000), (1, 2), 3),
}


def named(name: str, dtype: Any = np.float32) -> Problem:
    """The problem of LARGE with this name."""
    problem = large(dtype, *LARGE[name])
    if name != "tables of each worker":
        return problem
    rois = np.array([[0, 0, 15625, 0.01], [15000, 0, 100, 0.01], [1, 0, 15600, 0.01]])  # in units of 64 pixels
    return replace(problem, rois=rois.astype(dtype), attributes=problem.attributes | {"spatial_scale": 64.0})


@pytest.mark.parametrize("dtype", [np.float16, np.float32], ids=["float16", "float32"])
@pytest.mark.parametrize("name", LARGE)
def test_bins_have_bits_of_roi_align_on_any_number_of_threads(name: str, dtype: Any) -> None:
    problem = named(name, dtype)
    y, dx = of_all_bins(problem)
    x, rois, indices = problem.x, problem.rois, problem.batch_indices
    calls = (
        (FORWARD, problem.attributes, [x, rois, indices]),
        (GRADIENT, problem.gradient_attributes, [problem.dy, rois, indices, np.array(x.shape), x]),
    )
    drois = set()
    for threads in (1, 2, 16):
        outputs: list[Array] = []

        def allocate(_: int, shape: tuple[int, ...], outputs: list[Array] = outputs) -> Array:
            outputs.append(np.full(shape, np.nan, dtype))
            return outputs[-1]

        for operator, attributes, inputs in calls:
            Bound(operator, operator.check_attributes(attributes))(inputs, allocate, runner_on(threads))
        np.testing.assert_array_equal(outputs[0], y)
        np.testing.assert_array_equal(outputs[1], dx)
        drois.add(outputs[2].tobytes())
    assert len(drois) == 1


def test_parts_of_rois_change_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = large(np.float32, (1, 9, 20, 20), (3, 3), 50)
    y, (dx, drois) = forward(problem), gradients(problem)
    limit_parts(monkeypatch, (FORWARD.name, GRADIENT.name), 1000)
    np.testing.assert_array_equal(forward(problem), y)
    in_parts = gradients(problem)
    np.testing.assert_allclose(in_parts[0], dx, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(in_parts[1], drois)


@pytest.mark.parametrize("channels", [1, 9])
def test_pixel_that_is_no_number_stays_in_its_bin(channels: int) -> None:
    problem = large(np.float32, (1, channels, 8, 8), (2, 3), 5)
    problem.x[0, 4] = np.nan
    problem.x[0, 6 * (channels - 1)] = np.inf
    special = ~np.isfinite(forward(problem))
    assert special[:, 0, 1, 1].any()
    assert special[:, channels - 1, 0, 0].any()
    special[:, 0, 1, 1] = special[:, channels - 1, 0, 0] = False
    assert not special.any()


def test_bins_without_channels_take_no_memory() -> None:
    x, rois, indices = np.zeros((1, 0, 8, 8), np.float32), np.ones((2, 4), np.float32), np.zeros(2, np.int64)
    many = 10**6
    y = ortops.ps_roi_align(x, rois, indices, output_height=many, output_width=many)
    assert y.shape == (2, 0, many, many)
    dx, drois = ortops.ps_roi_align_grad(y, rois, indices, x.shape, x=x)
    assert dx is not None
    assert dx.shape == x.shape
    np.testing.assert_array_equal(drois, np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"rois\[0\] = .*: must be finite"):
        ortops.ps_roi_align(x, rois * np.inf, indices, output_height=many, output_width=many)
