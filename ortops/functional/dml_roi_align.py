# SPDX-License-Identifier: MIT
"""DirectML's ROI_ALIGN1 and ROI_ALIGN_GRAD on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from ortops.functional.call import Array, computes
from ortops.operators.dml_roi_align import DML_ROI_ALIGN, DML_ROI_ALIGN_GRAD, UINT32_MAX

ReductionFunction = Literal["average", "max"]
InterpolationMode = Literal["linear", "nearest_neighbor"]


@computes(DML_ROI_ALIGN)
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
    """Pool feature maps over regions, as DirectML's ROI_ALIGN1 does; by default as ROI_ALIGN does.

    y[r, c, i, j] is the mean or maximum of samples of x[batch_indices[r], c] in output (i, j) of region r. Along the width,
    with P = output_width, a = x1*spatial_scale_x and b = x2*spatial_scale_x (the height is treated the same way):

        g = ceil((b - a)/P), clamped to [minimum_samples_per_output, maximum_samples_per_output],  n = P*g
        t = (s - output_pixel_offset)/n,  s = j*g, ..., j*g + g - 1; divided by n - 1 if aligned to corners, 0.5 if n = 1
        samples at a + (b - a)*t - input_pixel_offset

    An empty region is a point, and a region with x2 < x1 or y2 < y1 is mirrored.

    Args:
        x: feature maps [N, C, H, W]; float16, float32 or float64.
        rois: [num_rois, 4] as x1, y1, x2, y2, after up to 2 axes of length 1; same type as x; finite.
        batch_indices: [num_rois] after up to 3 axes of length 1, each region's image index; integers >= 0 and < N.
        output_height: number of outputs along the height, >= 1.
        output_width: number of outputs along the width, >= 1.
        reduction_function: "average" or "max" of an output's samples.
        interpolation_mode: "linear" between pixels, or "nearest_neighbor" for the nearest pixel, in a tie the later pixel.
        spatial_scale_x: pixels of x for each unit of x1 and x2, > 0.
        spatial_scale_y: pixels of x for each unit of y1 and y2, > 0.
        input_pixel_offset: distance in pixels from the origin of the coordinates to the centre of the first pixel; finite.
        output_pixel_offset: negated offset of a sample within its step, in steps; -0.5 is the middle; finite.
        out_of_bounds_input_value: value of a sample at a coordinate <= -1 or > the map's length on either axis.
        minimum_samples_per_output: smallest number of an output's samples along each axis, >= 1.
        maximum_samples_per_output: largest number of an output's samples along each axis, >= the minimum and < 2**32.
        align_regions_to_corners: True (or 1) spreads samples up to the region's corners; False (or 0) does not.

    Returns:
        [num_rois, C, output_height, output_width] with the type of x, accumulated in float32 (float64 for float64).

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a region or a batch index breaks its rule; the message names it.

    Source: Microsoft's documentation of DML_ROI_ALIGN1_OPERATOR_DESC.
    """


@computes(DML_ROI_ALIGN_GRAD)
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
    """The gradient of `dml_roi_align` with respect to the feature maps and the regions.

    With L = sum(dy * dml_roi_align(x, rois, ...)), dx is dL/dx and drois is dL/drois, the derivative with respect to the
    stored coordinates, including the spatial scales. A maximum passes its gradient to its first winner, by row and column of
    samples. A sample off the map passes nothing; in a maximum it counts as 0. The interpolation's slope is the slope between
    the pixels at a coordinate's floor and ceil: 0 on a pixel and for nearest_neighbor. The number of samples counts as
    constant.

    Args:
        dy: gradient with respect to the output [num_rois, C, PH, PW], PH and PW >= 1; float16, float32 or float64.
        rois: as in `dml_roi_align`, same type as dy.
        batch_indices: as in `dml_roi_align`.
        x_shape: the shape of x, [N, C, H, W]; 4 integers >= 0.
        x: feature maps [N, C, H, W], same type as dy; required for drois and for the reduction "max".
        reduction_function: as in `dml_roi_align`.
        interpolation_mode: as in `dml_roi_align`.
        spatial_scale_x: as in `dml_roi_align`.
        spatial_scale_y: as in `dml_roi_align`.
        input_pixel_offset: as in `dml_roi_align`.
        output_pixel_offset: as in `dml_roi_align`.
        minimum_samples_per_output: as in `dml_roi_align`.
        maximum_samples_per_output: as in `dml_roi_align`.
        align_regions_to_corners: as in `dml_roi_align`.
        outputs: the gradients to compute, at least one of "dx" and "drois".

    Returns:
        dx [N, C, H, W] and drois, with the shape of rois, both with the type of dy, accumulated at least in float32 (float64
        for float64); None for a gradient that is not in outputs.

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a region or a batch index breaks its rule, or x is missing.

    Source: Microsoft's documentation of DML_ROI_ALIGN_GRAD_OPERATOR_DESC; derivatives with respect to regions refer to the
    stored values, as in TensorFlow's crop_and_resize.
    """
