"""What is measured: operations on maps, RoIs and sizes that are typical of detectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ortops.operators import BY_NAME
from ortops.spec import ELEMENT_DTYPES, Operator

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Workload:
    """RoIs with sides of about `sizes` (least, most) input pixels, all over maps of `shape` [N, C, H, W]."""

    name: str
    shape: tuple[int, int, int, int]
    rois: int
    bins: int
    sampling_ratio: int
    spatial_scale: float
    sizes: tuple[float, float]

    @property
    def gradient_attributes(self) -> dict[str, Any]:
        """The attributes of RoiAlignGrad, whose dY has the sizes of the output."""
        return {"sampling_ratio": self.sampling_ratio, "spatial_scale": self.spatial_scale}

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of RoiAlign."""
        return {"output_height": self.bins, "output_width": self.bins, **self.gradient_attributes}

    @property
    def facts(self) -> dict[str, str]:
        """The columns of a table that describe the workload."""
        samples = str(self.sampling_ratio) if self.sampling_ratio else "by size"
        return {"X": _by(self.shape), "RoIs": str(self.rois), "bins": str(self.bins), "samples": samples}

    def inputs(self) -> dict[str, Array]:
        """Return X, rois and batch_indices, in float32 where they are real, always the same."""
        rng = np.random.default_rng(0)
        rois = self._corners(rng)
        return {
            "X": rng.standard_normal(self.shape, np.float32),
            "rois": rois,
            "batch_indices": rng.integers(0, self.shape[0], self.rois),
        }

    def _corners(self, rng: np.random.Generator) -> Array:
        extent = np.array([self.shape[3], self.shape[2]]) / self.spatial_scale
        least, most = (float(np.log(size)) for size in self.sizes)
        side = np.exp(rng.uniform(least, most, (self.rois, 1)) + rng.uniform(-0.5, 0.5, (self.rois, 2)))
        centre = rng.uniform(0, extent, (self.rois, 2))
        corners = np.stack([centre - side / 2, centre + side / 2], axis=1).clip(0, extent)
        return corners.reshape(-1, 4).astype(np.float32)

    def gradient(self) -> Array:
        """Return a gradient dY, always the same."""
        return _normal((self.rois, self.shape[1], self.bins, self.bins))


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
    """Maps of `shape` [N, C, H, W] resized to `lengths` [H, W] (ONNX's half_pixel)."""

    name: str
    shape: tuple[int, int, int, int]
    lengths: tuple[int, int]

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        """The shape of the output."""
        return (*self.shape[:2], *self.lengths)

    @property
    def facts(self) -> dict[str, str]:
        """The columns of a table that describe the workload."""
        return {"X": _by(self.shape), "Y": _by(self.y_shape)}

    def inputs(self) -> dict[str, Array]:
        """Return X in float32, always the same."""
        return {"X": np.random.default_rng(0).standard_normal(self.shape, np.float32)}

    def gradient(self) -> Array:
        """Return a gradient dY, always the same."""
        return _normal(self.y_shape)


@dataclass(frozen=True)
class Pyramid:
    """Maps that one model computes, each with RoIs of its own."""

    name: str
    levels: tuple[Workload, ...]

    @property
    def facts(self) -> dict[str, str]:
        """The columns of a table for all levels together."""
        rois = sum(level.rois for level in self.levels)
        return {**self.levels[0].facts, "X": f"{len(self.levels)} maps", "RoIs": str(rois)}


def _normal(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


WORKLOADS = (
    Workload("P2", (1, 256, 200, 304), 1000, 7, 2, 1 / 4, (16, 224)),
    Workload("P2 adaptive", (1, 256, 200, 304), 1000, 7, 0, 1 / 4, (16, 224)),
    Workload("P4", (2, 256, 50, 76), 512, 7, 2, 1 / 16, (112, 600)),
    Workload("mask", (1, 256, 200, 304), 100, 14, 2, 1 / 4, (16, 224)),
    Workload("C4", (1, 1024, 50, 76), 300, 14, 0, 1 / 16, (32, 800)),
    Workload("thin", (8, 3, 512, 512), 64, 32, 0, 1.0, (32, 400)),
    Workload("one", (1, 256, 50, 76), 1, 7, 2, 1 / 16, (112, 600)),
)

# The paper on feature pyramids (arXiv 1612.03144, equation 1) gives each RoI to a level by its size.
FPN = Pyramid(
    "FPN",
    (
        Workload("FPN P2", (1, 256, 200, 304), 250, 7, 2, 1 / 4, (16, 112)),
        Workload("FPN P3", (1, 256, 100, 152), 250, 7, 2, 1 / 8, (112, 224)),
        Workload("FPN P4", (1, 256, 50, 76), 250, 7, 2, 1 / 16, (224, 448)),
        Workload("FPN P5", (1, 256, 25, 38), 250, 7, 2, 1 / 32, (448, 800)),
    ),
)

PYRAMIDS = (FPN, *(Pyramid(one.name, (one,)) for one in WORKLOADS if one.name in ("mask", "C4")))

ROTATED = (
    Rotated("P2 rotated", (1, 256, 200, 304), 512, 7, 2, 1 / 4, (16, 224)),
    Rotated("P2 rotated adaptive", (1, 256, 200, 304), 512, 7, 0, 1 / 4, (16, 224)),
    Rotated("P4 rotated", (1, 256, 50, 76), 512, 7, 2, 1 / 16, (112, 600)),
)

RESAMPLINGS = (Resampling("P3 to P2", (1, 256, 100, 152), (200, 304)),)


@dataclass(frozen=True)
class Operation:
    """The computation of `outputs`, among Y, dX and drois, by a forward operator or its gradient.

    mode: that of RoiAlign or of Resize; "" for operators without modes.
    """

    name: str
    forward: Operator
    mode: str = ""
    outputs: tuple[str, ...] = ("Y",)
    workloads: tuple[Workload | Resampling, ...] = field(default=WORKLOADS, repr=False)

    @property
    def is_gradient(self) -> bool:
        """Whether a gradient is computed."""
        return self.outputs != ("Y",)

    @property
    def operator(self) -> Operator:
        """The operator of this project that computes it."""
        return BY_NAME[self.forward.gradient or ""] if self.is_gradient else self.forward


_ROI_ALIGN, _ROTATED, _MAX_ROI_POOL, _RESAMPLE = (
    BY_NAME[name] for name in ("RoiAlign_22", "RoIAlignRotated", "MaxRoiPool_22", "DmlResample")
)
DX, DROIS = ("dX",), ("drois",)

OPERATIONS = (
    Operation("avg", _ROI_ALIGN, "avg"),
    Operation("max", _ROI_ALIGN, "max"),
    Operation("max_interpolated", _ROI_ALIGN, "max_interpolated"),
    Operation("dX", _ROI_ALIGN, "avg", DX),
    Operation("drois", _ROI_ALIGN, "avg", DROIS),
    Operation("dX+drois", _ROI_ALIGN, "avg", (*DX, *DROIS)),
    Operation("max dX", _ROI_ALIGN, "max", DX),
    Operation("max drois", _ROI_ALIGN, "max", DROIS),
    Operation("max_interpolated dX", _ROI_ALIGN, "max_interpolated", DX),
    Operation("max_interpolated drois", _ROI_ALIGN, "max_interpolated", DROIS),
    Operation("rotated", _ROTATED, workloads=ROTATED),
    Operation("rotated dX", _ROTATED, "", DX, ROTATED),
    Operation("rotated drois", _ROTATED, "", DROIS, ROTATED),
    Operation("pixels", _MAX_ROI_POOL),
    Operation("pixels dX", _MAX_ROI_POOL, "", DX),
    Operation("linear", _RESAMPLE, "linear", workloads=RESAMPLINGS),
    Operation("nearest", _RESAMPLE, "nearest", workloads=RESAMPLINGS),
    Operation("linear dX", _RESAMPLE, "linear", DX, RESAMPLINGS),
    Operation("nearest dX", _RESAMPLE, "nearest", DX, RESAMPLINGS),
)

IN_MODEL, WITH_CONVERSIONS = "in-model", "in-model with conversions"
"""The first operation inside a model (`benchmarks.in_model`), and the same with what the runtime converts for it."""


@dataclass(frozen=True)
class Problem:
    """An operation on a workload in an element type."""

    operation: Operation
    workload: Workload | Resampling
    element_type: str

    @property
    def arrays(self) -> dict[str, Array]:
        """X, and those of rois, batch_indices, dY and x_shape that the operation has, by name.

        Successive problems on one workload share the memory of the maps.
        """
        arrays = _inputs(self.workload, self.element_type)
        if self.operation.forward is _MAX_ROI_POOL:
            rois = arrays["rois"]
            arrays = {"X": arrays["X"], "rois": np.column_stack([arrays["batch_indices"].astype(rois.dtype), rois])}
        if not self.operation.is_gradient:
            return arrays
        return {**arrays, "dY": _gradient(self.workload, self.element_type), "x_shape": np.array(self.workload.shape)}


# Two, since other types are compared with float.
@lru_cache(maxsize=2)
def _inputs(workload: Workload | Resampling, element_type: str) -> dict[str, Array]:
    return {name: _cast(array, element_type) for name, array in workload.inputs().items()}


@lru_cache(maxsize=2)
def _gradient(workload: Workload | Resampling, element_type: str) -> Array:
    return _cast(workload.gradient(), element_type)


def _cast(array: Array, element_type: str) -> Array:
    return array.astype(ELEMENT_DTYPES[element_type], copy=False) if array.dtype.kind == "f" else array
