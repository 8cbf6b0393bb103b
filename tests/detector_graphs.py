"""The second stages of detectors as their exporters write them into models, and what they compute, RoI by RoI.

Feature maps of several levels go in, with RoIs that are each pooled from the level of their size; features of all RoIs and
the scores of a linear layer come out. Two ways to put the levels together are in use:

- `scattered`: mmdet's SingleRoIExtractor and mmrotate's, through mmdeploy, and detectron2's ROIPooler. Each level takes its
  RoIs with NonZero and Gather, and ScatterND puts the features in their places. mmdeploy has two RoIs of zeros for each
  level before all others, so that none goes without.
- `permuted`: detectron2's Caffe2ROIPooler. DistributeFpnProposals sorts the RoIs by level, Concat joins the features, and
  BatchPermutation puts them in order. The first and the last of these are caffe2's; here they are functions of the model.

Source: mmdeploy 1.3, mmdeploy/codebase/mmdet/models/roi_heads/single_level_roi_extractor.py; mmrotate's
RotatedSingleRoIExtractor; detectron2 0.6, detectron2/modeling/poolers.py and detectron2/export/c10.py; what caffe2 says of
DistributeFpnProposals and BatchPermutation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser

from ortops.operators import BY_NAME
from ortops.reference import evaluate

Array = npt.NDArray[Any]

STRIDES = (4, 8, 16, 32)
IMAGE = (96, 128)
CHANNELS, HEIGHT, WIDTH, CLASSES = 2, 3, 2, 4
FINEST = 12.0
"""Pixels. RoIs of less than twice this size are pooled from the first level, of less than four times from the second."""


@dataclass(frozen=True)
class Pooler:
    """One pooling layer of a level.

    text: the node that makes y from x and rois, at a spatial scale.
    domain: of the node.
    columns: of rois; the first is the index of the image.
    size: of the sides of the RoIs, given as columns.
    operator, attributes: this project's operator that computes it.
    unit: radians of a unit of the angle.
    """

    text: str
    domain: str
    columns: int
    operator: str
    attributes: dict[str, Any] = field(default_factory=dict)
    unit: float = 1.0

    @property
    def rotated(self) -> bool:
        return self.columns == 6

    def node(self, x: str, rois: str, y: str, stride: int) -> str:
        prefix = f"{self.domain}." if self.domain else ""
        return f"{y} = {prefix}{self.text.format(x=x, rois=rois, scale=1 / stride)}"

    def pooled(self, x: Array, roi: Array, stride: int) -> Array:
        """The features of one RoI, from the reference implementation."""
        attributes = self.attributes | {"spatial_scale": 1 / stride}
        if self.operator.startswith("MaxRoiPool"):
            inputs = [x, roi[None]]
        else:
            box = roi[1:].copy()
            if self.rotated:
                box[-1] *= self.unit
            inputs = [x, box[None], np.array([int(roi[0])])]
        (y,) = evaluate(BY_NAME[self.operator], inputs, attributes)
        assert y is not None
        pooled: Array = y[0]
        return pooled


_SIZES = f"output_height = {HEIGHT}, output_width = {WIDTH}"
_OUR_SIZES = {"output_height": HEIGHT, "output_width": WIDTH}
_ALIGNED = {"coordinate_transformation_mode": "half_pixel"}

MMDET = Pooler(
    f'MMCVRoiAlign <{_SIZES}, spatial_scale = {{scale}}, sampling_ratio = 0, mode = "avg", aligned = 1> ({{x}}, {{rois}})',
    "mmdeploy",
    5,
    "RoiAlign_22",
    _OUR_SIZES | _ALIGNED,
)
MMDET_MAX = Pooler(
    f'MMCVRoiAlign <{_SIZES}, spatial_scale = {{scale}}, sampling_ratio = 2, mode = "max", aligned = 0> ({{x}}, {{rois}})',
    "mmcv",
    5,
    "RoiAlign_22",
    _OUR_SIZES
    | {"coordinate_transformation_mode": "output_half_pixel", "mode": "max_interpolated", "sampling_ratio": 2},
)
MMROTATE = Pooler(
    f"MMCVRoIAlignRotated <{_SIZES}, spatial_scale = {{scale}}, sampling_ratio = 2, aligned = 1, clockwise = 1>"
    " ({x}, {rois})",
    "mmcv",
    6,
    "RoIAlignRotated",
    _OUR_SIZES | {"sampling_ratio": 2, "aligned": 1, "clockwise": 1},
)
_CAFFE2 = (
    f'order = "NCHW", spatial_scale = {{scale}}, pooled_h = {HEIGHT}, pooled_w = {WIDTH}, sampling_ratio = {{{{ratio}}}}, '
    "aligned = 1"
)
DETECTRON2 = Pooler(
    f"RoIAlign <{_CAFFE2}> ({{x}}, {{rois}})".replace("{{ratio}}", "0"),
    "org.pytorch._caffe2",
    5,
    "RoiAlign_22",
    _OUR_SIZES | _ALIGNED,
)
DETECTRON2_ROTATED = Pooler(
    f"RoIAlignRotated <{_CAFFE2}> ({{x}}, {{rois}})".replace("{{ratio}}", "-1"),
    "org.pytorch._caffe2",
    6,
    "RoIAlignRotated",
    _OUR_SIZES | {"sampling_ratio": 0, "aligned": 1, "clockwise": 0},
    math.pi / 180,
)
ROI_POOL = Pooler(
    f"MaxRoiPool <pooled_shape = [{HEIGHT}, {WIDTH}], spatial_scale = {{scale}}> ({{x}}, {{rois}})",
    "",
    5,
    "MaxRoiPool_1",
    {"pooled_shape": (HEIGHT, WIDTH)},
)


def _levels_text(pooler: Pooler) -> str:
    """Text of the nodes that make level [R], in float, from rois [R, columns]."""
    constants = {"finest": FINEST, "tiny": 1e-6, "none": 0.0, "top": len(STRIDES) - 1.0, "ln2": math.log(2)}
    lines = [f"{name} = Constant <value = float {{{value}}}> ()" for name, value in constants.items()]
    lines += [f"column{i} = Constant <value = int64 {{{i}}}> ()" for i in range(1, 5)]
    lines += [f"side{i} = Gather <axis = 1> (rois, column{i})" for i in range(1, 5)]
    if pooler.rotated:
        lines.append("area = Mul(side3, side4)")
    else:
        lines += ["w = Sub(side3, side1)", "h = Sub(side4, side2)", "area = Mul(w, h)"]
    lines += [
        "scale = Sqrt(area)",
        "ratio = Div(scale, finest)",
        "above = Add(ratio, tiny)",
        "logarithm = Log(above)",
        "log2 = Div(logarithm, ln2)",
        "whole = Floor(log2)",
        "level = Clip(whole, none, top)",
    ]
    return "\n".join(lines)


def scattered(pooler: Pooler, opset: int) -> onnx.ModelProto:
    """Levels put together by ScatterND."""
    extra, count = 2 * len(STRIDES), len(STRIDES)
    zeros = ", ".join(["0"] * extra * pooler.columns)
    lines = [
        _levels_text(pooler),
        f"zero_rois = Constant <value = float[{extra}, {pooler.columns}] {{{zeros}}}> ()",
        f"all_levels = Constant <value = float[{extra}] {{{', '.join(2 * [str(i) for i in range(count)])}}}> ()",
        "more_rois = Concat <axis = 0> (zero_rois, rois)",
        "more_levels = Concat <axis = 0> (all_levels, level)",
        "rows = Shape(more_levels)",
        f"rest = Constant <value = int64[3] {{{CHANNELS}, {HEIGHT}, {WIDTH}}}> ()",
        "shape = Concat <axis = 0> (rows, rest)",
        "features0 = ConstantOfShape(shape)",
        "column = Constant <value = int64[2] {-1, 1}> ()",
        "row = Constant <value = int64[1] {-1}> ()",
    ]
    for i, stride in enumerate(STRIDES):
        lines += [
            f"number{i} = Constant <value = float {{{i}}}> ()",
            f"mask{i} = Equal(more_levels, number{i})",
            f"places{i} = NonZero(mask{i})",
            f"flat{i} = Reshape(places{i}, row)",
            f"rois{i} = Gather <axis = 0> (more_rois, flat{i})",
            pooler.node(f"x{i}", f"rois{i}", f"pooled{i}", stride),
            f"index{i} = Reshape(flat{i}, column)",
            f"features{i + 1} = ScatterND(features{i}, index{i}, pooled{i})",
        ]
    lines += [
        f"first = Constant <value = int64[1] {{{extra}}}> ()",
        f"last = Constant <value = int64[1] {{{2**31}}}> ()",
        "axis = Constant <value = int64[1] {0}> ()",
        f"features = Slice(features{count}, first, last, axis)",
    ]
    return _model(pooler, opset, lines)


def permuted(pooler: Pooler, opset: int) -> onnx.ModelProto:
    """Levels put together by Concat and BatchPermutation, with caffe2's operators for it as functions of the model."""
    count = len(STRIDES)
    shuffled = ", ".join(f"pooled{i}" for i in range(count))
    parts = ", ".join(f"fpn{i}" for i in range(count))
    lines = [
        f"{parts}, restore = org.pytorch._caffe2.DistributeFpnProposals <legacy_plus_one = 0> (rois)",
        *(pooler.node(f"x{i}", f"fpn{i}", f"pooled{i}", stride) for i, stride in enumerate(STRIDES)),
        f"shuffled = Concat <axis = 0> ({shuffled})",
        "features = org.pytorch._caffe2.BatchPermutation(shuffled, restore)",
    ]
    body = [_levels_text(pooler), "row = Constant <value = int64[1] {-1}> ()"]
    for i in range(count):
        body += [
            f"number{i} = Constant <value = float {{{i}}}> ()",
            f"mask{i} = Equal(level, number{i})",
            f"places{i} = NonZero(mask{i})",
            f"flat{i} = Reshape(places{i}, row)",
            f"fpn{i} = Gather <axis = 0> (rois, flat{i})",
        ]
    body += [
        f"order = Concat <axis = 0> ({', '.join(f'flat{i}' for i in range(count))})",
        "number = Shape(order)",
        "sorted, inverse = TopK <axis = 0, largest = 0> (order, number)",
        "restore = Cast <to = 6> (inverse)",
    ]
    functions = f"""
        <domain: "org.pytorch._caffe2", opset_import: ["": {opset}]>
        DistributeFpnProposals <legacy_plus_one> (rois) => ({parts}, restore) {{ {chr(10).join(body)} }}
        <domain: "org.pytorch._caffe2", opset_import: ["": {opset}]>
        BatchPermutation (x, indices) => (y) {{ y = Gather <axis = 0> (x, indices) }}
    """
    return _model(pooler, opset, lines, functions)


Builder = Callable[[Pooler, int], onnx.ModelProto]


def _model(pooler: Pooler, opset: int, lines: list[str], functions: str = "") -> onnx.ModelProto:
    maps = ", ".join(
        f"float[N, {CHANNELS}, {IMAGE[0] // stride}, {IMAGE[1] // stride}] x{i}" for i, stride in enumerate(STRIDES)
    )
    weights = f"float[{CHANNELS * HEIGHT * WIDTH}, {CLASSES}] weights"
    domains = dict.fromkeys(filter(None, (pooler.domain, "org.pytorch._caffe2" if functions else "")))
    imports = ", ".join([f'"": {opset}', *(f'"{domain}": 1' for domain in domains)])
    body = "\n".join([*lines, "flattened = Flatten(features)", "scores = MatMul(flattened, weights)"])
    return onnx.parser.parse_model(
        f"<ir_version: 8, opset_import: [{imports}]> detector ({maps}, float[R, {pooler.columns}] rois, {weights})"
        f" => (float[R, C, H, W] features, float[R, S] scores) {{ {body} }} {functions}"
    )


def feeds(pooler: Pooler, count: int) -> dict[str, Array]:
    """Inputs of any of the models with RoIs on two images, of all sizes that the levels are for."""
    random = np.random.default_rng(7)
    found = {
        f"x{i}": random.normal(size=(2, CHANNELS, IMAGE[0] // stride, IMAGE[1] // stride)).astype(np.float32)
        for i, stride in enumerate(STRIDES)
    }
    # Off the sizes at which the level changes.
    sizes = FINEST * 2.0 ** (np.arange(count)[:, None] % len(STRIDES) + random.uniform(0.2, 0.8, (count, 2)))
    centres = random.uniform(0, 1, (count, 2)) * IMAGE[::-1]
    images = random.integers(0, 2, (count, 1))
    if pooler.rotated:
        angles = random.uniform(-math.pi, math.pi, (count, 1)) / pooler.unit
        rois = np.hstack([images, centres, sizes, angles])
    else:
        rois = np.hstack([images, centres - sizes / 2, centres + sizes / 2])
    weights = random.normal(size=(CHANNELS * HEIGHT * WIDTH, CLASSES))
    return found | {"rois": rois.astype(np.float32), "weights": weights.astype(np.float32)}


def levels(pooler: Pooler, rois: Array) -> Array:
    """The level of each RoI."""
    sides = rois[:, 3:5] if pooler.rotated else rois[:, 3:5] - rois[:, 1:3]
    found: Array = np.floor(np.log2(np.sqrt(sides.prod(axis=1, dtype=np.float64)) / FINEST + 1e-6))
    return found.clip(0, len(STRIDES) - 1).astype(int)


def expected(pooler: Pooler, inputs: dict[str, Array]) -> tuple[Array, Array]:
    """Features and scores, in float64."""
    features = np.zeros((len(inputs["rois"]), CHANNELS, HEIGHT, WIDTH))
    for number, (level, roi) in enumerate(zip(levels(pooler, inputs["rois"]), inputs["rois"], strict=True)):
        features[number] = pooler.pooled(inputs[f"x{level}"], roi, STRIDES[level])
    return features, features.reshape(len(features), CHANNELS * HEIGHT * WIDTH) @ inputs["weights"].astype(np.float64)
