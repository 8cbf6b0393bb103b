"""What RoiAlign's operators and DirectML's call differently, under one name each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from conformance.case import Array, Case
from conformance.expect import Floats
from ortops.operators.dml_roi_align import UINT32_MAX

Mode = Literal["avg", "max", "max_interpolated"]

_ONNX = {"x": "X", "rois": "rois", "indices": "batch_indices", "dy": "dY", "y": "Y", "dx": "dX", "drois": "drois"}
_DIRECTML = {
    "x": "InputTensor",
    "rois": "ROITensor",
    "indices": "BatchIndicesTensor",
    "dy": "InputGradientTensor",
    "y": "OutputTensor",
    "dx": "OutputGradientTensor",
    "drois": "OutputROIGradientTensor",
}


@dataclass(frozen=True, slots=True)
class Sampling:
    """How RoIs are sampled, in DirectML's terms: of these ONNX has the scale and the number of samples alone.

    scales, bins, lengths: of y and x; pixels to a unit, output bins, pixels of the map.
    limits: fewest and most samples of a bin along an axis.
    offsets: of the input's pixels and of the output's samples.
    """

    scales: tuple[float, float]
    bins: tuple[int, int]
    lengths: tuple[int, int]
    limits: tuple[int, int]
    mode: Mode
    offsets: tuple[float, float] = (0.5, -0.5)
    nearest: bool = False
    to_corners: bool = False
    outside: float = 0.0

    @property
    def ratio(self) -> int:
        """ONNX's sampling_ratio: 0 where the number of samples depends on the bin."""
        return self.limits[0] if self.limits[0] == self.limits[1] else 0


@dataclass(frozen=True, slots=True)
class Question:
    """A case that samples RoIs, with its tensors widened.

    x, dy: None where the case has none.
    coordinates: ONNX's coordinate transformation mode; None in a case of DirectML.
    """

    case: Case
    sampling: Sampling
    rois: Floats
    indices: Array
    x_shape: tuple[int, ...]
    x: Floats | None
    dy: Floats | None
    coordinates: str | None

    @property
    def names(self) -> dict[str, str]:
        """The names of the case's tensors."""
        return _ONNX if self.coordinates else _DIRECTML

    def output(self, name: str) -> str:
        """What the output is, in the same words for every operator: y, dx or drois."""
        return next(role for role, known in self.names.items() if known == name)


def question_of(case: Case) -> Question:
    """The question that a right case with RoIs asks."""
    arguments = case.definition.check_attributes(case.attributes)
    is_onnx = "coordinate_transformation_mode" in arguments
    names = _ONNX if is_onnx else _DIRECTML
    x, dy = (_widened(case.inputs.get(names[role])) for role in ("x", "dy"))
    shape = x.shape if x is not None else tuple(map(int, case.inputs["x_shape"]))
    bins = (int(arguments["output_height"]), int(arguments["output_width"])) if dy is None else dy.shape[2:]
    lengths = shape[2], shape[3]
    return Question(
        case,
        _onnx(arguments, (bins[0], bins[1]), lengths) if is_onnx else _directml(arguments, (bins[0], bins[1]), lengths),
        case.inputs[names["rois"]].astype(np.float64).reshape(-1, 4),
        case.inputs[names["indices"]].astype(np.int64).reshape(-1),
        shape,
        x,
        dy,
        arguments["coordinate_transformation_mode"] if is_onnx else None,
    )


def _widened(array: Array | None) -> Floats | None:
    return None if array is None else array.astype(np.float64)


def _onnx(arguments: dict[str, object], bins: tuple[int, int], lengths: tuple[int, int]) -> Sampling:
    scale, ratio = float(str(arguments["spatial_scale"])), int(str(arguments["sampling_ratio"]))
    limits = (ratio, ratio) if ratio else (1, UINT32_MAX)
    return Sampling((scale, scale), bins, lengths, limits, arguments["mode"])  # type: ignore[arg-type]


def _directml(arguments: dict[str, object], bins: tuple[int, int], lengths: tuple[int, int]) -> Sampling:
    def value(name: str) -> float:
        return float(str(arguments[name]))

    return Sampling(
        (value("spatial_scale_y"), value("spatial_scale_x")),
        bins,
        lengths,
        (int(value("minimum_samples_per_output")), int(value("maximum_samples_per_output"))),
        "avg" if arguments["reduction_function"] == "average" else "max_interpolated",
        (value("input_pixel_offset"), value("output_pixel_offset")),
        arguments["interpolation_mode"] == "nearest_neighbor",
        bool(arguments["align_regions_to_corners"]),
        value("out_of_bounds_input_value") if "out_of_bounds_input_value" in arguments else 0.0,
    )
