# SPDX-License-Identifier: MIT
"""MaxRoiPool and its gradient on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from ortops.functional.call import Array, computes
from ortops.operators.max_roi_pool import MAX_ROI_POOL_22, MAX_ROI_POOL_GRAD


@computes(MAX_ROI_POOL_22)
def max_roi_pool(x: ArrayLike, rois: ArrayLike, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> Array:
    """Pool feature maps over RoIs: the largest pixel in each bin, as ONNX MaxRoiPool-22 defines it.

    y[r, c, i, j] = max of x[batch_id, c] over the pixels in bin (i, j) of RoI r. Along the width, with S = spatial_scale and
    P = output_width (the height is treated the same way), bin j has the columns

        start + floor(j*L/P) to start + ceil((j + 1)*L/P) - 1  that are on the map, where
        start = round(x1*S),  end = round(x2*S),  L = max(end - start + 1, 1), halves rounded away from 0

    The bounds are exact; ONNX Runtime computes them in float32.

    Args:
        x: feature maps [N, C, H, W]; float16, bfloat16, float32 or float64.
        rois: [num_rois, 5] as batch_id, x1, y1, x2, y2; same type as x; finite. batch_id is an image index, a whole number
            >= 0 and < N; the coordinates are in pixels of the input image.
        pooled_shape: [output_height, output_width], the numbers of bins along height and width, each >= 1.
        spatial_scale: pixels of x for each pixel of the input image, > 0; rounded to float32 as in an ONNX attribute.

    Returns:
        [num_rois, C, output_height, output_width] with the type of x. Values are pixels of x; NaN if a bin has a NaN, and 0
        if a bin has no pixel on the map.

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or its batch_id breaks its rule; the message names it.

    Source: ONNX operators, MaxRoiPool-22; Girshick, Fast R-CNN (arXiv 1504.08083), section 2.1.
    """


@computes(MAX_ROI_POOL_GRAD)
def max_roi_pool_grad(dy: ArrayLike, x: ArrayLike, rois: ArrayLike, *, spatial_scale: float = 1.0) -> Array:
    """The gradient of `max_roi_pool` with respect to the feature maps; the gradient with respect to the RoIs is 0.

    With L = sum(dy * max_roi_pool(x, rois, ...)), dx is dL/dx: each dy[r, c, i, j] is added to its bin's largest pixel, the
    first, row by row, of equal maxima or of NaNs. A bin without pixels passes nothing.

    Args:
        dy: gradient with respect to the output [num_rois, C, PH, PW], PH and PW >= 1; float16, bfloat16, float32 or float64.
        x: as in `max_roi_pool`, same type as dy.
        rois: as in `max_roi_pool`, same type as dy.
        spatial_scale: as in `max_roi_pool`.

    Returns:
        dx [N, C, H, W] with the type of dy, accumulated at least in float32 (float64 for float64). Its bits do not depend on
        the number of threads.

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or its batch_id breaks its rule, or dy has no bins.

    Source: the derivative of ONNX MaxRoiPool-22; no ONNX operator computes it.
    """
