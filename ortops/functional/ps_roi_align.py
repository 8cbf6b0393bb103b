# SPDX-License-Identifier: MIT
"""Position-sensitive RoIAlign and its gradient on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from ortops.functional.call import Array, computes
from ortops.functional.roi_align import CoordinateTransformationMode
from ortops.operators.ps_roi_align import PS_ROI_ALIGN, PS_ROI_ALIGN_GRAD


@computes(PS_ROI_ALIGN)
def ps_roi_align(
    x: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    *,
    output_height: int,
    output_width: int,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    coordinate_transformation_mode: CoordinateTransformationMode = "half_pixel",
) -> Array:
    """Pool feature maps over RoIs as `torchvision.ops.ps_roi_align` does: each bin reads its own channels.

    y[r, c, i, j] is the mean of the samples that `roi_align` takes in bin (i, j) of RoI r, from channel
    (c*output_height + i)*output_width + j of x[batch_indices[r]].

    Args:
        x: feature maps [N, C, H, W], C a multiple of output_height*output_width; float16, bfloat16, float32 or float64.
        rois: [num_rois, 4] as x1, y1, x2, y2 in pixels of the input image; same type as x; finite.
        batch_indices: [num_rois], each RoI's image index; integers >= 0 and < N.
        output_height: number of bins along the height, >= 1.
        output_width: number of bins along the width, >= 1.
        sampling_ratio: number of a bin's samples along each axis, >= 0; 0 takes the bin's size in pixels, rounded up.
        spatial_scale: pixels of x for each pixel of the input image, > 0; rounded to float32 as in an ONNX attribute.
        coordinate_transformation_mode: as in `roi_align`; torchvision's is "half_pixel".

    Returns:
        [num_rois, C / (output_height*output_width), output_height, output_width] with the type of x, accumulated in float32
        (float64 for float64).

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or a batch index breaks its rule; the message names it.

    Source: torchvision 0.28, `torchvision.ops.ps_roi_align`; for the samples ONNX RoiAlign-22.
    """


@computes(PS_ROI_ALIGN_GRAD)
def ps_roi_align_grad(
    dy: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    x_shape: ArrayLike,
    *,
    x: ArrayLike | None = None,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    coordinate_transformation_mode: CoordinateTransformationMode = "half_pixel",
    outputs: Sequence[Literal["dx", "drois"]] = ("dx", "drois"),
) -> tuple[Array | None, Array | None]:
    """The gradient of `ps_roi_align` with respect to the feature maps and the RoIs.

    With L = sum(dy * ps_roi_align(x, rois, ...)), dx is dL/dx and drois is dL/drois, the derivative with respect to the
    stored coordinates, including spatial_scale. The number of samples for sampling_ratio 0 counts as constant.

    Args:
        dy: gradient with respect to the output [num_rois, C / (PH*PW), PH, PW], PH and PW >= 1; one of the types of x.
        rois: as in `ps_roi_align`, same type as dy.
        batch_indices: as in `ps_roi_align`.
        x_shape: the shape of x, [N, C, H, W]; 4 integers >= 0.
        x: feature maps [N, C, H, W], same type as dy; required for drois.
        sampling_ratio: as in `ps_roi_align`.
        spatial_scale: as in `ps_roi_align`.
        coordinate_transformation_mode: as in `ps_roi_align`.
        outputs: the gradients to compute, at least one of "dx" and "drois".

    Returns:
        dx [N, C, H, W] and drois [num_rois, 4] with the type of dy, accumulated at least in float32 (float64 for float64);
        None for a gradient that is not in outputs. Bits do not depend on the number of threads.

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or a batch index breaks its rule, or x is missing.

    Source: the derivative of `ps_roi_align`; torchvision has the derivative with respect to the feature maps.
    """
