"""The conventions of RoiAlign: where each one puts the samples of a RoI, and what values follow.

The reference computes both the samples and the values, so a picture cannot disagree with the suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from conformance.case import Array
from conformance.expected_values import Floats, reference
from conformance.geometry.rois import AxisGeometry, Coordinates, Geometry, Sampling
from ortops.operators import BY_NAME
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.spec import AttributeValue, Operator

Key = Coordinates | Literal["DirectML"]

TORCHVISION = (
    "torchvision.ops.roi_align has no convention of its own: aligned=False is output_half_pixel, aligned=True is "
    "half_pixel, both with the mean of the samples. Its sampling_ratio > 0 is that many samples along each axis of a "
    "bin, as in ONNX; -1 or 0 is adaptive, the size of the bin in pixels rounded up, as 0 is in ONNX."
)
MOST_SAMPLES = 1_000_000
"""The limit of samples on the map, over all bins and channels: a convention with more has no values."""

_NAMES: dict[Key, tuple[str, str]] = {
    "output_half_pixel": ("ONNX RoiAlign-10", "output_half_pixel, the same as torchvision aligned=False"),
    "half_pixel": ("ONNX RoiAlign-16/22", "half_pixel, the same as torchvision aligned=True"),
    "DirectML": ("DirectML", ""),
}


@dataclass(frozen=True, slots=True)
class RoiConvention:
    """One convention, with the attributes of a case translated into it.

    is_own: whether the case itself uses this convention.
    notes: sentences about attributes of the case that this convention does not have.
    """

    key: Key
    geometry: Geometry
    sampling: Sampling
    is_own: bool
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name that headings show."""
        return _NAMES[self.key][0]

    @property
    def short(self) -> str:
        """The short name that columns of tables show."""
        return self.name.removeprefix("ONNX ")

    @property
    def detail(self) -> str:
        """The name of the convention in ONNX and torchvision, or the attributes that make it."""
        offsets = "input_pixel_offset {:g}, output_pixel_offset {:g}".format(*self.sampling.offsets)
        return _NAMES[self.key][1] or offsets

    def axes(self, r: int) -> tuple[AxisGeometry, AxisGeometry]:
        """The geometry of RoI `r` along y and along x."""
        return self.sampling.place(self.roi(r))

    def output(self, r: int, c: int) -> Floats | None:
        """The bins [rows, columns] of RoI `r` and channel `c`; None without a feature map, or if samples are too many."""
        x = self.geometry.x
        if x is None or self._samples([r]) > MOST_SAMPLES:
            return None
        n = int(self.geometry.indices[r])
        inputs = self._inputs(x[n : n + 1, c : c + 1], self.geometry.rois[r : r + 1], np.zeros(1, np.int64))
        sizes = dict(zip(("output_height", "output_width"), self.sampling.bins, strict=True))
        operator, outputs = self._operator(gradient=False)
        values = reference(operator, {**self._attributes(operator), **sizes}, inputs, outputs)
        return np.asarray(values[outputs[0]][0, 0], np.float64)

    def gradients(self, wanted: Sequence[str]) -> dict[str, Floats]:
        """The wanted gradients among dx and drois by these names; empty if there are too many samples."""
        geometry = self.geometry
        if geometry.dy is None or self._samples(range(len(geometry.rois))) * geometry.x_shape[1] > MOST_SAMPLES:
            return {}
        operator, outputs = self._operator(gradient=True)
        inputs = self._inputs(geometry.x, geometry.rois, geometry.indices)
        inputs |= {operator.inputs[0].name: geometry.dy, "x_shape": np.array(geometry.x_shape, np.int64)}
        roles = dict(zip(outputs, ("dx", "drois"), strict=True))
        names = [name for name, role in roles.items() if role in wanted]
        answer = reference(operator, self._attributes(operator), inputs, names)
        values = {roles[name]: value for name, value in answer.items()}
        if "drois" in values and self.key != "DirectML":
            values["drois"] = values["drois"] * self._scale_ratio()
        return values

    def _samples(self, rois: Sequence[int]) -> float:
        return sum(y.on_map * x.on_map for y, x in map(self.axes, rois))

    def _scale_ratio(self) -> Floats:
        """Factors of x1, y1, x2, y2. They turn coordinates along y into units of x, since ONNX has one scale for both."""
        scale_y, scale_x = self.geometry.sampling.scales
        return np.array([1.0, scale_y / scale_x] * 2)

    def roi(self, r: int) -> list[float]:
        """The coordinates x1, y1, x2, y2 as stored; in the conventions of ONNX, those along y are in units of x."""
        row = self.geometry.rois[r] if self.key == "DirectML" else self.geometry.rois[r] * self._scale_ratio()
        return [float(end) for end in row]

    def _operator(self, *, gradient: bool) -> tuple[Operator, tuple[str, ...]]:
        onnx = {"output_half_pixel": "RoiAlign_10", "half_pixel": "RoiAlign_16"}.get(self.key)
        name = "RoiAlignGrad" if onnx and gradient else onnx or ("DmlRoiAlignGrad" if gradient else "DmlRoiAlign")
        operator = BY_NAME[name]
        return operator, tuple(tensor.name for tensor in operator.outputs)

    def _inputs(self, x: Floats | None, rois: Floats, indices: Array) -> dict[str, Array]:
        if self.key == "DirectML":
            tensors = {"InputTensor": x, "ROITensor": rois, "BatchIndicesTensor": indices}
        else:
            tensors = {"X": x, "rois": rois * self._scale_ratio(), "batch_indices": indices}
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def _attributes(self, operator: Operator) -> dict[str, AttributeValue]:
        sampling = self.sampling
        values: dict[str, AttributeValue] = {
            "mode": sampling.mode,
            "sampling_ratio": sampling.ratio,
            "spatial_scale": sampling.scales[1],
            "coordinate_transformation_mode": self.key,
            "reduction_function": "average" if sampling.mode == "avg" else "max",
            "interpolation_mode": "nearest_neighbor" if sampling.nearest else "linear",
            "spatial_scale_y": sampling.scales[0],
            "spatial_scale_x": sampling.scales[1],
            "input_pixel_offset": sampling.offsets[0],
            "output_pixel_offset": sampling.offsets[1],
            "out_of_bounds_input_value": sampling.outside,
            "minimum_samples_per_output": sampling.limits[0],
            "maximum_samples_per_output": sampling.limits[1],
            "align_regions_to_corners": int(sampling.to_corners),
        }
        return {a.name: values[a.name] for a in operator.attributes if a.name in values}


def conventions_of(geometry: Geometry) -> tuple[RoiConvention, ...]:
    """All conventions of a case, in the order of the pictures."""
    own = geometry.coordinates or "DirectML"
    return tuple(_convention(key, geometry, is_own=key == own) for key in _NAMES)


def _convention(key: Key, geometry: Geometry, *, is_own: bool) -> RoiConvention:
    sampling, notes = geometry.sampling, list[str]()
    if key == "DirectML" and not is_own:
        most = min(sampling.limits[0], UINT32_MAX), min(sampling.limits[1], UINT32_MAX)
        sampling = replace(sampling, limits=most, coordinates=None, offsets=(0.5, -0.5))
        if sampling.mode == "max":
            notes = ["DirectML's max is the largest interpolated sample, not the largest weighted pixel."]
    elif key != "DirectML" and not is_own:
        notes = _unsupported_by_onnx(sampling) if geometry.coordinates is None else []
        scales, offset = (sampling.scales[1],) * 2, 0.5 if key == "half_pixel" else 0.0
        bins, lengths, limits, mode = sampling.bins, sampling.lengths, sampling.limits, sampling.mode
        sampling = Sampling(scales, bins, lengths, limits, mode, key, (offset, -0.5))
    return RoiConvention(key, geometry, sampling, is_own, tuple(notes))


def _unsupported_by_onnx(sampling: Sampling) -> list[str]:
    rules = (
        (sampling.nearest, "interpolates linearly, never to the nearest pixel"),
        (sampling.to_corners, "does not align samples to corners"),
        (sampling.outside != 0.0, "has 0 for samples off the map"),
        (not sampling.ratio and sampling.limits != (1, UINT32_MAX), "has no limits to the number of samples"),
        (sampling.scales[0] != sampling.scales[1], "has one scale; the RoI's y coordinates are scaled instead"),
    )
    return [f"ONNX {what}." for applies, what in rules if applies]
