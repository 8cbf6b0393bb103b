# SPDX-License-Identifier: MIT
"""The example NMSRotated suppresses the boxes that mmdeploy's operator does, in graphs as mmdeploy writes them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import ortops
from conformance.backends.session import CPU, options
from examples.operators.nms_rotated import NMSRotated, overlap

Array = NDArray[Any]

NODE = "selected = mmdeploy.NMSRotated <iou_threshold = {}, score_threshold = {}> (boxes, scores)"


def run(text: str, boxes: Any, scores: Any) -> Array:
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 11, "mmdeploy" : 1]>
        g (float[b, n, 5] boxes, float[b, c, n] scores) => (int64[kept, 3] selected) {{ {text} }}""")
    feeds = {"boxes": np.asarray(boxes, np.float32), "scores": np.asarray(scores, np.float32)}
    session = ortops.InferenceSession(model.SerializeToString(), options(), providers=[CPU], operators=[NMSRotated])
    (selected,) = session.run(None, feeds)
    assert selected.dtype == np.int64
    return np.asarray(selected)


def boxes_of(seed: int, count: int = 60, images: int = 2) -> tuple[Array, Array]:
    """Boxes without a turn, of which many overlap, and scores of 3 classes."""
    draw = np.random.default_rng(seed)
    centers, sizes = draw.uniform(0, 60, (images, count, 2)), draw.uniform(4, 25, (images, count, 2))
    boxes = np.concatenate([centers, sizes, np.zeros((images, count, 1))], axis=2)
    return boxes, draw.permuted(np.arange(images * 3 * count) / 1000).reshape(images, 3, count)


def turned(boxes: Array, angle: float) -> Array:
    """The boxes turned about the origin."""
    made, sine, cosine = np.array(boxes), math.sin(angle), math.cos(angle)
    made[..., 0] = boxes[..., 0] * cosine - boxes[..., 1] * sine
    made[..., 1] = boxes[..., 0] * sine + boxes[..., 1] * cosine
    made[..., 4] += angle
    return made


# What the kernel of mmdeploy 1.3.1 gives with ONNX Runtime 1.15.1, the boxes of each class.
@pytest.mark.parametrize(
    ("threshold", "of_mmdeploy"),
    [
        (0.05, ([24, 7, 31, 14, 35, 18, 39, 12, 26, 16], [5, 10, 20, 30, 32, 37, 11, 31])),
        (
            0.3,
            (
                [24, 7, 31, 14, 38, 21, 28, 11, 35, 18, 25, 32, 15, 39, 22, 12, 19, 26, 9, 16, 23],
                [5, 10, 15, 20, 25, 30, 35, 7, 12, 17, 22, 27, 32, 37, 9, 14, 24, 29, 34, 16, 21, 26, 31],
            ),
        ),
    ],
)
def test_operator_keeps_boxes_that_kernel_of_mmdeploy_keeps(threshold: float, of_mmdeploy: Any) -> None:
    i = np.arange(40)
    boxes = [np.stack([37 * i % 60, 53 * i % 50, 5 + 7 * i % 30, 4 + 11 * i % 25, 13 * i % 63 / 10 - 3.1], axis=1)]
    scores = [[29 * i % 41 / 50, 17 * i % 43 / 50]]
    expected = [[0, number, box] for number, of_class in enumerate(of_mmdeploy) for box in of_class]
    assert run(NODE.format(threshold, 0.2), boxes, scores).tolist() == expected


@pytest.mark.parametrize("threshold", [0.1, 0.35, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_operator_keeps_boxes_of_onnx_whatever_their_common_turn(seed: int, threshold: float) -> None:
    boxes, scores = boxes_of(seed, count=200)
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 11]>
        g (float[b, n, 4] boxes, float[b, c, n] scores) => (int64[kept, 3] selected) {{
            most = Constant <value = int64 {{1000}}> ()
            iou = Constant <value = float {{{threshold}}}> ()
            least = Constant <value = float {{0.05}}> ()
            selected = NonMaxSuppression <center_point_box = 1> (boxes, scores, most, iou, least)
        }}""")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    feeds = {"boxes": boxes[..., :4].astype(np.float32), "scores": scores.astype(np.float32)}
    expected = session.run(None, feeds)[0].tolist()
    assert 100 < len(expected) < 0.95 * np.count_nonzero(scores > 0.05)
    for angle in (0, 0.3, math.pi / 2, 2.0, -math.pi):
        assert run(NODE.format(threshold, 0.05), turned(boxes, angle), scores).tolist() == expected
    sideways = boxes[..., [0, 1, 3, 2, 4]] + [0, 0, 0, 0, math.pi / 2]
    assert run(NODE.format(threshold, 0.05), sideways, scores).tolist() == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([0, 0, 2, 2, 0], [0, 0, 2, 2, math.pi / 4], 8 * (math.sqrt(2) - 1)),  # an octagon
        ([0, 0, 2, 2, 0.7], [0, 0, 2, 2, 0.7], 4),
        ([0, 0, 8, 1, 0], [0, 0, 8, 1, math.pi / 2], 1),
        ([0, 0, 8, 1, 0], [0, 0, 8, 1, math.pi / 6], 2),  # a rhombus of height 1 and side 1 / sin 30
        ([5, -3, 1, 1, 0.2], [5, -3, 9, 9, 1.1], 1),
        ([0, 0, 2, 2, 0], [2, 0, 2, 2, 0], 0),
        ([0, 0, 2, 0, 0], [0, 0, 2, 2, 0], 0),
        ([0, 0, 1, 1, 0], [9, 9, 1, 1, 0], 0),
    ],
)
def test_overlap_gives_shared_area(a: list[float], b: list[float], expected: float) -> None:
    for first, second in ((a, b), (b, a)):
        assert overlap(np.array(first, float), np.array(second, float)) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("images", "count"), [(1, 0), (0, 3), (2, 3)])
def test_operator_keeps_no_box(images: int, count: int) -> None:
    boxes, scores = np.ones((images, count, 5)), np.zeros((images, 2, count))
    assert run(NODE.format(0.1, 0.05), boxes, scores).shape == (0, 3)


def test_operator_survives_numbers_that_are_not_finite() -> None:
    boxes, scores = boxes_of(0, count=40, images=1)
    boxes[0, :30] = np.random.default_rng(0).choice([np.nan, np.inf, -np.inf, -1, 0, 1e38, 1], (30, 5))
    scores[0, 0, ::3] = np.nan
    selected = run(NODE.format(0.1, 0.0), boxes, scores)
    assert not np.isnan(scores[tuple(selected.T)]).any()


def test_operator_refuses_boxes_of_other_shape() -> None:
    cut = "shape = Constant <value = int64[3] {1, -1, 4}> () cut = Reshape (boxes, shape) "
    with pytest.raises(Exception, match=r"mmdeploy::NMSRotated: .*boxes"):
        run(cut + NODE.format(0.1, 0.05).replace("boxes", "cut"), np.ones((1, 4, 5)), np.ones((1, 1, 5)))


def test_rotated_detector_of_mmdeploy_runs_unchanged() -> None:
    """Its nodes in one graph: rotated RoIs, rotated suppression, and the nodes of ONNX that gather what is left."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 11, "mmdeploy" : 1]>
        detector (float[1, 4, h, w] x, float[1, n, 5] boxes, float[1, n, c] by_box)
            => (float[kept, 4, 2, 2] features, float[kept] best)
        {
            scores = Transpose <perm = [0, 2, 1]> (by_box)
            selected = mmdeploy.NMSRotated <iou_threshold = 0.1, score_threshold = 0.05> (boxes, scores)
            best = GatherND (scores, selected)
            zero = Constant <value = int64[1] {0}> ()
            two = Constant <value = int64[1] {2}> ()
            columns = Constant <value = int64[2] {0, 2}> ()
            places = Gather <axis = 1> (selected, columns)
            of = Gather <axis = 1> (places, zero)
            image = Cast <to = 1> (of)
            left = GatherND (boxes, places)
            rois = Concat <axis = 1> (image, left)
            features = mmdeploy.MMCVRoIAlignRotated <output_height = 2, output_width = 2, spatial_scale = 0.125,
                sampling_ratio = 2, aligned = 1, clockwise = 1> (x, rois)
        }""")
    boxes, scores = boxes_of(4, images=1)
    boxes[..., 4] = np.random.default_rng(0).uniform(-2, 2, boxes.shape[:2])
    x = np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype(np.float32)
    session = ortops.InferenceSession(model.SerializeToString(), options(), providers=[CPU], operators=[NMSRotated])
    feeds = {"x": x, "boxes": boxes.astype(np.float32), "by_box": scores.transpose(0, 2, 1).astype(np.float32)}
    features, best = session.run(None, feeds)
    selected = run(NODE.format(0.1, 0.05), boxes, scores)
    assert 3 < len(selected) < 100
    np.testing.assert_array_equal(best, scores.astype(np.float32)[tuple(selected.T)])
    rois = boxes.astype(np.float32)[selected[:, 0], selected[:, 2]]
    attributes: dict[str, Any] = {
        "output_height": 2,
        "output_width": 2,
        "sampling_ratio": 2,
        "aligned": 1,
        "clockwise": 1,
    }
    expected = ortops.roi_align_rotated(x, rois, selected[:, 0], spatial_scale=0.125, **attributes)
    assert features.tobytes() == expected.tobytes()
