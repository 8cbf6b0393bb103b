# SPDX-License-Identifier: MIT
"""Every bit of the kernels' answers to 500 generated problems stays as it is: `python tests/test_bits.py` writes bits.json.

The digests are of Y, dX and drois in four types; one thread and 2 or 16 must agree. They follow from IEEE 754 alone, apart
from the sines of rotated RoIs.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ortops.compute import Bound, runner_on
from ortops.operators import BY_NAME
from ortops.spec import ELEMENT_DTYPES

Array = np.ndarray[Any, Any]

PROBLEMS = 500
TYPES = ("float16", "bfloat16", "float", "double")
THREADS = ((1, 2), (1, 16))
"""The numbers of threads that must agree: of the first ten problems, of the next ten, and so in turn."""

FILE = Path(__file__).with_name("bits.json")

_GROUPS = {
    "RoiAlign average": 3,
    "RoiAlign max": 2,
    "RoiAlign max_interpolated": 1,
    "DmlRoiAlign": 1,
    "MaxRoiPool": 1,
    "RoIAlignRotated": 1,
    "DmlResample": 1,
}
"""How many of ten problems each group has."""

_LARGE = {
    # images, channels, height, width, RoIs, bins along y and x
    "sliding panels and bands of dX": (1, 24, 200, 304, 120, 7, 7),
    "non-temporal stores of Y": (1, 256, 9, 20, 400, 7, 7),
    "tables of each worker, and non-temporal stores of dX": (1, 8, 6, 90000, 100, 1, 2),
    "planes": (2, 3, 300, 400, 60, 14, 14),
}  # fmt: skip
"""The sizes of problems that reach what small ones do not."""


Call = tuple[str, tuple[Array, ...], dict[str, Any]]


class Problem(NamedTuple):
    """Calls of operators, each with its name, its inputs in float64 and int64, and its attributes."""

    group: str
    calls: tuple[Call, ...]


def problems() -> Iterator[Problem]:
    """The problems, always the same."""
    groups = [group for group, weight in _GROUPS.items() for _ in range(weight)]
    large = list(_LARGE.values())
    for number in range(PROBLEMS):
        rng = np.random.default_rng(number)
        # Maxima of the long RoIs of "tables of each worker" would take most of the time.
        kinds = (0,) if number // 10 == 2 else (0, 3)
        size = large[number // 10] if number < 10 * len(large) and number % 10 in kinds else None
        yield _problem(rng, groups[number % 10], size)


def _problem(rng: np.random.Generator, group: str, size: tuple[int, ...] | None) -> Problem:
    def pick(*choices: Any) -> Any:
        return choices[rng.integers(len(choices))]

    small = (
        pick(1, 1, 2, 3), pick(1, 3, 7, 8, 15, 16, 17, 32, 40), pick(1, 2, 5, 9, 14, 33), pick(1, 3, 8, 13, 24, 50),
        pick(0, 1, 2, 5, 17, 40), pick(1, 2, 3, 7), pick(1, 2, 5, 7),
    )  # fmt: skip
    images, channels, height, width, rois, bins_y, bins_x = size or small
    # Eighths: many pixels tie in a maximum, and every type holds them.
    x = rng.integers(-64, 64, (images, channels, height, width)) / 8.0
    if group == "DmlResample":
        return _resample(pick, x, rng)
    dy = rng.integers(-64, 64, (rois, channels, bins_y, bins_x)) / 8.0
    scale = pick(1.0, 0.5, 0.25, 0.3, 1.7)
    corners = rng.uniform(-0.2, 1.2, (rois, 2, 2)) * (width, height) / scale
    if pick(0, 0, 1):  # the others may be mirrored
        corners.sort(axis=1)
    boxes = np.clip(np.round(corners.reshape(rois, 4) * 8) / 8, -6e4, 6e4)
    image = rng.integers(0, images, rois)
    shape = np.array(x.shape)
    common: dict[str, Any] = {"spatial_scale": scale}
    bins = {"output_height": bins_y, "output_width": bins_x}
    calls: tuple[Call, ...]
    if group == "MaxRoiPool":
        rows = np.column_stack([image, np.round(boxes)]).astype(np.float64)
        calls = (
            ("MaxRoiPool_22", (x, rows), {**common, "pooled_shape": [bins_y, bins_x]}),
            ("MaxRoiPoolGrad", (dy, x, rows), common),
        )
    elif group == "DmlRoiAlign":
        least = pick(1, 2)
        common = {
            "reduction_function": pick("average", "max"), "interpolation_mode": pick("linear", "nearest_neighbor"),
            "spatial_scale_x": scale, "spatial_scale_y": pick(1.0, 0.5), "minimum_samples_per_output": least,
            "maximum_samples_per_output": least + pick(0, 1, 5), "align_regions_to_corners": pick(0, 1),
        }  # fmt: skip
        grad = {name: value for name, value in common.items() if name != "out_of_bounds_input_value"}
        calls = (
            ("DmlRoiAlign", (x, boxes, image), {**common, **bins, "out_of_bounds_input_value": pick(0.0, 2.5)}),
            ("DmlRoiAlignGrad", (dy, boxes, image, shape, x), grad),
        )
    elif group == "RoIAlignRotated":
        middle, extent = (
            boxes.reshape(rois, 2, 2).mean(axis=1),
            np.abs(np.diff(boxes.reshape(rois, 2, 2), axis=1)[:, 0]),
        )
        turned = np.column_stack([middle, extent, rng.integers(-12, 12, rois) / 4.0])
        common |= {"sampling_ratio": pick(0, 1, 2, 3), "aligned": pick(0, 1), "clockwise": pick(0, 1)}
        calls = (
            ("RoIAlignRotated", (x, turned, image), common | bins),
            ("RoIAlignRotatedGrad", (dy, turned, image, shape, x), common),
        )
    else:
        common |= {
            "sampling_ratio": pick(0, 0, 1, 2, 3), "mode": {"average": "avg"}.get(group.split()[1], group.split()[1]),
            "coordinate_transformation_mode": pick("half_pixel", "output_half_pixel"),
        }  # fmt: skip
        calls = (
            ("RoiAlign_22", (x, boxes, image), common | bins),
            ("RoiAlignGrad", (dy, boxes, image, shape, x), common),
        )
    return Problem(group, calls)


def _resample(pick: Any, x: Array, rng: np.random.Generator) -> Problem:
    lengths = [int(pick(1, 2, 4, 9, 12)) for _ in range(x.ndim)]
    common = {
        "interpolation_mode": pick("linear", "nearest_neighbor"),
        "scales": [new / old for new, old in zip(lengths, x.shape, strict=True)],
        "input_pixel_offsets": [pick(0.5, 0.0)] * x.ndim, "output_pixel_offsets": [pick(-0.5, 0.0)] * x.ndim,
        "rounding_direction": pick("half_up", "increasing", "decreasing"),
    }  # fmt: skip
    dy = rng.integers(-64, 64, lengths) / 8.0
    return Problem(
        "DmlResample",
        (
            ("DmlResample", (x,), common | {"output_sizes": lengths}),
            ("DmlResampleGrad", (dy, np.array(x.shape)), common),
        ),
    )


def answers(problem: Problem, kind: str, threads: int) -> list[Array]:
    """The outputs of all calls of a problem, with floating-point inputs of one element type."""
    runner = runner_on(1) if threads == 1 else runner_on(threads)
    results: list[Array] = []
    for name, inputs, attributes in problem.calls:
        operator = BY_NAME[name]
        arrays: list[Array | None] = []
        for tensor, value in zip(operator.inputs, inputs, strict=True):
            allowed = operator.element_types(tensor)
            dtype = ELEMENT_DTYPES[kind if kind in allowed else allowed[0] if "int" in allowed[0] else "float"]
            arrays.append(value.astype(dtype))

        def allocate(i: int, shape: tuple[int, ...], operator: Any = operator) -> Array:
            # Elements that a kernel leaves unwritten show.
            results.append(np.full(shape, math.nan, ELEMENT_DTYPES[_element_type(operator.outputs[i], operator, kind)]))
            return results[-1]

        Bound(operator, operator.check_attributes(attributes))(arrays, allocate, runner)
    return results


def _element_type(tensor: Any, operator: Any, kind: str) -> str:
    return kind if kind in operator.element_types(tensor) else "float"


def digests(kinds: tuple[str, ...] = TYPES) -> dict[str, dict[str, str]]:
    """The digest of each group of problems, by element type.

    Raises:
        AssertionError: numbers of threads differ in a bit.
    """
    sums = {(group, kind): hashlib.sha256() for group in _GROUPS for kind in kinds}
    for number, problem in enumerate(problems()):
        for kind in kinds:
            first, other = ([y.tobytes() for y in answers(problem, kind, n)] for n in THREADS[number // 10 % 2])
            assert first == other, f"problem {number}, {problem.group}, {kind}: threads differ"
            for content in first:
                sums[problem.group, kind].update(content)
    return {group: {kind: sums[group, kind].hexdigest()[:32] for kind in kinds} for group in _GROUPS}


@pytest.mark.parametrize("kind", TYPES)
def test_bits_stay(kind: str) -> None:
    results = digests((kind,))
    expected = json.loads(FILE.read_text("utf-8"))
    # Sines are those of the C library.
    same = [group for group in results if sys.platform == "linux" or group != "RoIAlignRotated"]
    assert {group: results[group][kind] for group in same} == {group: expected[group][kind] for group in same}


if __name__ == "__main__":
    FILE.write_text(json.dumps(digests(), indent=2) + "\n")
