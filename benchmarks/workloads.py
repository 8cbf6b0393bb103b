# SPDX-License-Identifier: MIT
"""The measured operations, on maps, RoIs and sizes that are typical of detectors. The tests use the same tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ortops.operators import BY_NAME
from ortops.spec import ELEMENT_DTYPES, Operator

Array = np.ndarray[Any, Any]
Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class Workload:
    """RoIs with sides of about `sizes` (least, most) input pixels, all over maps of `shape` [N, C, H, W]."""

    name: str
    shape: Shape
    rois: int
    bins: int
    sampling_ratio: int
    spatial_scale: float
    sizes: tuple[float, float]

    @property
    def y_shape(self) -> Shape:
        """The shape of the output."""
        return (self.rois, self.shape[1], self.bins, self.bins)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of RoiAlign."""
        lengths = {"output_height": self.bins, "output_width": self.bins}
        return {**lengths, "sampling_ratio": self.sampling_ratio, "spatial_scale": self.spatial_scale}

    def inputs(self) -> dict[str, Array]:
        """Return X, rois and batch_indices, in float32 where they are real, always the same."""
        rng = np.random.default_rng(0)
        extent = np.array([self.shape[3], self.shape[2]]) / self.spatial_scale
        least, most = np.log(self.sizes)
        side = np.exp(rng.uniform(least, most, (self.rois, 1)) + rng.uniform(-0.5, 0.5, (self.rois, 2)))
        centre = rng.uniform(0, extent, (self.rois, 2))
        corners = np.stack([centre - side / 2, centre + side / 2], axis=1).clip(0, extent)
        return {
            "X": rng.standard_normal(self.shape, np.float32),
            "rois": corners.reshape(-1, 4).astype(np.float32),
            "batch_indices": rng.integers(0, self.shape[0], self.rois),
        }


@dataclass(frozen=True)
class Rotated(Workload):
    """The same RoIs, each rotated about its centre by any angle: [cx, cy, w, h, angle]."""

    def inputs(self) -> dict[str, Array]:
        """Return the inputs of a workload with rotated rois."""
        inputs = super().inputs()
        near, far = inputs["rois"][:, :2], inputs["rois"][:, 2:]
        angle = np.random.default_rng(2).uniform(-np.pi, np.pi, (self.rois, 1)).astype(np.float32)
        return {**inputs, "rois": np.concatenate([(near + far) / 2, far - near, angle], axis=1)}


@dataclass(frozen=True)
class Resampling:
    """Maps of `shape` [N, C, H, W] resized to `y_shape` (ONNX's half_pixel)."""

    name: str
    shape: Shape
    y_shape: Shape

    def inputs(self) -> dict[str, Array]:
        """Return X in float32, always the same."""
        return {"X": np.random.default_rng(0).standard_normal(self.shape, np.float32)}


@dataclass(frozen=True)
class Attention:
    """Deformable attention on maps of `levels` [H, W] with `heads` of `channels`, and `points` for each level.

    The queries of an encoder are the pixels of all maps, and sample near themselves; those of a decoder are `queries` boxes.
    """

    name: str
    levels: tuple[tuple[int, int], ...]
    queries: int = 0
    heads: int = 8
    channels: int = 32
    points: int = 4

    @property
    def shape(self) -> Shape:
        """The shape of value."""
        return (1, sum(height * width for height, width in self.levels), self.heads, self.channels)

    @property
    def y_shape(self) -> tuple[int, int, int]:
        """The shape of the output."""
        return (1, self.queries or self.shape[1], self.heads * self.channels)

    def inputs(self) -> dict[str, Array]:
        """Return value, sampling_locations and attention_weights in float32 and spatial_shapes, always the same."""
        rng = np.random.default_rng(0)
        if self.queries:
            centers, spread = rng.random((self.queries, 2)), np.full((len(self.levels), 1, 2), 0.05)
        else:
            pixels = [np.argwhere(np.ones(level)) + 0.5 for level in self.levels]
            centers = np.concatenate([(at / level)[:, ::-1] for at, level in zip(pixels, self.levels, strict=True)])
            spread = 1.5 / np.array(self.levels)[:, None, ::-1]
        of_points = (1, len(centers), self.heads, len(self.levels), self.points)
        locations = centers[:, None, None, None] + spread * rng.standard_normal((*of_points, 2))
        weights = rng.random(of_points)
        return {
            "value": rng.standard_normal(self.shape, np.float32),
            "spatial_shapes": np.array(self.levels),
            "sampling_locations": locations.astype(np.float32),
            "attention_weights": (weights / weights.sum((3, 4), keepdims=True)).astype(np.float32),
        }


WORKLOADS = (
    Workload("P2", (1, 256, 200, 304), 1000, 7, 2, 1 / 4, (16, 224)),
    Workload("P2 adaptive", (1, 256, 200, 304), 1000, 7, 0, 1 / 4, (16, 224)),
    Workload("P4", (2, 256, 50, 76), 512, 7, 2, 1 / 16, (112, 600)),
    Workload("mask", (1, 256, 200, 304), 100, 14, 2, 1 / 4, (16, 224)),
    Workload("C4", (1, 1024, 50, 76), 300, 14, 0, 1 / 16, (32, 800)),
    Workload("thin", (8, 3, 512, 512), 64, 32, 0, 1.0, (32, 400)),
    Workload("one", (1, 256, 50, 76), 1, 7, 2, 1 / 16, (112, 600)),
)
ROTATED = (
    Rotated("P2 rotated", (1, 256, 200, 304), 512, 7, 2, 1 / 4, (16, 224)),
    Rotated("P2 rotated adaptive", (1, 256, 200, 304), 512, 7, 0, 1 / 4, (16, 224)),
    Rotated("P4 rotated", (1, 256, 50, 76), 512, 7, 2, 1 / 16, (112, 600)),
)
RESAMPLINGS = (Resampling("P3 to P2", (1, 256, 100, 152), (1, 256, 200, 304)),)
ATTENTIONS = (
    Attention("encoder", ((100, 134), (50, 67), (25, 34), (13, 17))),
    Attention("decoder", ((100, 134), (50, 67), (25, 34), (13, 17)), 300),
)
IN_MODEL = (
    # The paper on feature pyramids (arXiv 1612.03144, equation 1) gives each RoI to a level by its size.
    Workload("FPN P2", (1, 256, 200, 304), 250, 7, 2, 1 / 4, (16, 112)),
    Workload("FPN P3", (1, 256, 100, 152), 250, 7, 2, 1 / 8, (112, 224)),
    Workload("FPN P4", (1, 256, 50, 76), 250, 7, 2, 1 / 16, (224, 448)),
    Workload("FPN P5", (1, 256, 25, 38), 250, 7, 2, 1 / 32, (448, 800)),
    *(workload for workload in WORKLOADS if workload.name in ("mask", "C4")),
)


AnyWorkload = Workload | Resampling | Attention


@dataclass(frozen=True)
class Operation:
    """The computation of `outputs`, Y or gradients, by a forward operator or its gradient.

    mode: that of RoiAlign or of Resize; "" for operators without modes.
    """

    name: str
    forward: Operator
    mode: str = ""
    outputs: tuple[str, ...] = ("Y",)
    workloads: tuple[AnyWorkload, ...] = field(default=WORKLOADS, repr=False)

    @property
    def operator(self) -> Operator:
        """The operator of this project that computes it."""
        return self.forward if self.outputs == ("Y",) else BY_NAME[self.forward.gradient or ""]


ROI_ALIGN, ROI_ALIGN_ROTATED, MAX_ROI_POOL, RESAMPLE, ATTENTION = (
    BY_NAME[name] for name in ("RoiAlign_22", "RoIAlignRotated", "MaxRoiPool_22", "DmlResample", "MSDeformAttn")
)
_DX, _DROIS, _BY_ALL = ("dX",), ("drois",), ("dvalue", "dlocations", "dweights")

OPERATIONS = (
    Operation("average", ROI_ALIGN, "avg"),
    Operation("max", ROI_ALIGN, "max"),
    Operation("max_interpolated", ROI_ALIGN, "max_interpolated"),
    Operation("dX", ROI_ALIGN, "avg", _DX),
    Operation("drois", ROI_ALIGN, "avg", _DROIS),
    Operation("dX+drois", ROI_ALIGN, "avg", (*_DX, *_DROIS)),
    Operation("max dX", ROI_ALIGN, "max", _DX),
    Operation("max drois", ROI_ALIGN, "max", _DROIS),
    Operation("max_interpolated dX", ROI_ALIGN, "max_interpolated", _DX),
    Operation("max_interpolated drois", ROI_ALIGN, "max_interpolated", _DROIS),
    Operation("rotated", ROI_ALIGN_ROTATED, workloads=ROTATED),
    Operation("rotated dX", ROI_ALIGN_ROTATED, "", _DX, ROTATED),
    Operation("rotated drois", ROI_ALIGN_ROTATED, "", _DROIS, ROTATED),
    Operation("pixels", MAX_ROI_POOL),
    Operation("pixels dX", MAX_ROI_POOL, "", _DX),
    Operation("linear", RESAMPLE, "linear", workloads=RESAMPLINGS),
    Operation("nearest", RESAMPLE, "nearest", workloads=RESAMPLINGS),
    Operation("linear dX", RESAMPLE, "linear", _DX, RESAMPLINGS),
    Operation("nearest dX", RESAMPLE, "nearest", _DX, RESAMPLINGS),
    Operation("attention", ATTENTION, workloads=ATTENTIONS),
    Operation("attention gradient", ATTENTION, "", _BY_ALL, ATTENTIONS),
)


@dataclass(frozen=True)
class Problem:
    """An operation on a workload in an element type."""

    operation: Operation
    workload: AnyWorkload
    element_type: str = "float"

    @property
    def arrays(self) -> Mapping[str, Array]:
        """X, dY, x_shape, and rois and batch_indices of RoIs, by name. Problems on one workload share the memory."""
        arrays = _arrays(self.workload, self.element_type)
        if self.operation.forward is not MAX_ROI_POOL:
            return arrays
        rois = arrays["rois"]
        return {**arrays, "rois": np.column_stack([arrays["batch_indices"].astype(rois.dtype), rois])}


# Four, since all element types of a workload are measured in turn.
@lru_cache(maxsize=4)
def _arrays(workload: AnyWorkload, element_type: str) -> Mapping[str, Array]:
    real = {**workload.inputs(), "dY": np.random.default_rng(1).standard_normal(workload.y_shape, np.float32)}
    dtype = ELEMENT_DTYPES[element_type]
    cast = {name: array.astype(dtype, copy=False) if array.dtype.kind == "f" else array for name, array in real.items()}
    return {**cast, "x_shape": np.array(workload.shape)}
