"""Non-maximum suppression as an operator whose outputs have as many rows as boxes remain, compiled by numba.

$ python -m examples.operators.suppress
"""

from __future__ import annotations

from typing import Annotated

import numba
import numpy as np
import onnx
from numpy.typing import NDArray

import ortops

Floats = NDArray[np.float32]


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def kept(boxes: Floats, order: NDArray[np.int64], threshold: float) -> NDArray[np.bool_]:
    """Which boxes remain, by their positions in `order`. It runs without the interpreter's lock."""
    remains = np.ones(len(order), np.bool_)
    for i, one in enumerate(order):
        for j in range(i + 1 if remains[i] else len(order), len(order)):
            a, b = boxes[one], boxes[order[j]]
            height = max(min(a[2], b[2]) - max(a[0], b[0]), 0.0)
            width = max(min(a[3], b[3]) - max(a[1], b[1]), 0.0)
            areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
            remains[j] &= height * width <= threshold * (areas - height * width)
    return remains


@ortops.operator(domain="examples", name="Suppress")
def suppress(
    boxes: Annotated[Floats, ("n", 4)], scores: Annotated[Floats, ("n",)], iou_threshold: float = 0.5
) -> tuple[Annotated[Floats, ("kept", 4)], Annotated[NDArray[np.int64], ("kept",)]]:
    """The boxes [y1, x1, y2, x2] that overlap no better one by more than the threshold, best first, and their indices."""
    order = np.argsort(-scores, kind="stable")
    indices = order[kept(boxes, order, iou_threshold)]
    return boxes[indices], indices


def main() -> None:
    """Suppress one of three boxes in a session."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 16, "examples" : 1]>
        detector (float[n, 4] boxes, float[n] scores) => (float[kept, 4] best, int64[kept] indices) {
            best, indices = examples.Suppress <iou_threshold = 0.4> (boxes, scores)
        }""")
    session = ortops.InferenceSession(model.SerializeToString(), operators=[suppress])
    boxes = np.array([[0, 0, 10, 10], [50, 50, 60, 60], [1, 1, 11, 11]], np.float32)
    best, indices = session.run(None, {"boxes": boxes, "scores": np.array([0.8, 0.7, 0.9], np.float32)})
    print(indices, best.tolist())


if __name__ == "__main__":
    main()
