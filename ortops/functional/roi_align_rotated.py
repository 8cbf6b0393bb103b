"""RoIAlignRotated and its gradient on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from ortops.functional.call import Array, as_int, call, gradients
from ortops.operators.roi_align_rotated import ROI_ALIGN_ROTATED, ROI_ALIGN_ROTATED_GRAD


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
    """Feature maps pooled over rotated RoIs, as mmcv's RoIAlignRotated and detectron2's ROIAlignRotated do it.

    A RoI of size W x H, scaled, is turned about its centre and cut into output_height x output_width bins along its own
    two axes. A bin is the mean of its samples, bilinear between pixels: sampling_ratio on each axis, or ceil(W/output_width)
    and ceil(H/output_height) where that is 0. A sample more than a pixel off the map counts as 0, and so does a bin that
    has none.

    Args:
        x: feature maps [N, C, H, W]; float16, bfloat16, float32 or float64.
        rois: [num_rois, 5] as centre x, centre y, width and height in pixels of the input image, and an angle in radians,
            positive where the region turns counter-clockwise as seen on the image; of the type of x; finite.
        batch_indices: the image of each RoI [num_rois], integers >= 0 and < N.
        output_height: bins along the RoI's height, >= 1.
        output_width: bins along the RoI's width, >= 1.
        spatial_scale: pixels of x for each pixel of the input image, > 0; rounded to float32 as in an ONNX attribute.
        sampling_ratio: samples of a bin on each axis, >= 0 and <= 1024; 0 takes as many as the bin has pixels, rounded up.
        aligned: True shifts scaled centres by -0.5; False does not, and makes RoIs at least 1 x 1. Or 1 and 0.
        clockwise: True where angles are clockwise. Or 1 and 0.

    Returns:
        [num_rois, C, output_height, output_width] of the type of x, accumulated in float32 (float64 for float64).

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or a batch index breaks its rule; the message names it.

    Source: mmcv's documentation of RoIAlignRotated and of the ONNX operator MMCVRoIAlignRotated.
    """
    attributes = {
        "output_height": output_height,
        "output_width": output_width,
        "spatial_scale": spatial_scale,
        "sampling_ratio": sampling_ratio,
        "aligned": as_int(aligned),
        "clockwise": as_int(clockwise),
    }
    y: Array
    (y,) = call(ROI_ALIGN_ROTATED, (x, rois, batch_indices), attributes, (True,))
    return y


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
    """The gradient of `roi_align_rotated` with respect to the feature maps and to the RoIs.

    dx is the transpose of the forward map applied to dy. drois is the derivative with respect to the stored centre, size
    and angle, spatial_scale included; the sample count of sampling_ratio 0 is taken as constant, and where a size was
    raised to 1 its derivative is 0.

    Args:
        dy: gradient with respect to the output [num_rois, C, PH, PW]; float16, bfloat16, float32 or float64.
        rois: as in `roi_align_rotated`, of the type of dy.
        batch_indices: as in `roi_align_rotated`.
        x_shape: the shape of x, 4 integers >= 0.
        x: feature maps [N, C, H, W] of the type of dy; needed for drois.
        spatial_scale: as in `roi_align_rotated`.
        sampling_ratio: as in `roi_align_rotated`.
        aligned: as in `roi_align_rotated`.
        clockwise: as in `roi_align_rotated`.
        outputs: which to compute, at least one of "dx" and "drois".

    Returns:
        dx [N, C, H, W] and drois [num_rois, 5] of the type of dy, None where not asked for. The same bit for bit for any
        number of threads.

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or a batch index breaks its rule, or x is missing.

    Source: the derivative of mmcv's RoIAlignRotated; mmcv itself has none with respect to the RoIs.
    """
    attributes = {
        "spatial_scale": spatial_scale,
        "sampling_ratio": sampling_ratio,
        "aligned": as_int(aligned),
        "clockwise": as_int(clockwise),
    }
    inputs = (dy, rois, batch_indices, x_shape, x)
    dx, drois = call(ROI_ALIGN_ROTATED_GRAD, inputs, attributes, gradients(outputs))
    return dx, drois
