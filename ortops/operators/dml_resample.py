"""DirectML's RESAMPLE, RESAMPLE1 and RESAMPLE2, and their gradients RESAMPLE_GRAD and RESAMPLE_GRAD1.

Attributes are the fields of their descriptions, in snake case; every axis has its own scale and offsets. RESAMPLE is what
the defaults give; RESAMPLE1 adds the offsets; RESAMPLE2 has ``rounding_direction`` ``increasing`` or ``decreasing``.
Source: Microsoft's documentation of DML_RESAMPLE_OPERATOR_DESC, DML_RESAMPLE1_OPERATOR_DESC (sdk-api, 2db4b020),
DML_RESAMPLE2_OPERATOR_DESC (windows-ai-docs, 1189b0d4), DML_RESAMPLE_GRAD_OPERATOR_DESC, DML_RESAMPLE_GRAD1_OPERATOR_DESC.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ortops.spec import RANK, Attribute, AttributeValue, ElementType, Length, Operator, Tensor

INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET = 0.5, -0.5
"""The offsets of every axis where none are given: those of RESAMPLE."""

_SHARED = (
    Attribute("interpolation_mode", "STRING", "linear", "Between pixels.", choices=("linear", "nearest_neighbor")),
    Attribute(
        "scales",
        "FLOATS",
        (),
        "Output pixels for each input pixel of an axis; without, the ratio of the two lengths.",
        positive=True,
    ),
    Attribute(
        "input_pixel_offsets",
        "FLOATS",
        (),
        "From the input's origin to the centre of its first pixel; without, 0.5 on every axis.",
        finite=True,
    ),
    Attribute(
        "output_pixel_offsets", "FLOATS", (), "As of the input, negated; without, -0.5 on every axis.", finite=True
    ),
    Attribute(
        "rounding_direction",
        "STRING",
        "half_up",
        "To which pixel nearest_neighbor goes: the nearest, the next or the one before.",
        choices=("half_up", "increasing", "decreasing"),
    ),
)
_TYPES: dict[str, tuple[ElementType, ...]] = {"T": ("float16", "float", "double")}
_INPUT, _OUTPUT = ("N...",), ("M...",)


def _output_length(length: Length, axis: int, attributes: Mapping[str, AttributeValue]) -> Length:
    """The length of an output axis: the one of output_sizes, or else floor(length * scale)."""
    sizes, scales = attributes.get("output_sizes"), attributes.get("scales")
    if sizes:
        return int(sizes[axis])
    if sizes is None or not scales or not isinstance(length, int):
        return None
    scaled = math.floor(length * float(scales[axis]))
    if scaled >= 2**63:
        raise ValueError(f"scales[{axis}] = {scales[axis]}: must not make an axis longer than 2**63 - 1")
    return scaled


DML_RESAMPLE = Operator(
    name="DmlResample",
    family="dml_resample",
    function="dml_resample",
    doc="DirectML's RESAMPLE2: a tensor scaled along its axes, output o of an axis read at (o - O)/S - I.",
    attributes=(
        *_SHARED,
        Attribute(
            "output_sizes",
            "INTS",
            (),
            "Lengths of OutputTensor; without, those of InputTensor times scales, rounded down.",
            minimum=0,
        ),
    ),
    inputs=(Tensor("InputTensor", "T", _INPUT, doc="What is read, its edges continued."),),
    outputs=(Tensor("OutputTensor", "T", _OUTPUT, doc="The scaled tensor."),),
    types=_TYPES,
    either=("scales", "output_sizes"),
    derived={"M...": ("N", _output_length)},
    gradient="DmlResampleGrad",
)

DML_RESAMPLE_GRAD = Operator(
    name="DmlResampleGrad",
    family="dml_resample",
    function="dml_resample_grad",
    doc="DirectML's RESAMPLE_GRAD1: the gradient of DmlResample, whose attributes it takes as they are.",
    attributes=_SHARED,
    inputs=(
        Tensor("InputGradientTensor", "T", _OUTPUT, doc="Gradient with respect to OutputTensor."),
        Tensor("x_shape", "int64", (RANK,), values=_INPUT, doc="Shape of InputTensor."),
    ),
    outputs=(Tensor("OutputGradientTensor", "T", _INPUT, doc="Gradient with respect to InputTensor."),),
    types=_TYPES,
)
