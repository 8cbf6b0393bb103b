"""PSRoIAlign and its gradient, sample by sample: RoiAlign's means, where each bin reads its own channel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from ortops.reference.roi_align import CoordinateTransformationMode, check_data, check_gradient, pool, pool_grad
from ortops.reference.sampling import axes_of_roi


def ps_roi_align(
    x: npt.NDArray[np.float64],
    rois: npt.NDArray[np.float64],
    batch_indices: npt.NDArray[np.int64],
    *,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
    coordinate_transformation_mode: CoordinateTransformationMode,
) -> npt.NDArray[np.float64]:
    """Pool feature maps over RoIs: the mean of each bin's samples, where each bin reads its own channels.

    Bin (i, j) of channel c reads the map's channel (c*PH + i)*PW + j, with the same samples as `roi_align`. A sample
    outside the map is 0 and counts in the mean.

    Args:
        x: [N, C, H, W], the feature map; C is a multiple of output_height * output_width.
        rois: [R, 4], as in `roi_align`.
        batch_indices: [R], as in `roi_align`.
        output_height: PH, the number of bins along y, at least 1.
        output_width: PW, the number of bins along x, at least 1.
        sampling_ratio: as in `roi_align`.
        spatial_scale: as in `roi_align`.
        coordinate_transformation_mode: as in `roi_align`.

    Returns:
        [R, C / (PH * PW), PH, PW]; 0 where a RoI has no samples.

    Raises:
        ValueError: as in `roi_align`.

    Source:
        torchvision's documentation of ps_roi_align for the channels; ONNX RoiAlign-22 for the samples.
    """
    check_data(rois, batch_indices, x.shape, names=("rois", "batch_indices", "X"))
    size = (output_height, output_width)

    axes = partial(
        axes_of_roi,
        output_size=size,
        map_size=x.shape[2:],
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
        coordinate_transformation_mode=coordinate_transformation_mode,
    )

    return pool(x, rois, batch_indices, size, axes, "avg", position_sensitive=True)


def ps_roi_align_grad(
    dy: npt.NDArray[np.float64],
    rois: npt.NDArray[np.float64],
    batch_indices: npt.NDArray[np.int64],
    x_shape: Sequence[int] | npt.NDArray[np.int64],
    x: npt.NDArray[np.float64] | None = None,
    *,
    sampling_ratio: int,
    spatial_scale: float,
    coordinate_transformation_mode: CoordinateTransformationMode,
    outputs: Sequence[str] = ("dx", "drois"),
) -> tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.float64] | None]:
    """The gradients of `sum(dy * ps_roi_align(x, rois, ...))` by `x` and by the stored coordinates in `rois`.

    A sample has the same derivatives as in `roi_align_grad`.

    Args:
        dy: [R, C / (PH * PW), PH, PW], the gradient by the forward operator's output; PH and PW at least 1.
        rois: [R, 4], as in the forward operator.
        batch_indices: [R], as in the forward operator.
        x_shape: N, C, H, W.
        x: [N, C, H, W], the feature map; required only for drois.
        sampling_ratio: as in the forward operator.
        spatial_scale: as in the forward operator.
        coordinate_transformation_mode: as in the forward operator.
        outputs: the gradients wanted, at least one of dx and drois.

    Returns:
        dx [N, C, H, W] and drois [R, 4]; None for a gradient that is not wanted.

    Raises:
        ValueError: as in `ps_roi_align`; or `x` is required and missing, an output size is 0, or `outputs` is empty or has
            another name.

    Source:
        The derivative of `ps_roi_align`.
    """
    shape = tuple(int(length) for length in x_shape)
    check_data(rois, batch_indices, shape, names=("rois", "batch_indices", "x_shape"))
    x_required_by = "drois" if x is None and "drois" in outputs else None
    check_gradient(dy.shape, outputs, known=("dx", "drois"), names=("dY", "X"), x_required_by=x_required_by)

    axes = partial(
        axes_of_roi,
        output_size=dy.shape[2:],
        map_size=shape[2:],
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
        coordinate_transformation_mode=coordinate_transformation_mode,
    )

    wanted = ("dx" in outputs, "drois" in outputs)
    return pool_grad(dy, rois, batch_indices, shape, x, axes, "avg", wanted, position_sensitive=True)
