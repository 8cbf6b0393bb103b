# SPDX-License-Identifier: MIT
"""DirectML's ROI_ALIGN1 and ROI_ALIGN_GRAD. Attributes have the names of DirectML's fields, in snake case.

ROI_ALIGN of DirectML 3.0 is ROI_ALIGN1 with the defaults here: input_pixel_offset 0.5, output_pixel_offset -0.5 and regions
not aligned to corners. Source: Microsoft's documentation of DML_ROI_ALIGN1_OPERATOR_DESC (sdk-api, 2db4b020) and of
DML_ROI_ALIGN_GRAD_OPERATOR_DESC.
"""

from __future__ import annotations

from ortops.spec import Attribute, ElementType, Operator, Tensor, flag, ordered

UINT32_MAX = 2**32 - 1

_SIZES = (
    Attribute("output_height", "INT", 1, "Height of OutputTensor in elements, >= 1.", minimum=1),
    Attribute("output_width", "INT", 1, "Width of OutputTensor in elements, >= 1.", minimum=1),
)
_OUT_OF_BOUNDS = Attribute(
    "out_of_bounds_input_value",
    "FLOAT",
    0.0,
    "Value of a sample that lies off the map: at x <= -1, x > W, y <= -1 or y > H. It may be any number, and the sample "
    "counts like other samples.",
)
_SHARED = (
    Attribute(
        "reduction_function",
        "STRING",
        "average",
        "Reduction of an output element's samples: 'average' for their mean, 'max' for the largest.",
        choices=("average", "max"),
    ),
    Attribute(
        "interpolation_mode",
        "STRING",
        "linear",
        "Value of a sample between pixels: 'linear' interpolates between the four pixels around it, 'nearest_neighbor' "
        "takes the nearest pixel, the later of two at the same distance.",
        choices=("linear", "nearest_neighbor"),
    ),
    Attribute(
        "spatial_scale_x",
        "FLOAT",
        1.0,
        "Pixels of InputTensor for each unit of a region's x1 and x2; finite and > 0.",
        positive=True,
    ),
    Attribute(
        "spatial_scale_y",
        "FLOAT",
        1.0,
        "Pixels of InputTensor for each unit of a region's y1 and y2; finite and > 0.",
        positive=True,
    ),
    Attribute(
        "input_pixel_offset",
        "FLOAT",
        0.5,
        "Distance in pixels from the origin of the regions' scaled coordinates to the centre of the first pixel, on "
        "both axes; finite. 0.5 puts the origin at the corner of that pixel.",
        finite=True,
    ),
    Attribute(
        "output_pixel_offset",
        "FLOAT",
        -0.5,
        "Negated offset of a sample within its step, in steps; finite. -0.5 puts the sample in the middle, 0 at the "
        "start.",
        finite=True,
    ),
    Attribute(
        "minimum_samples_per_output",
        "INT",
        1,
        "Smallest number of an output element's samples along each axis, >= 1 and <= maximum_samples_per_output.",
        minimum=1,
        maximum=UINT32_MAX,
    ),
    Attribute(
        "maximum_samples_per_output",
        "INT",
        UINT32_MAX,
        "Largest number of an output element's samples along each axis, >= minimum_samples_per_output and < 2**32.",
        minimum=1,
        maximum=UINT32_MAX,
    ),
    flag(
        "align_regions_to_corners",
        0,
        "1 spreads the samples so that, with output_pixel_offset 0, the outermost samples lie on the region's corners; 0 "
        "does not.",
    ),
)
_RULES = (ordered("minimum_samples_per_output", "maximum_samples_per_output"),)
_TYPES: dict[str, tuple[ElementType, ...]] = {"T": ("float16", "float", "double"), "I": ("uint32", "int64")}

_INPUT = ("N", "C", "H", "W")
_OUTPUT = ("num_rois", "C", "output_height", "output_width")
_ROI = Tensor(
    "ROITensor",
    "T",
    ("num_rois", 4),
    max_leading_ones=2,
    doc=(
        "Regions, [[x1, y1, x2, y2], ...], x in units of 1/spatial_scale_x pixels, y of 1/spatial_scale_y; finite. An "
        "empty region is a point; if x2 < x1 or y2 < y1, a region is mirrored. Up to two axes of length 1 may come first."
    ),
)
_INDICES = Tensor(
    "BatchIndicesTensor",
    "I",
    ("num_rois",),
    max_leading_ones=3,
    doc="Each region's image index, >= 0 and < N. Up to three axes of length 1 may come first.",
)

_FORMULA = """\
OutputTensor[r, c, i, j] = mean or maximum, by reduction_function, over the samples (y, x) of output (i, j) of
                           interpolate(InputTensor[BatchIndicesTensor[r], c], y, x)

The samples along x, for x1 and x2 of ROITensor[r] and P = output_width
(along y with y1, y2, output_height and spatial_scale_y):
    a = x1*spatial_scale_x,  b = x2*spatial_scale_x
    K = ceil((b - a) / P), clamped to [minimum_samples_per_output, maximum_samples_per_output]
    n = P*K
    t = (s - output_pixel_offset) / n  for s = j*K, ..., j*K + K - 1;
        if align_regions_to_corners is 1, (s - output_pixel_offset) / (n - 1), and 0.5 if n = 1
    x = a + (b - a)*t - input_pixel_offset

interpolate(M, y, x), by interpolation_mode:
    out_of_bounds_input_value where x <= -1, x > W, y <= -1 or y > H
    linear:            clamp x to [0, W - 1], and interpolate between the pixels floor(x) and ceil(x); the same for y
    nearest_neighbor:  the pixel floor(x + 0.5), clamped to [0, W - 1]; the same for y

A maximum is NaN if one of its values is NaN."""

_GRADIENT_FORMULA = """\
With L = sum(InputGradientTensor * OutputTensor), where OutputTensor is the output of DmlRoiAlign:
    OutputGradientTensor[n, c, h, w] is the derivative of L by InputTensor[n, c, h, w]
    OutputROIGradientTensor[r, k] is the derivative of L by the stored coordinate ROITensor[r, k]

The share g of InputGradientTensor[r, c, i, j] that a sample (y, x) of output (i, j) gets:
    average:  g = InputGradientTensor[r, c, i, j] / (number of samples)
    max:      g = InputGradientTensor[r, c, i, j] for the largest sample, the first of equal samples or of NaNs by row
              and column of samples; 0 for all others
    A sample off the map is 0 and passes nothing.

OutputGradientTensor[BatchIndicesTensor[r], c, h, w] is the sum of g * (weight of pixel (h, w)) over the samples.
OutputROIGradientTensor[r] is the sum over channels and samples of g * (slope) * (movement of the sample):
    movement along x:  spatial_scale_x*(1 - t) for x1 and spatial_scale_x*t for x2
    slope along x:     the slope between the pixels floor(x) and ceil(x); 0 on a pixel, beyond the first and the last
                       pixel, and for nearest_neighbor
    (the same for y)
The number of samples counts as constant."""

_URL = "https://learn.microsoft.com/en-us/windows/win32/api/directml/ns-directml-dml_roi_align{}_operator_desc"

DML_ROI_ALIGN = Operator(
    name="DmlRoiAlign",
    family="dml_roi_align",
    function="dml_roi_align",
    doc=(
        "DirectML's ROI_ALIGN1: each output element is the mean or the maximum of samples on a grid in its region of "
        "the feature map. With the defaults it equals DirectML's ROI_ALIGN."
    ),
    attributes=(*_SIZES, *_SHARED, _OUT_OF_BOUNDS),
    inputs=(
        Tensor("InputTensor", "T", _INPUT, doc="Feature map: N images with C channels of H rows and W columns."),
        _ROI,
        _INDICES,
    ),
    outputs=(
        Tensor(
            "OutputTensor",
            "T",
            _OUTPUT,
            doc="Pooled regions: OutputTensor[r] is region r of the image BatchIndicesTensor[r].",
        ),
    ),
    types=_TYPES,
    rules=_RULES,
    gradient="DmlRoiAlignGrad",
    formula=_FORMULA,
    source=f"DirectML, feature level 4.0, DML_ROI_ALIGN1_OPERATOR_DESC: {_URL.format(1)}",
)

DML_ROI_ALIGN_GRAD = Operator(
    name="DmlRoiAlignGrad",
    family="dml_roi_align",
    function="dml_roi_align_grad",
    doc=(
        "DirectML's ROI_ALIGN_GRAD: the gradient of DmlRoiAlign with respect to the feature map and to the stored "
        "coordinates of the regions. InputGradientTensor gives the output sizes."
    ),
    attributes=_SHARED,
    inputs=(
        Tensor(
            "InputGradientTensor",
            "T",
            _OUTPUT,
            doc="Gradient with respect to DmlRoiAlign's OutputTensor, with the same shape; both output sizes are >= 1.",
        ),
        _ROI,
        _INDICES,
        Tensor(
            "x_shape",
            "int64",
            (4,),
            element_axes=_INPUT,
            doc="Shape of DmlRoiAlign's InputTensor, the lengths N, C, H and W, each >= 0.",
        ),
        Tensor(
            "InputTensor",
            "T",
            _INPUT,
            optional=True,
            required_for=("OutputROIGradientTensor",),
            required_unless=("reduction_function", "average"),
            doc="DmlRoiAlign's InputTensor. It must be given for OutputROIGradientTensor and for the reduction max.",
        ),
    ),
    outputs=(
        Tensor(
            "OutputGradientTensor",
            "T",
            _INPUT,
            optional=True,
            doc="Gradient with respect to DmlRoiAlign's InputTensor; 0 for a pixel that no region reads.",
        ),
        Tensor(
            "OutputROIGradientTensor",
            "T",
            _ROI.shape,
            optional=True,
            leading_from="ROITensor",
            doc="Gradient with respect to the stored coordinates in ROITensor, with its shape, including the spatial scale.",
        ),
    ),
    types=_TYPES,
    rules=_RULES,
    formula=_GRADIENT_FORMULA,
    source=f"DirectML, DML_ROI_ALIGN_GRAD_OPERATOR_DESC, as the derivative of ROI_ALIGN1: {_URL.format('_grad')}",
)
