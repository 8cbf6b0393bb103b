"""PSRoIAlign and its gradient, sample by sample: the means of RoiAlign, each over a channel of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ortops.reference.roi_align import (
    CoordinateTransformationMode,
    add_to_droi,
    add_to_dx,
    average,
    channels_of,
    check_data,
    check_gradient,
    images_of,
    terms_of,
)
from ortops.reference.sampling import Bin, axes_of_roi, bins_of


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
    """Feature maps pooled over RoIs: the means of the samples in each bin, which reads its own channels.

    Bin (i, j) of channel c reads the map's channel (c*PH + i)*PW + j. The samples are those of `roi_align`. A sample
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
    y = np.zeros((len(rois), x.shape[1] // (output_height * output_width), *size))
    for r, (roi, n) in enumerate(zip(rois.tolist(), images_of(batch_indices), strict=True)):
        axes = axes_of_roi(
            roi,
            size,
            x.shape[2:],
            sampling_ratio=sampling_ratio,
            spatial_scale=spatial_scale,
            coordinate_transformation_mode=coordinate_transformation_mode,
        )
        channels = channels_of(x, n)
        for bin_ in bins_of(*axes):
            for c in range(y.shape[1]):
                y[r, c, bin_.p, bin_.q] = average(bin_, channels[_read_by(bin_, c, size)], 0.0)
    return y


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

    The derivatives of a sample are those of `roi_align_grad`.

    Args:
        dy: [R, C / (PH * PW), PH, PW], the gradient by the forward operator's output; PH and PW at least 1.
        rois: [R, 4], as in the forward operator.
        batch_indices: [R], as in the forward operator.
        x_shape: N, C, H, W.
        x: [N, C, H, W], the feature map; required for drois only.
        sampling_ratio: as in the forward operator.
        spatial_scale: as in the forward operator.
        coordinate_transformation_mode: as in the forward operator.
        outputs: the gradients wanted, at least one of dx and drois.

    Returns:
        dx [N, C, H, W] and drois [R, 4], None for one that is not wanted.

    Raises:
        ValueError: as in `ps_roi_align`; or `x` is required and missing, an output size is 0, or `outputs` is empty or has
            another name.

    Source:
        The derivative of `ps_roi_align`.
    """
    shape, size = tuple(int(length) for length in x_shape), (dy.shape[2], dy.shape[3])
    check_data(rois, batch_indices, shape, names=("rois", "batch_indices", "x_shape"))
    x_required_by = "drois" if x is None and "drois" in outputs else None
    check_gradient(dy.shape, outputs, known=("dx", "drois"), names=("dY", "X"), x_required_by=x_required_by)
    dx = np.zeros(shape).tolist()
    drois = np.zeros((len(rois), 4)).tolist()
    for r, (roi, n) in enumerate(zip(rois.tolist(), images_of(batch_indices), strict=True)):
        axes = axes_of_roi(
            roi,
            size,
            shape[2:],
            sampling_ratio=sampling_ratio,
            spatial_scale=spatial_scale,
            coordinate_transformation_mode=coordinate_transformation_mode,
        )
        for bin_ in bins_of(*axes):
            for c in range(dy.shape[1]):
                k = _read_by(bin_, c, size)
                channel = [] if x is None else x[n, k].tolist()
                for term in terms_of("avg", bin_, channel):
                    share = float(dy[r, c, bin_.p, bin_.q]) / term.divisor
                    add_to_dx(dx[n][k], share, term)
                    if x is not None:
                        add_to_droi(drois[r], share, term, channel, bin_, *axes)
    return (
        np.array(dx, np.float64).reshape(shape) if "dx" in outputs else None,
        np.array(drois, np.float64).reshape(-1, 4) if "drois" in outputs else None,
    )


def _read_by(bin_: Bin, c: int, size: tuple[int, int]) -> int:
    """The channel of the map that a bin of channel `c` of the output reads."""
    return (c * size[0] + bin_.p) * size[1] + bin_.q
