# SPDX-License-Identifier: MIT
"""RoIAlignRotated and its gradient on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from ortops.functional.call import Array, computes
from ortops.operators.roi_align_rotated import ROI_ALIGN_ROTATED, ROI_ALIGN_ROTATED_GRAD


@computes(ROI_ALIGN_ROTATED)
def roi_align_rotated(
    x: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    *,
    output_height: int,
    output_width: int,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    aligned: bool | Literal[0, 1] = True,
    clockwise: bool | Literal[0, 1] = False,
) -> Array:
    """Pool feature maps over rotated RoIs, as mmcv's RoIAlignRotated and detectron2's ROIAlignRotated do.

    y[r, c, i, j] is the mean of bilinear samples of x[batch_indices[r], c] in bin (i, j) of RoI r. The grid of samples is
    rotated about the RoI's centre. With S = spatial_scale, P = output_width and t = angle (-angle if clockwise):

        centre = (cx*S - 0.5, cy*S - 0.5),  B = w*S        if aligned
        centre = (cx*S, cy*S),  B = max(w*S, 1)            if not aligned
        u = B*((k + 0.5)/(P*g) - 0.5),  k = j*g, ..., j*g + g - 1,  g = sampling_ratio or ceil(B/P);  v along the height
        samples at centre + (u*cos(t) + v*sin(t), v*cos(t) - u*sin(t))

    A sample more than a pixel outside the map counts as 0, and so does a bin without samples.

    Args:
        x: feature maps [N, C, H, W]; float16, bfloat16, float32 or float64.
        rois: [num_rois, 5] as centre x, centre y, width and height in pixels of the input image and an angle in radians,
            positive if the RoI turns counter-clockwise as seen on the image; same type as x; finite.
        batch_indices: [num_rois], each RoI's image index; integers >= 0 and < N.
        output_height: number of bins along the RoI's height, >= 1.
        output_width: number of bins along the RoI's width, >= 1.
        spatial_scale: pixels of x for each pixel of the input image, > 0; rounded to float32 as in an ONNX attribute.
        sampling_ratio: number of a bin's samples along each axis, >= 0 and <= 64; 0 takes the bin's size in pixels, rounded
            up.
        aligned: True (or 1) shifts scaled centres by -0.5 pixels; False (or 0) does not, and makes RoIs at least 1 x 1.
        clockwise: True (or 1) if positive angles turn a RoI clockwise as seen on the image; False (or 0) if not.

    Returns:
        [num_rois, C, output_height, output_width] with the type of x, accumulated in float32 (float64 for float64).

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or a batch index breaks its rule; the message names it.

    Source: mmcv's documentation of RoIAlignRotated and of the ONNX operator MMCVRoIAlignRotated.
    """


@computes(ROI_ALIGN_ROTATED_GRAD)
def roi_align_rotated_grad(
    dy: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    x_shape: ArrayLike,
    x: ArrayLike | None = None,
    *,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    aligned: bool | Literal[0, 1] = True,
    clockwise: bool | Literal[0, 1] = False,
    outputs: Sequence[Literal["dx", "drois"]] = ("dx", "drois"),
) -> tuple[Array | None, Array | None]:
    """The gradient of `roi_align_rotated` with respect to the feature maps and the RoIs.

    With L = sum(dy * roi_align_rotated(x, rois, ...)), dx is dL/dx and drois is dL/drois, the derivative with respect to the
    stored centre, size and angle, including spatial_scale. It is 0 for a size that was raised to 1. The number of samples
    for sampling_ratio 0 counts as constant.

    Args:
        dy: gradient with respect to the output [num_rois, C, PH, PW], PH and PW >= 1; float16, bfloat16, float32 or float64.
        rois: as in `roi_align_rotated`, same type as dy.
        batch_indices: as in `roi_align_rotated`.
        x_shape: the shape of x, [N, C, H, W]; 4 integers >= 0.
        x: feature maps [N, C, H, W], same type as dy; required for drois.
        spatial_scale: as in `roi_align_rotated`.
        sampling_ratio: as in `roi_align_rotated`.
        aligned: as in `roi_align_rotated`.
        clockwise: as in `roi_align_rotated`.
        outputs: the gradients to compute, at least one of "dx" and "drois".

    Returns:
        dx [N, C, H, W] and drois [num_rois, 5] with the type of dy, accumulated at least in float32 (float64 for float64);
        None for a gradient that is not in outputs. Bits do not depend on the number of threads.

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or a batch index breaks its rule, or x is missing.

    Source: the derivative of mmcv's RoIAlignRotated; mmcv has no derivative with respect to the RoIs.
    """
