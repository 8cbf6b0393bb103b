"""MaxRoiPool and its gradient on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from ortops.functional.call import Array, call
from ortops.operators.max_roi_pool import MAX_ROI_POOL_22, MAX_ROI_POOL_GRAD


def max_roi_pool(x: ArrayLike, rois: ArrayLike, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> Array:
    """The largest pixels of the bins of RoIs, as ONNX MaxRoiPool-22 defines it.

    The ends of a RoI, scaled, are rounded to whole pixels, halves away from 0, and belong to it: on an axis it has
    max(end - start + 1, 1) = L pixels. Bin p of P has those from start + floor(p*L/P) to start + ceil((p + 1)*L/P) - 1,
    as far as they lie on the map. The bounds are exact, while ONNX Runtime computes them in float32.

    Args:
        x: feature maps [N, C, H, W]; float16, bfloat16, float32 or float64.
        rois: [num_rois, 5] as batch_id, x1, y1, x2, y2, of the type of x; finite. batch_id is the number of an image, a
            whole number >= 0 and < N; the rest are pixels of the input image.
        pooled_shape: output_height and output_width, the bins on the vertical and the horizontal axis, each >= 1.
        spatial_scale: pixels of x for each pixel of the input image, > 0; rounded to float32 as in an ONNX attribute.

    Returns:
        [num_rois, C, output_height, output_width] of the type of x: NaN where a pixel of a bin is NaN, and 0 where a bin
        has no pixels.

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or its batch_id breaks its rule; the message names it.

    Source: ONNX operators, MaxRoiPool-22; Girshick, Fast R-CNN (arXiv 1504.08083), section 2.1.
    """
    y: Array
    attributes = {"pooled_shape": pooled_shape, "spatial_scale": spatial_scale}
    (y,) = call(MAX_ROI_POOL_22, (x, rois), attributes, (True,))
    return y


def max_roi_pool_grad(dy: ArrayLike, x: ArrayLike, rois: ArrayLike, *, spatial_scale: float = 1.0) -> Array:
    """The gradient of `max_roi_pool` with respect to the feature maps; RoIs have none.

    The gradient of an output goes to the pixel that it is: of several that are equal, to the first, row by row. Where one
    is NaN, it goes to the first of those. That of an empty bin goes nowhere.

    Args:
        dy: gradient with respect to the output [num_rois, C, PH, PW]; float16, bfloat16, float32 or float64.
        x: as in `max_roi_pool`, of the type of dy.
        rois: as in `max_roi_pool`, of the type of dy.
        spatial_scale: as in `max_roi_pool`.

    Returns:
        dx [N, C, H, W] of the type of dy, accumulated in float32 (float64 for float64). The same bit for bit for any number
        of threads.

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape, an attribute, a RoI or its batch_id breaks its rule, or dy has no bins.

    Source: the derivative of ONNX MaxRoiPool-22; no ONNX operator has it.
    """
    dx: Array
    (dx,) = call(MAX_ROI_POOL_GRAD, (dy, x, rois), {"spatial_scale": spatial_scale}, (True,))
    return dx
