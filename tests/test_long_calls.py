# SPDX-License-Identifier: MIT
"""A signal handler that raises ends a call of an operator soon, however much work the call still has."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from types import FrameType
from typing import Any

import numpy as np
import pytest

import ortops
from library_structs import limit_parts
from ortops.compute import Bound, runner_on_all_cpus
from ortops.operators import BY_NAME

BINS = 7


class AlarmError(Exception):
    """What the handler of the alarm raises."""


def problem(name: str, count: int) -> list[Any]:
    """Inputs with `count` equal RoIs that lie on the only image and read most of it."""
    of, dy = np.zeros(count, np.int64), np.ones((count, 1, BINS, BINS), np.float32)
    if "Rotated" in name:
        x, roi = np.ones((1, 1, 40, 40), np.float32), [20.0, 20.0, 28.0, 28.0, 0.3]
    else:
        x, roi = np.ones((1, 16, 256, 256), np.float32), [8.0, 8.0, 248.0, 248.0]
        dy = dy.repeat(16, 1)
    rois = np.tile(np.array(roi, np.float32), (count, 1))
    return [dy, rois, of, np.array(x.shape), x] if "Grad" in name else [x, rois, of]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no alarms")
@pytest.mark.parametrize("output", ["Y", "dX", "drois"])
@pytest.mark.parametrize(
    ("name", "count", "attributes"),
    [
        ("RoIAlignRotated", 10_000, {"sampling_ratio": 64}),
        ("RoIAlignRotated", 300_000, {"sampling_ratio": 1}),  # many batches of tables
        ("RoiAlign_16", 20_000, {"sampling_ratio": 0}),  # one image, one panel of channels, all pixels
    ],
    ids=["samples", "tables", "RoIs of an image"],
)
def test_a_signal_handler_ends_a_long_call(name: str, count: int, attributes: Mapping[str, int], output: str) -> None:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise AlarmError

    sizes = {"output_height": BINS, "output_width": BINS} if output == "Y" else {}
    operator = BY_NAME[name if output == "Y" else BY_NAME[name].gradient or ""]
    outputs: dict[str, Any] = {}
    delay = 0.0  # no alarm

    def allocate(i: int, shape: tuple[int, ...]) -> Any:
        if operator.outputs[i].name == output:
            outputs[output] = np.full(shape, np.nan, np.float32)
            signal.setitimer(signal.ITIMER_REAL, delay)
        return outputs.get(operator.outputs[i].name)

    def run(inputs: list[Any]) -> None:
        Bound(operator, operator.check_attributes({**attributes, **sizes}))(inputs, allocate, runner_on_all_cpus())

    run(problem(operator.name, 2))
    assert not np.isnan(outputs[output]).any()
    of_each = outputs["dX"].sum() / 2 if output == "dX" else 0.0
    inputs = problem(operator.name, count)
    before = signal.signal(signal.SIGALRM, ring)
    delay = 0.1
    try:
        with contextlib.suppress(AlarmError):
            run(inputs)
            pytest.fail("the call ended first")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert np.isnan(outputs[output][-1]).any() or 0 < outputs[output].sum(dtype=float) < 0.9 * count * of_each


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_parts_of_the_rois_make_the_outputs_of_all(monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    random = np.random.default_rng(1)
    rois = (random.uniform(-3, 8, (30, 4)) + np.array([0, 0, 6, 6])).astype(np.float16)
    x, dy = (random.normal(size=shape).astype(np.float16) for shape in ((2, 9, 12, 14), (30, 9, 3, 2)))
    of = random.integers(0, 2, 30)

    def dx_and_drois(kind: Any, *outputs: Any) -> Any:
        arrays = dy.astype(kind), rois.astype(kind), of, x.shape
        return ortops.roi_align_grad(*arrays, x=x.astype(kind), mode=mode, outputs=outputs)

    def every() -> list[Any]:
        arrays = x.astype(np.float32), rois.astype(np.float32), of
        y = ortops.roi_align(*arrays, output_height=3, output_width=2, mode=mode)
        return [y, *dx_and_drois(np.float32, "dx", "drois")]

    whole = every()
    limit_parts(monkeypatch, ("RoiAlign_22", "RoiAlignGrad"), 200)
    y, dx, drois = every()
    np.testing.assert_array_equal(y, whole[0])
    np.testing.assert_array_equal(drois, whole[2])
    np.testing.assert_allclose(dx, whole[1], atol=1e-5)
    assert (dx != whole[1]).any()  # there was more than one part
    rounded, _ = dx_and_drois(np.float16, "dx")
    np.testing.assert_array_equal(rounded, dx.astype(np.float16))


def test_parts_of_lists_make_the_outputs_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    rois = np.column_stack([random.uniform(0, 14, (30, 2)), random.uniform(1, 9, (30, 2)), random.uniform(-3, 3, 30)])
    x, dy = (random.normal(size=shape).astype(np.float16) for shape in ((2, 9, 12, 14), (30, 9, 3, 2)))
    rois, of = rois.astype(np.float16), random.integers(0, 2, 30)

    def every(kind: Any) -> tuple[Any, ...]:
        y = ortops.roi_align_rotated(x.astype(kind), rois.astype(kind), of, output_height=3, output_width=2)
        return y, *ortops.roi_align_rotated_grad(dy.astype(kind), rois.astype(kind), of, x.shape, x=x.astype(kind))

    whole = every(np.float32)
    limit_parts(monkeypatch, ("RoIAlignRotated", "RoIAlignRotatedGrad"), 500)  # some bins of a RoI at a time
    in_parts = every(np.float32)
    for part, expected in zip(in_parts, whole, strict=True):
        np.testing.assert_array_equal(part, expected)
    y, dx, _ = every(np.float16)
    np.testing.assert_array_equal(y, in_parts[0].astype(np.float16))
    np.testing.assert_array_equal(dx, in_parts[1].astype(np.float16))
