# SPDX-License-Identifier: MIT
"""NMSRotated, the operator of mmdeploy's rotated detectors, so that their files run as they are; compiled by numba."""

from __future__ import annotations

import cmath
from typing import Annotated

import numba
import numpy as np
from numpy.typing import NDArray

import ortops


@numba.njit  # type: ignore[untyped-decorator]
def overlap(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """The area that two boxes [x, y, width, height, angle] share: the first, clipped at the four sides of the second."""
    # Each side adds a corner to a convex polygon, and half as many as there are where rounding dents it: 4, 6, 9, 13, 19.
    corners, clipped, count, area = np.empty(24, np.complex128), np.empty(24, np.complex128), 4, 0.0
    middle, side = complex(a[0] - b[0], a[1] - b[1]) * cmath.rect(1.0, -b[4]), cmath.rect(0.5, a[4] - b[4])
    for i in range(4):  # in the axes of the second box
        corners[i] = middle + complex((-1, 1, 1, -1)[i] * a[2], (-1, -1, 1, 1)[i] * a[3]) * side
    for i in range(4):
        new, half = 0, b[2 + i % 2] / 2
        for j in range(count):  # each side is at the right, after quarter turns
            start, end = corners[j], corners[(j + 1) % count]
            if start.real <= half:
                clipped[new], new = start * 1j, new + 1
            if (start.real <= half) != (end.real <= half):
                clipped[new], new = (
                    (start + (end - start) * (half - start.real) / (end.real - start.real)) * 1j,
                    new + 1,
                )
        corners, clipped, count = clipped, corners, new
    for i in range(count):
        area += (corners[i].conjugate() * corners[(i + 1) % count]).imag / 2
    return abs(area)


@ortops.operator(
    domain="mmdeploy", compiled=True, outputs=["kept"], shapes=lambda scores: (scores[0] * scores[1] * scores[2], 3)
)
def NMSRotated(  # noqa: N802 - the name of its nodes
    boxes: Annotated[NDArray[np.float32], ("batch", "n", 5)],
    scores: Annotated[NDArray[np.float32], ("batch", "classes", "n")],
    kept: Annotated[NDArray[np.int64], ("count", 3)],
    iou_threshold: float,
    score_threshold: float,
) -> int:
    """Image, class and number of boxes that overlap no better one of their class by more than the threshold, best first."""
    count = 0
    for image, number in np.ndindex(scores.shape[0], scores.shape[1]):
        a, of_class, first = boxes[image].astype(np.float64), scores[image, number], count
        reach, areas = np.hypot(a[:, 2], a[:, 3]) / 2, a[:, 2] * a[:, 3]
        for i in np.argsort(-of_class, kind="mergesort"):
            remains = of_class[i] > score_threshold
            for j in kept[first:count, 2]:
                if remains and abs(complex(a[i, 0] - a[j, 0], a[i, 1] - a[j, 1])) < reach[i] + reach[j]:
                    shared = overlap(a[j], a[i])
                    remains = not shared > iou_threshold * (areas[i] + areas[j] - shared)
            if remains:
                kept[count, 0], kept[count, 1], kept[count, 2], count = image, number, i, count + 1
    return count
