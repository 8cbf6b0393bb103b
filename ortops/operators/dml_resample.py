# SPDX-License-Identifier: MIT
"""DirectML's RESAMPLE, RESAMPLE1 and RESAMPLE2, and their gradients RESAMPLE_GRAD and RESAMPLE_GRAD1.

Attributes have the names of DirectML's fields, in snake case; every axis has its own scale and offsets. RESAMPLE sets the
defaults; RESAMPLE1 adds the offsets, and RESAMPLE2 the ``rounding_direction`` ``increasing`` or ``decreasing``.
Source: Microsoft's documentation of DML_RESAMPLE_OPERATOR_DESC, DML_RESAMPLE1_OPERATOR_DESC (sdk-api, 2db4b020),
DML_RESAMPLE2_OPERATOR_DESC (windows-ai-docs, 1189b0d4), DML_RESAMPLE_GRAD_OPERATOR_DESC, DML_RESAMPLE_GRAD1_OPERATOR_DESC.
"""

from __future__ import annotations

from ortops.spec import RANK, Attribute, ElementType, Operator, Scaled, Tensor, one_given

INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET = 0.5, -0.5
"""Every axis's default offsets, as in RESAMPLE."""

_SHARED = (
    Attribute(
        "interpolation_mode",
        "STRING",
        "linear",
        "Value between pixels: 'linear' interpolates between the two pixels around the coordinate on each axis, "
        "'nearest_neighbor' takes the pixel that rounding_direction gives.",
        choices=("linear", "nearest_neighbor"),
    ),
    Attribute(
        "scales",
        "FLOATS",
        (),
        "Output pixels for each input pixel, one finite value > 0 for each axis. Without it, the output's length "
        "divided by the input's.",
        positive=True,
    ),
    Attribute(
        "input_pixel_offsets",
        "FLOATS",
        (),
        "Distance from the input's origin to the centre of its first pixel, in input pixels, one finite value for "
        "each axis. Without it, 0.5 on every axis.",
        finite=True,
    ),
    Attribute(
        "output_pixel_offsets",
        "FLOATS",
        (),
        "Negated distance from the output's origin to the centre of its first pixel, in output pixels, one finite "
        "value for each axis. Without it, -0.5 on every axis.",
        finite=True,
    ),
    Attribute(
        "rounding_direction",
        "STRING",
        "half_up",
        "Pixel that nearest_neighbor takes for a coordinate: 'half_up' the nearest pixel, the later of two at the same "
        "distance (RESAMPLE, RESAMPLE1), 'increasing' the next pixel, 'decreasing' the previous pixel (RESAMPLE2).",
        choices=("half_up", "increasing", "decreasing"),
    ),
)
_TYPES: dict[str, tuple[ElementType, ...]] = {"T": ("float16", "float", "double")}
_INPUT, _OUTPUT = ("N...",), ("M...",)

_FORMULA = """\
OutputTensor[o0, o1, ...] = InputTensor interpolated at (x0, x1, ...), along all axes, including images and channels

Along axis a of N input pixels and M output pixels:
    M = output_sizes[a], or floor(N*scales[a]) where output_sizes is empty
    S = scales[a], or M/N where scales is empty
    x = (o - output_pixel_offsets[a])/S - input_pixel_offsets[a], clamped to [0, N - 1]
    by interpolation_mode and rounding_direction:
        linear:                        between the pixels floor(x) and ceil(x)
        nearest_neighbor, half_up:     the pixel floor(x + 0.5)
        nearest_neighbor, increasing:  the pixel ceil(x)
        nearest_neighbor, decreasing:  the pixel floor(x)"""

_GRADIENT_FORMULA = """\
With L = sum(InputGradientTensor * OutputTensor), where OutputTensor = DmlResample(InputTensor), same attributes:
    OutputGradientTensor[k0, k1, ...] is the derivative of L by InputTensor[k0, k1, ...]: the sum over all outputs of
    InputGradientTensor[o0, o1, ...] * (weight of the pixel (k0, k1, ...) in OutputTensor[o0, o1, ...])

An output beyond an edge of the input reads the pixel at the edge, and its gradient is added there."""

_URL = "https://learn.microsoft.com/en-us/windows/ai/directml/api/ns-directml-dml_resample{}_operator_desc"

DML_RESAMPLE = Operator(
    name="DmlResample",
    family="dml_resample",
    function="dml_resample",
    doc=(
        "DirectML's RESAMPLE2: scales a tensor along each of its axes. With the defaults and scales it equals DirectML's "
        "RESAMPLE; with offsets, RESAMPLE1."
    ),
    attributes=(
        *_SHARED,
        Attribute(
            "output_sizes",
            "INTS",
            (),
            "Lengths of OutputTensor, one value >= 0 for each axis. Without it, the lengths of InputTensor times "
            "scales, rounded down. At least one of output_sizes and scales must be given.",
            minimum=0,
        ),
    ),
    inputs=(
        Tensor(
            "InputTensor", "T", _INPUT, doc="Tensor of rank 1 to 4 to scale. Its edge pixels extend beyond its edges."
        ),
    ),
    outputs=(Tensor("OutputTensor", "T", _OUTPUT, doc="Scaled tensor, with InputTensor's rank."),),
    types=_TYPES,
    rules=(one_given("scales", "output_sizes"),),
    derived_axes={"M...": Scaled("N", sizes="output_sizes", scales="scales")},
    gradient="DmlResampleGrad",
    formula=_FORMULA,
    source=f"DirectML, feature level 5.1, DML_RESAMPLE2_OPERATOR_DESC: {_URL.format(2)}",
)

DML_RESAMPLE_GRAD = Operator(
    name="DmlResampleGrad",
    family="dml_resample",
    function="dml_resample_grad",
    doc=(
        "DirectML's RESAMPLE_GRAD1: the gradient of DmlResample with respect to InputTensor. It has the same attributes "
        "as the DmlResample node. DirectML exchanges the two offsets here: its InputPixelOffsets are "
        "output_pixel_offsets."
    ),
    attributes=_SHARED,
    inputs=(
        Tensor(
            "InputGradientTensor",
            "T",
            _OUTPUT,
            doc="Gradient with respect to DmlResample's OutputTensor, with the same shape.",
        ),
        Tensor(
            "x_shape",
            "int64",
            (RANK,),
            element_axes=_INPUT,
            doc="Shape of DmlResample's InputTensor, one length >= 0 for each axis of InputGradientTensor.",
        ),
    ),
    outputs=(
        Tensor(
            "OutputGradientTensor",
            "T",
            _INPUT,
            doc="Gradient with respect to DmlResample's InputTensor, with shape x_shape; 0 for pixels that no output reads.",
        ),
    ),
    types=_TYPES,
    formula=_GRADIENT_FORMULA,
    source=f"DirectML, DML_RESAMPLE_GRAD1_OPERATOR_DESC: {_URL.format('_grad1')}",
)
