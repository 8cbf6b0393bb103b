"""RoiAlign and its gradient on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from ortops.functional.call import Array, call, gradients
from ortops.operators.roi_align import ROI_ALIGN_22, ROI_ALIGN_GRAD

Mode = Literal["avg", "max", "max_interpolated"]
CoordinateTransformationMode = Literal["half_pixel", "output_half_pixel"]


def roi_align(
    x: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    *,
    output_height: int,
    output_width: int,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    mode: Mode = "avg",
    coordinate_transformation_mode: CoordinateTransformationMode = "half_pixel",
) -> Array:
    """Feature maps pooled over RoIs, as ONNX RoiAlign-22 defines it.

    Each RoI, scaled, is cut into output_height x output_width bins. A bin takes g x g samples, bilinear between pixels,
    g = sampling_ratio or ceil(bin size) where that is 0; a sample more than a pixel off the map counts as 0. The result
    is their average or maximum.

    Args:
        x: feature maps [N, C, H, W]; float16, bfloat16, float32 or float64.
        rois: [num_rois, 4] as x1, y1, x2, y2 in pixels of the input image, of the type of x; finite.
        batch_indices: the image of each RoI [num_rois], integers >= 0 and < N.
        output_height: bins on the vertical axis, >= 1.
        output_width: bins on the horizontal axis, >= 1.
        sampling_ratio: samples of a bin on each axis; 0 takes as many as the bin has pixels, rounded up.
        spatial_scale: pixels of x for each pixel of the input image, > 0; rounded to float32 as in an ONNX attribute.
        mode: "avg"; "max", the largest *weighted corner* of any sample, as ONNX's test vectors have it; or
            "max_interpolated", the largest interpolated sample, as DirectML and mmcv have it.
        coordinate_transformation_mode: "half_pixel" shifts scaled RoIs by -0.5; "output_half_pixel", the meaning of
            opset 10, does not, and makes them at least 1 x 1.

    Returns:
        [num_rois, C, output_height, output_width] of the type of x, accumulated in float32 (float64 for float64).

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or a batch index breaks its rule; the message names it.

    Source: ONNX operators, RoiAlign-22 and its reference evaluator.
    """
    attributes = {
        "output_height": output_height,
        "output_width": output_width,
        "sampling_ratio": sampling_ratio,
        "spatial_scale": spatial_scale,
        "mode": mode,
        "coordinate_transformation_mode": coordinate_transformation_mode,
    }
    y: Array
    (y,) = call(ROI_ALIGN_22, (x, rois, batch_indices), attributes, (True,))
    return y


def roi_align_grad(
    dy: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    x_shape: ArrayLike,
    *,
    x: ArrayLike | None = None,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    mode: Mode = "avg",
    coordinate_transformation_mode: CoordinateTransformationMode = "half_pixel",
    outputs: Sequence[Literal["dx", "drois"]] = ("dx", "drois"),
) -> tuple[Array | None, Array | None]:
    """The gradient of `roi_align` with respect to the feature maps and to the RoIs.

    dx is the transpose of the forward map applied to dy. drois is the derivative with respect to the stored coordinates,
    spatial_scale included; the sample count of sampling_ratio 0 is taken as constant. A maximum passes its gradient to
    its first winner.

    Args:
        dy: gradient with respect to the output [num_rois, C, PH, PW]; float16, bfloat16, float32 or float64.
        rois: as in `roi_align`, of the type of dy.
        batch_indices: as in `roi_align`.
        x_shape: the shape of x, 4 integers >= 0.
        x: feature maps [N, C, H, W] of the type of dy; needed for drois and for the maxima.
        sampling_ratio: as in `roi_align`.
        spatial_scale: as in `roi_align`.
        mode: as in `roi_align`.
        coordinate_transformation_mode: as in `roi_align`.
        outputs: which to compute, at least one of "dx" and "drois".

    Returns:
        dx [N, C, H, W] and drois [num_rois, 4] of the type of dy, None where not asked for. The same bit for bit for any
        number of threads.

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or a batch index breaks its rule, or x is missing.

    Source: the derivative of ONNX RoiAlign-22; no ONNX operator has it.
    """
    attributes = {
        "sampling_ratio": sampling_ratio,
        "spatial_scale": spatial_scale,
        "mode": mode,
        "coordinate_transformation_mode": coordinate_transformation_mode,
    }
    dx, drois = call(ROI_ALIGN_GRAD, (dy, rois, batch_indices, x_shape, x), attributes, gradients(outputs))
    return dx, drois
