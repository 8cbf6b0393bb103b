"""DirectML's ROI_ALIGN1 and ROI_ALIGN_GRAD. Attributes are the fields of their descriptions, in snake case.

ROI_ALIGN of DirectML 3.0 is ROI_ALIGN1 with input_pixel_offset 0.5, output_pixel_offset -0.5 and regions not aligned to
corners: the defaults here. Source: Microsoft's documentation of DML_ROI_ALIGN1_OPERATOR_DESC (sdk-api, 2db4b020) and of
DML_ROI_ALIGN_GRAD_OPERATOR_DESC.
"""

from __future__ import annotations

from ortops.spec import Attribute, ElementType, Operator, Tensor

UINT32_MAX = 2**32 - 1

_SIZES = (
    Attribute("output_height", "INT", 1, "Height of OutputTensor.", minimum=1),
    Attribute("output_width", "INT", 1, "Width of OutputTensor.", minimum=1),
)
_OUT_OF_BOUNDS = Attribute("out_of_bounds_input_value", "FLOAT", 0.0, "Value of a sample off the map.")
_SHARED = (
    Attribute(
        "reduction_function", "STRING", "average", "Of the samples of one output element.", choices=("average", "max")
    ),
    Attribute("interpolation_mode", "STRING", "linear", "Between pixels.", choices=("linear", "nearest_neighbor")),
    Attribute("spatial_scale_x", "FLOAT", 1.0, "Input pixels for each unit of a region's x.", positive=True),
    Attribute("spatial_scale_y", "FLOAT", 1.0, "Input pixels for each unit of a region's y.", positive=True),
    Attribute("input_pixel_offset", "FLOAT", 0.5, "From (0, 0) to the centre of the first pixel.", finite=True),
    Attribute("output_pixel_offset", "FLOAT", -0.5, "Of samples from the start of their step, negated.", finite=True),
    Attribute("minimum_samples_per_output", "INT", 1, "On each axis.", minimum=1, maximum=UINT32_MAX),
    Attribute("maximum_samples_per_output", "INT", UINT32_MAX, "On each axis.", minimum=1, maximum=UINT32_MAX),
    Attribute(
        "align_regions_to_corners",
        "INT",
        0,
        "1: the outermost samples lie on a region's corners.",
        minimum=0,
        maximum=1,
    ),
)
_ORDERED = (("minimum_samples_per_output", "maximum_samples_per_output"),)
_TYPES: dict[str, tuple[ElementType, ...]] = {"T": ("float16", "float", "double"), "I": ("uint32", "int64")}

_INPUT = ("N", "C", "H", "W")
_OUTPUT = ("num_rois", "C", "output_height", "output_width")
_ROI = Tensor("ROITensor", "T", ("num_rois", 4), leading=2, doc="Regions, [[x1, y1, x2, y2], ...].")
_INDICES = Tensor("BatchIndicesTensor", "I", ("num_rois",), leading=3, doc="Index of the image of each region.")

DML_ROI_ALIGN = Operator(
    name="DmlRoiAlign",
    family="dml_roi_align",
    function="dml_roi_align",
    doc="DirectML's ROI_ALIGN1: a feature map pooled over regions, each sampled on a grid.",
    attributes=(*_SIZES, *_SHARED, _OUT_OF_BOUNDS),
    inputs=(Tensor("InputTensor", "T", _INPUT, doc="Feature map."), _ROI, _INDICES),
    outputs=(Tensor("OutputTensor", "T", _OUTPUT, doc="Pooled regions."),),
    types=_TYPES,
    ordered=_ORDERED,
    gradient="DmlRoiAlignGrad",
)

DML_ROI_ALIGN_GRAD = Operator(
    name="DmlRoiAlignGrad",
    family="dml_roi_align",
    function="dml_roi_align_grad",
    doc="DirectML's ROI_ALIGN_GRAD: the gradient of ROI_ALIGN1 with respect to feature map and regions.",
    attributes=_SHARED,
    inputs=(
        Tensor("InputGradientTensor", "T", _OUTPUT, doc="Gradient with respect to ROI_ALIGN1's OutputTensor."),
        _ROI,
        _INDICES,
        Tensor("x_shape", "int64", (4,), values=_INPUT, doc="Shape of ROI_ALIGN1's InputTensor."),
        Tensor(
            "InputTensor",
            "T",
            _INPUT,
            optional=True,
            needed_for=("OutputROIGradientTensor",),
            needed_unless=("reduction_function", "average"),
            doc="Needed for max and for OutputROIGradientTensor.",
        ),
    ),
    outputs=(
        Tensor("OutputGradientTensor", "T", _INPUT, optional=True, doc="Gradient with respect to InputTensor."),
        Tensor(
            "OutputROIGradientTensor",
            "T",
            _ROI.shape,
            optional=True,
            like="ROITensor",
            doc="Gradient with respect to ROITensor.",
        ),
    ),
    types=_TYPES,
    ordered=_ORDERED,
)
