# SPDX-License-Identifier: MIT
"""The public cases of DirectML's maintainer, and our answers: the table in docs/findings.md.

The numbers are those of RoiAlign.json and MaxRoiPool.json in fdwr/OnnxConformanceTests at commit ffab7a87.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ortops

DOCUMENT = Path(__file__).parents[1] / "docs" / "findings.md"

FOUR, EIGHT = [[[[0, 1, 2, 3]]]], [[[[1, 2, 3, 4, 5, 6, 7, 8]]]]
SQUARE = np.arange(16).reshape(1, 1, 4, 4)
TENS = [[[[10 * y + x for x in range(5)] for y in range(5)]]]
BETWEEN_TENS = np.add.outer([8.25, 13.25, 18.25, 23.25], [0, 0.5, 1, 1.5])
BETWEEN_FOUR = [1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4]
SIX_AND_TWELVE = [[[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]]], [[0, 0, 0, 1, 1], [0, 2, 1, 3, 2]], [6, 12]

# opset, type, mode, output_height, output_width, sampling_ratio, spatial_scale; X, rois, batch_indices; the elements of Y
ROI_ALIGN: list[tuple[Any, ...]] = [
    (10, "float32", "max", 1, 8, 1, 1, EIGHT, [[0, 0, 8, 1]], [0], [1, 2, 3, 4, 5, 6, 7, 8]),
    (10, "float32", "avg", 1, 4, 0, 1, FOUR, [[0, 0, 4, 1]], [0], [0, 1, 2, 3]),
    (10, "float32", "avg", 1, 1, 0, 1, FOUR, [[0, 0, 4, 1]], [0], [1.5]),
    (10, "float16", "avg", 1, 1, 0, 1, FOUR, [[0, 0, 4, 1]], [0], [1.5]),
    (10, "float32", "max", 1, 2, 1, 1, [[[[0, 1, 2, 3]], [[8, 9, 10, 11]]]], [[1, 0, 3, 1]], [0], [1, 2, 9, 10]),
    (10, "float32", "max", 1, 2, 0, 1, [*FOUR, [[[8, 9, 10, 11]]]], [[1, 0, 3, 1]] * 2, [1, 0], [9, 10, 1, 2]),
    (10, "float32", "max", 1, 1, 0, 1, SQUARE, [[0, 0, 1, 1], [3, 0, 4, 1], [0, 3, 1, 4]], [0] * 3, [0, 3, 12]),
    (10, "float32", "max", 1, 1, 2, 1, SQUARE, [[0, 0, 2, 2], [2, 0, 4, 2], [0, 2, 2, 4]], [0] * 3, [5, 7, 13]),
    (10, "float32", "max", 1, 1, 4, 2, SQUARE, [[0, 0, 2, 2]], [0], [15]),
    (10, "float32", "max", 1, 1, 2, 0.5, SQUARE, [[0, 0, 4, 4]], [0], [5]),
    (10, "float32", "avg", 1, 1, 4, 1, SQUARE, [[0, 0, 4, 4]], [0], [7.5]),
    (10, "float32", "max", 1, 4, 1, 1, FOUR, np.zeros((0, 4)), [], []),
    (10, "float32", "max", 4, 4, 1, 1, TENS, [[1, 1, 3, 3]], [0], BETWEEN_TENS),
    (
        *(10, "float32", "max", 1, 1, 1, 1, FOUR),
        *([[0, 0.5, 4, 0.5], [0, 0.5, 2, 0.5], [2, 0.5, 4, 0.5], [0, 0.5, 3, 0.5], [1, 0.5, 4, 0.5]], [0] * 5),
        [1.5, 0.5, 2.5, 1, 2],
    ),
    (10, "float32", "avg", 1, 2, 1, 1, [[[[0, 1000, 0, 2000]]]], [[0, 0, 4, 1]], [0], [500, 1000]),
    (10, "float32", "max", 1, 8, 1, 1, EIGHT, [[-4, 0, 4, 1]], [0], [0, 0, 0, 0, 1, 2, 3, 4]),
    (10, "float32", "avg", 1, 8, 1, 1, [[[[1, 2, 3, 4]]]], [[0, 0, 4, 1]], [0], BETWEEN_FOUR),
    (16, "float32", "max", 1, 8, 1, 1, EIGHT, [[0, 0, 8, 1]], [0], [1, 2, 3, 4, 5, 6, 7, 8]),
]
MAX_ROI_POOL: list[tuple[Any, ...]] = [
    ("float32", *SIX_AND_TWELVE),
    ("float32", [[[[13] * 4] * 3], [[[42] * 4] * 3]], [[1, 0, 0, 3, 2], [0, 0, 0, 3, 2]], [42, 13]),
    ("float16", *SIX_AND_TWELVE),
]


def rows() -> Iterator[str]:
    """The rows of the table."""
    for i, (opset, dtype, mode, height, width, ratio, scale, x, rois, images, due) in enumerate(ROI_ALIGN, 1):
        inputs = np.asarray(x, dtype), np.asarray(rois, dtype), np.asarray(images, np.int64)
        size = {"output_height": height, "output_width": width}

        def onnx(
            mode: Any, shift: Any, inputs: Any = inputs, ratio: int = ratio, scale: float = scale, size: Any = size
        ) -> Any:
            given = {"sampling_ratio": ratio, "spatial_scale": scale, "coordinate_transformation_mode": shift, **size}
            return ortops.roi_align(*inputs, mode=mode, **given)

        answers = [
            onnx(mode, "output_half_pixel" if opset == 10 else "half_pixel"),
            onnx(mode, "half_pixel"),
            onnx("max_interpolated" if mode == "max" else mode, "half_pixel"),
            ortops.dml_roi_align(
                *inputs,
                reduction_function="max" if mode == "max" else "average",
                spatial_scale_x=scale,
                spatial_scale_y=scale,
                minimum_samples_per_output=ratio or 1,
                maximum_samples_per_output=ratio or 2**32 - 1,
                **size,
            ),
        ]
        words = ["yes" if np.array_equal(answer.ravel(), np.ravel(due)) else "no" for answer in answers]
        yield f"| {i} | RoiAlign-{opset}, {mode}, {dtype} | {' | '.join(words)} |"
    for i, (dtype, x, rois, due) in enumerate(MAX_ROI_POOL, 1):
        answer = ortops.max_roi_pool(np.asarray(x, dtype), np.asarray(rois, dtype), pooled_shape=[1, 1])
        yield f"| {i} | MaxRoiPool, {dtype} | {'yes' if np.array_equal(answer.ravel(), due) else 'no'} | | | |"


def test_the_document_has_our_answers_to_the_public_cases() -> None:
    lines = DOCUMENT.read_text("utf-8").splitlines()
    first = (
        lines.index("| case | node | RoiAlign, MaxRoiPool | `half_pixel` | `half_pixel`, interpolated | DmlRoiAlign |")
        + 2
    )
    table = list(rows())
    assert lines[first : first + len(table)] == table, "\n".join(table)
