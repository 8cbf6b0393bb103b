"""DirectML's ROI_ALIGN1 and ROI_ALIGN_GRAD on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from ortops.functional.call import Array, as_int, call, gradients
from ortops.operators.dml_roi_align import DML_ROI_ALIGN, DML_ROI_ALIGN_GRAD, UINT32_MAX

ReductionFunction = Literal["average", "max"]
InterpolationMode = Literal["linear", "nearest_neighbor"]


def dml_roi_align(
    x: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    *,
    output_height: int,
    output_width: int,
    reduction_function: ReductionFunction = "average",
    interpolation_mode: InterpolationMode = "linear",
    spatial_scale_x: float = 1.0,
    spatial_scale_y: float = 1.0,
    input_pixel_offset: float = 0.5,
    output_pixel_offset: float = -0.5,
    out_of_bounds_input_value: float = 0.0,
    minimum_samples_per_output: int = 1,
    maximum_samples_per_output: int = UINT32_MAX,
    align_regions_to_corners: bool | Literal[0, 1] = False,
) -> Array:
    """Feature maps pooled over regions, as DirectML's ROI_ALIGN1 describes it; by default as its ROI_ALIGN.

    On each axis, with a and b the scaled ends of a region, P outputs take k = ceil((b - a)/P) samples each, clamped to
    the two limits. Sample s of n = P*k lies at a + (b - a)*t - input_pixel_offset, t = (s - output_pixel_offset)/n, or
    over n - 1 where regions are aligned to corners (t = 0.5 where n = 1). An empty region is a point, an inverted one
    mirrored.

    Args:
        x: feature maps [N, C, H, W]; float16, float32 or float64.
        rois: [num_rois, 4] as x1, y1, x2, y2, with up to 2 axes of length 1 before; of the type of x; finite.
        batch_indices: the image of each region [num_rois], with up to 3 axes of length 1 before; integers >= 0 and < N.
        output_height: elements on the vertical axis, >= 1.
        output_width: elements on the horizontal axis, >= 1.
        reduction_function: "average" or "max", over whole samples.
        interpolation_mode: "linear", or "nearest_neighbor" with ties upwards.
        spatial_scale_x: pixels of x for each unit of a region's x, > 0.
        spatial_scale_y: pixels of x for each unit of a region's y, > 0.
        input_pixel_offset: from the coordinates' origin to the centre of the first pixel; finite.
        output_pixel_offset: of each sample from the start of its step, negated; finite.
        out_of_bounds_input_value: of a sample more than a pixel before, or past the end of, the map on either axis.
        minimum_samples_per_output: on each axis, >= 1.
        maximum_samples_per_output: on each axis, >= the minimum.
        align_regions_to_corners: whether the outermost samples lie on a region's very corners; True, False, 1 or 0.

    Returns:
        [num_rois, C, output_height, output_width] of the type of x, accumulated in float32 (float64 for float64).

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a region or a batch index breaks its rule; the message names it.

    Source: Microsoft's documentation of DML_ROI_ALIGN1_OPERATOR_DESC.
    """
    attributes = {
        "output_height": output_height,
        "output_width": output_width,
        "reduction_function": reduction_function,
        "interpolation_mode": interpolation_mode,
        "spatial_scale_x": spatial_scale_x,
        "spatial_scale_y": spatial_scale_y,
        "input_pixel_offset": input_pixel_offset,
        "output_pixel_offset": output_pixel_offset,
        "out_of_bounds_input_value": out_of_bounds_input_value,
        "minimum_samples_per_output": minimum_samples_per_output,
        "maximum_samples_per_output": maximum_samples_per_output,
        "align_regions_to_corners": as_int(align_regions_to_corners),
    }
    y: Array
    (y,) = call(DML_ROI_ALIGN, (x, rois, batch_indices), attributes, (True,))
    return y


def dml_roi_align_grad(
    dy: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    x_shape: ArrayLike,
    *,
    x: ArrayLike | None = None,
    reduction_function: ReductionFunction = "average",
    interpolation_mode: InterpolationMode = "linear",
    spatial_scale_x: float = 1.0,
    spatial_scale_y: float = 1.0,
    input_pixel_offset: float = 0.5,
    output_pixel_offset: float = -0.5,
    minimum_samples_per_output: int = 1,
    maximum_samples_per_output: int = UINT32_MAX,
    align_regions_to_corners: bool | Literal[0, 1] = False,
    outputs: Sequence[Literal["dx", "drois"]] = ("dx", "drois"),
) -> tuple[Array | None, Array | None]:
    """The gradient of `dml_roi_align` with respect to the feature maps and to the regions.

    A sample off the map passes nothing. drois has the derivative of the interpolation between floor and ceil, so 0 on a
    pixel, and 0 for nearest_neighbor; the number of samples is taken as constant.

    Args:
        dy: gradient with respect to the output [num_rois, C, PH, PW]; float16, float32 or float64.
        rois: as in `dml_roi_align`, of the type of dy.
        batch_indices: as in `dml_roi_align`.
        x_shape: the shape of x, 4 integers >= 0.
        x: feature maps [N, C, H, W] of the type of dy; needed for drois and for max.
        reduction_function: as in `dml_roi_align`.
        interpolation_mode: as in `dml_roi_align`.
        spatial_scale_x: as in `dml_roi_align`.
        spatial_scale_y: as in `dml_roi_align`.
        input_pixel_offset: as in `dml_roi_align`.
        output_pixel_offset: as in `dml_roi_align`.
        minimum_samples_per_output: as in `dml_roi_align`.
        maximum_samples_per_output: as in `dml_roi_align`.
        align_regions_to_corners: as in `dml_roi_align`.
        outputs: which to compute, at least one of "dx" and "drois".

    Returns:
        dx [N, C, H, W] and drois, of the shape of rois, of the type of dy; None where not asked for.

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a region or a batch index breaks its rule, or x is missing.

    Source: Microsoft's documentation of DML_ROI_ALIGN_GRAD_OPERATOR_DESC; its derivative with respect to regions is that
    with respect to the stored values, as TensorFlow's crop_and_resize has it.
    """
    attributes = {
        "reduction_function": reduction_function,
        "interpolation_mode": interpolation_mode,
        "spatial_scale_x": spatial_scale_x,
        "spatial_scale_y": spatial_scale_y,
        "input_pixel_offset": input_pixel_offset,
        "output_pixel_offset": output_pixel_offset,
        "minimum_samples_per_output": minimum_samples_per_output,
        "maximum_samples_per_output": maximum_samples_per_output,
        "align_regions_to_corners": as_int(align_regions_to_corners),
    }
    dx, drois = call(DML_ROI_ALIGN_GRAD, (dy, rois, batch_indices, x_shape, x), attributes, gradients(outputs))
    return dx, drois
