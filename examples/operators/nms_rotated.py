"""NMSRotated, the operator of mmdeploy's rotated detectors, so that their files run as they are; compiled by numba.

$ python -m examples.operators.nms_rotated
"""

from __future__ import annotations

import math
from typing import Annotated

import numba
import numpy as np
import onnx
from numpy.typing import NDArray

import ortops

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Indices = NDArray[np.int64]


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def overlap(a: Doubles, b: Doubles) -> float:
    """The area that two boxes [x, y, width, height, angle] share: the first, clipped at the four sides of the second."""
    # Each side adds a corner to a convex polygon, and half as many as there are where rounding dents it: 4, 6, 9, 13, 19.
    corners, clipped, count = np.empty((24, 2)), np.empty((24, 2)), 4
    sine, cosine, x, y = math.sin(b[4]), math.cos(b[4]), a[0] - b[0], a[1] - b[1]
    across, along = math.sin(a[4] - b[4]) / 2, math.cos(a[4] - b[4]) / 2
    for i in range(4):  # in the axes of the second box
        width, height = (-a[2], a[2], a[2], -a[2])[i], (-a[3], -a[3], a[3], a[3])[i]
        corners[i, 0] = x * cosine + y * sine + width * along - height * across
        corners[i, 1] = y * cosine - x * sine + width * across + height * along
    for side in range(4):
        axis, sign, new = side % 2, 1 - side // 2 * 2, 0
        for i in range(count):
            one, other = corners[i], corners[(i + 1) % count]
            inside, beside = b[2 + axis] / 2 - sign * one[axis], b[2 + axis] / 2 - sign * other[axis]
            if inside >= 0:
                clipped[new] = one
                new += 1
            if (inside >= 0) != (beside >= 0):
                clipped[new] = one + (other - one) * (inside / (inside - beside))
                new += 1
        corners, clipped, count = clipped, corners, new
    area = 0.0
    for i in range(count):
        one, other = corners[i], corners[(i + 1) % count]
        area += (one[0] * other[1] - one[1] * other[0]) / 2
    return abs(area)


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def kept(boxes: Doubles, order: Indices, threshold: float) -> NDArray[np.bool_]:
    """Which boxes remain, by their positions in `order`. It runs without the interpreter's lock."""
    remains, reach = np.ones(len(order), np.bool_), np.hypot(boxes[:, 2], boxes[:, 3]) / 2
    for i, one in enumerate(order):
        for j in range(i + 1 if remains[i] else len(order), len(order)):
            a, b = boxes[one], boxes[order[j]]
            if remains[j] and math.hypot(a[0] - b[0], a[1] - b[1]) < reach[one] + reach[order[j]]:
                shared = overlap(a, b)
                remains[j] = not shared > threshold * (a[2] * a[3] + b[2] * b[3] - shared)
    return remains


@ortops.operator(domain="mmdeploy", name="NMSRotated")
def nms_rotated(
    boxes: Annotated[Floats, ("batch", "n", 5)],
    scores: Annotated[Floats, ("batch", "classes", "n")],
    iou_threshold: float,
    score_threshold: float,
) -> Annotated[Indices, ("kept", 3)]:
    """The image, class and box of each box that overlaps no better one of its class by more than the threshold, best first.

    Boxes have their center, width, height and angle in radians. Only scores above `score_threshold` count.
    """
    found = [np.empty((0, 3), np.int64)]
    for image, number in np.ndindex(scores.shape[:2]):
        of_class = scores[image, number]
        order = np.argsort(-of_class, kind="stable")
        order = order[of_class[order] > score_threshold]
        order = order[kept(boxes[image].astype(np.float64), order, iou_threshold)]
        found.append(np.stack([np.full_like(order, image), np.full_like(order, number), order], axis=1))
    return np.concatenate(found)


def main() -> None:
    """Suppress one of three boxes in a session."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 11, "mmdeploy" : 1]>
        detector (float[b, n, 5] boxes, float[b, c, n] scores) => (int64[kept, 3] selected) {
            selected = mmdeploy.NMSRotated <iou_threshold = 0.5, score_threshold = 0.05> (boxes, scores)
        }""")
    session = ortops.InferenceSession(model.SerializeToString(), operators=[nms_rotated])
    boxes = np.array([[[60, 75, 20, 50, 0], [60, 75, 50, 20, 1.5], [60, 75, 20, 50, 0.8]]], np.float32)
    (selected,) = session.run(None, {"boxes": boxes, "scores": np.array([[[0.7, 0.9, 0.8]]], np.float32)})
    print(selected.tolist())


if __name__ == "__main__":
    main()
