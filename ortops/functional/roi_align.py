# SPDX-License-Identifier: MIT
"""RoiAlign and its gradient on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from ortops.functional.call import Array, computes
from ortops.operators.roi_align import ROI_ALIGN_22, ROI_ALIGN_GRAD

Mode = Literal["avg", "max", "max_interpolated"]
CoordinateTransformationMode = Literal["half_pixel", "output_half_pixel"]


@computes(ROI_ALIGN_22)
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
    """Pool feature maps over RoIs, as ONNX RoiAlign-22 defines it.

    y[r, c, i, j] is the mean (mode "avg") or a maximum of bilinear samples of x[batch_indices[r], c] in bin (i, j) of RoI r.
    Along the width, with S = spatial_scale and P = output_width (the height is treated the same way):

        start = x1*S - 0.5,  size = (x2 - x1)*S            for "half_pixel"
        start = x1*S,        size = max((x2 - x1)*S, 1)    for "output_half_pixel"
        samples at start + j*size/P + (k + 0.5)*size/(P*g),  k = 0, ..., g - 1,  g = sampling_ratio or ceil(size/P)

    A sample more than a pixel outside the map counts as 0, and so does a bin without samples.

    Args:
        x: feature maps [N, C, H, W]; float16, bfloat16, float32 or float64.
        rois: [num_rois, 4] as x1, y1, x2, y2 in pixels of the input image; same type as x; finite.
        batch_indices: [num_rois], each RoI's image index; integers >= 0 and < N.
        output_height: number of bins along the height, >= 1.
        output_width: number of bins along the width, >= 1.
        sampling_ratio: number of a bin's samples along each axis, >= 0; 0 takes the bin's size in pixels, rounded up.
        spatial_scale: pixels of x for each pixel of the input image, > 0; rounded to float32 as in an ONNX attribute.
        mode: "avg"; "max", the largest *product of a pixel and its interpolation weight* in any sample, as in ONNX's test
            vectors; or "max_interpolated", the largest sample, as in DirectML and mmcv.
        coordinate_transformation_mode: "half_pixel" shifts scaled RoIs by -0.5 pixels; "output_half_pixel", opset 10's rule,
            does not shift them, and makes RoIs at least 1 x 1 pixel.

    Returns:
        [num_rois, C, output_height, output_width] with the type of x, accumulated in float32 (float64 for float64).

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or a batch index breaks its rule; the message names it.

    Source: ONNX operators, RoiAlign-22 and its reference evaluator.
    """


@computes(ROI_ALIGN_GRAD)
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
    """The gradient of `roi_align` with respect to the feature maps and the RoIs.

    With L = sum(dy * roi_align(x, rois, ...)), dx is dL/dx and drois is dL/drois, the derivative with respect to the stored
    coordinates, including spatial_scale. A maximum passes its gradient to its first winner in the order of rows, columns and
    pixels. The number of samples for sampling_ratio 0 counts as constant.

    Args:
        dy: gradient with respect to the output [num_rois, C, PH, PW], PH and PW >= 1; float16, bfloat16, float32 or float64.
        rois: as in `roi_align`, same type as dy.
        batch_indices: as in `roi_align`.
        x_shape: the shape of x, [N, C, H, W]; 4 integers >= 0.
        x: feature maps [N, C, H, W], same type as dy; required for drois and for the modes "max" and "max_interpolated".
        sampling_ratio: as in `roi_align`.
        spatial_scale: as in `roi_align`.
        mode: as in `roi_align`.
        coordinate_transformation_mode: as in `roi_align`.
        outputs: the gradients to compute, at least one of "dx" and "drois".

    Returns:
        dx [N, C, H, W] and drois [num_rois, 4] with the type of dy, accumulated at least in float32 (float64 for float64);
        None for a gradient that is not in outputs. Bits do not depend on the number of threads.

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or a batch index breaks its rule, or x is missing.

    Source: the derivative of ONNX RoiAlign-22; no ONNX operator computes it.
    """
