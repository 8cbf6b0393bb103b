# SPDX-License-Identifier: MIT
"""RoiAlign as ONNX defines it at opsets 10, 16 and 22, and its gradient, which no ONNX operator computes.

RoiAlign's attributes, with their defaults, types and texts, come from `onnx.defs`. ONNX's texts do not say which values are
allowed; `RULES` does, and `NOTES` adds this to the texts. The mode `max_interpolated` exists only in this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from ortops.spec import Attribute, AttributeValue, Operator, Tensor

RULES: Mapping[str, Mapping[str, Any]] = {
    "mode": {"choices": ("avg", "max", "max_interpolated")},
    "coordinate_transformation_mode": {"choices": ("half_pixel", "output_half_pixel")},
    "output_height": {"minimum": 1},
    "output_width": {"minimum": 1},
    "sampling_ratio": {"minimum": 0},
    "spatial_scale": {"positive": True},
}

AXES: dict[str, tuple[int | str, ...]] = {
    "X": ("N", "C", "H", "W"),
    "rois": ("num_rois", 4),
    "batch_indices": ("num_rois",),
    "Y": ("num_rois", "C", "output_height", "output_width"),
}

NOTES = {
    "mode": (
        "'max' is the largest product of a pixel and its interpolation weight, as in ONNX's test vectors and "
        "reference evaluator, not the largest interpolated sample. The largest interpolated sample is "
        "'max_interpolated', which this project adds."
    ),
    "coordinate_transformation_mode": "'output_half_pixel' also makes every RoI at least 1 x 1 pixel of X.",
    "output_height": "It is the number of bins along the height and must be >= 1.",
    "output_width": "It is the number of bins along the width and must be >= 1.",
    "sampling_ratio": "It must be >= 0. The adaptive number is 0 for a RoI whose size is 0 or negative, and Y is then 0.",
    "spatial_scale": "It is in pixels of X for each unit of rois and must be finite and > 0.",
    "rois": "Coordinates must be finite.",
    "batch_indices": "Each index must be >= 0 and < N.",
    "Y": "By 'RoI X[r-1]' ONNX means rois[r-1]: Y[r] is the RoI rois[r] of the image X[batch_indices[r]].",
}
"""This project's additions to ONNX's text about an attribute or a tensor, where the text is silent or wrong."""

URL = "https://onnx.ai/onnx/operators/onnx__RoiAlign.html"

_START_AND_SIZE = {
    10: """\
    start = x1*S,  size = max((x2 - x1)*S, 1)""",
    16: """\
    by coordinate_transformation_mode:
        half_pixel:         start = x1*S - 0.5,  size = (x2 - x1)*S
        output_half_pixel:  start = x1*S,        size = max((x2 - x1)*S, 1)""",
}
"""The lines of the formula that differ, by the first opset that has them."""

_FORMULA = """\
Y[r, c, i, j] with M = X[batch_indices[r], c], by mode, over the samples (y, x) of bin (i, j) of RoI r
:
    avg:               the mean of interpolate(M, y, x)
    max:               the largest product weight * pixel in any interpolate(M, y, x)
    max_interpolated:  the largest interpolate(M, y, x)

The samples along x, for x1 and x2 of rois[r], S = spatial_scale and P = output_width
(along y with y1, y2 and output_height):
{start_and_size}
    G = sampling_ratio, or max(ceil(size / P), 0) if sampling_ratio is 0
    x = start + j*size/P + (k + 0.5)*size/(P*G)  for k = 0, ..., G - 1

interpolate(M, y, x) is bilinear:
    0 where x < -1, x > W, y < -1 or y > H; such a sample counts in the mean and in the maxima
    otherwise clamp x to [0, W - 1] and y to [0, H - 1], and add up weight * pixel over the pixels
    (floor(y), floor(x)), (floor(y), floor(x) + 1), (floor(y) + 1, floor(x)), (floor(y) + 1, floor(x) + 1);
    a pixel beyond the last row or column is 0

A bin without samples (G = 0) is 0. A maximum is NaN if one of its values is NaN."""

_GRADIENT_FORMULA = """\
With L = sum(dY * Y), where Y = RoiAlign(X, rois, batch_indices) with the same attributes:
    dX[n, c, h, w] is the derivative of L by X[n, c, h, w]
    drois[r, k] is the derivative of L by the stored coordinate rois[r, k], including spatial_scale

The share g of dY[r, c, i, j] that a sample (y, x) of bin (i, j) gets:
    avg:  g = dY[r, c, i, j] / (number of samples of the bin)
    max_interpolated:  g = dY[r, c, i, j] for the largest sample, the first of equal samples or of NaNs by row and
        column of samples; 0 for all others
    max:  the same for the largest product weight * pixel, with a sample's pixels in the order of RoiAlign's formula;
        the other three pixels of that sample get nothing
    A sample outside the map is 0 and passes nothing.

dX[batch_indices[r], c, h, w] is the sum of g * (weight of pixel (h, w)) over the samples of all bins.
drois[r] is the sum over channels and samples of g * (slope of the interpolation) * (movement of the sample):
    movement along x:  spatial_scale*(1 - t) for x1 and spatial_scale*t for x2, with t = (j*G + k + 0.5) / (P*G);
                       spatial_scale and 0 if output_half_pixel has raised the size to 1
    slope along x:     the slope in the cell [floor(x), floor(x) + 1]; in max, the winning product's slope; 0 if x < 0
                       or x >= W - 1
    (the same for y)
The adaptive number of samples counts as constant."""


def from_schema(
    schema: onnx.defs.OpSchema,
    rules: Mapping[str, Mapping[str, Any]],
    notes: Mapping[str, str],
    axes: Mapping[str, tuple[int | str, ...]],
) -> dict[str, Any]:
    """The arguments of `Operator` that ONNX's schema gives.

    Args:
        schema: the schema.
        rules: the fields of each attribute that the schema does not have.
        notes: this project's additions to the text about an attribute or a tensor.
        axes: the axes of each tensor.
    """

    def described(name: str, text: str) -> str:
        return f"{text.strip()} {notes.get(name, '')}".strip()

    def attribute(given: onnx.defs.OpSchema.Attribute) -> Attribute:
        value = onnx.helper.get_attribute_value(given.default_value) if given.default_value.name else None
        return Attribute(
            name=given.name,
            type=given.type.name,  # type: ignore[attr-defined]
            doc=described(given.name, given.description),
            required=given.required,
            **{"default": value.decode() if isinstance(value, bytes) else value, **rules[given.name]},
        )

    def tensor(given: onnx.defs.OpSchema.FormalParameter) -> Tensor:
        return Tensor(given.name, given.type_str, axes[given.name], doc=described(given.name, given.description))

    return {
        "doc": (schema.doc or "").strip(),
        "attributes": tuple(attribute(given) for _, given in sorted(schema.attributes.items())),
        "inputs": tuple(map(tensor, schema.inputs)),
        "outputs": tuple(map(tensor, schema.outputs)),
        "types": {
            constraint.type_param_str: tuple(
                name.removeprefix("tensor(").removesuffix(")") for name in constraint.allowed_type_strs
            )
            for constraint in schema.type_constraints
        },
        "standard": (schema.name, schema.since_version),
    }


def from_onnx(opset: int, **constants: AttributeValue) -> Operator:
    """The definition of RoiAlign at `opset`; `constants` are arguments for which this opset has no attribute."""
    return Operator(
        name=f"RoiAlign_{opset}",
        family="roi_align",
        function="roi_align",
        **from_schema(onnx.defs.get_schema("RoiAlign", opset), RULES, NOTES, AXES),
        constants=constants,
        gradient="RoiAlignGrad",
        formula=_FORMULA.format(start_and_size=_START_AND_SIZE[10 if opset < 16 else 16]),
        source=f"ONNX operator RoiAlign, version {opset}, and its reference evaluator: {URL}",
    )


ROI_ALIGN_10 = from_onnx(10, coordinate_transformation_mode="output_half_pixel")
ROI_ALIGN_16 = from_onnx(16)
ROI_ALIGN_22 = from_onnx(22)

ROI_ALIGN_GRAD = Operator(
    name="RoiAlignGrad",
    family="roi_align",
    function="roi_align_grad",
    doc=(
        "Gradient of RoiAlign with respect to X and to the stored coordinates in rois. dX is the transpose of the "
        "forward map applied to dY. X is needed only for drois and for the modes max and max_interpolated. dY gives the "
        "output sizes."
    ),
    attributes=tuple(a for a in ROI_ALIGN_22.attributes if not a.name.startswith("output_")),
    inputs=(
        Tensor("dY", "T1", AXES["Y"], doc="Gradient with respect to Y, with Y's shape; both output sizes are >= 1."),
        Tensor(
            "rois",
            "T1",
            AXES["rois"],
            doc="RoIs of the forward operator, [[x1, y1, x2, y2], ...], in units of 1/spatial_scale pixels of X; finite.",
        ),
        Tensor(
            "batch_indices",
            "T2",
            AXES["batch_indices"],
            doc="Each RoI's image index in X, >= 0 and < N.",
        ),
        Tensor(
            "x_shape",
            "T2",
            (4,),
            element_axes=("N", "C", "H", "W"),
            doc="Shape of X, the lengths N, C, H and W, each >= 0.",
        ),
        Tensor(
            "X",
            "T1",
            AXES["X"],
            optional=True,
            required_for=("drois",),
            required_unless=("mode", "avg"),
            doc="Feature map of the forward operator. It must be given for drois and in the modes max, max_interpolated.",
        ),
    ),
    outputs=(
        Tensor(
            "dX", "T1", AXES["X"], optional=True, doc="Gradient with respect to X; 0 for a pixel that no RoI reads."
        ),
        Tensor(
            "drois",
            "T1",
            AXES["rois"],
            optional=True,
            doc="Gradient with respect to the stored coordinates in rois; spatial_scale is a factor.",
        ),
    ),
    types=ROI_ALIGN_22.types,
    formula=_GRADIENT_FORMULA,
    source=f"The derivative of ONNX RoiAlign, version 22, which no ONNX operator computes: {URL}",
)
