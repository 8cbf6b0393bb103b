"""Checks of the data that all operators on RoIs share; the errors name argument, value and rule."""

from __future__ import annotations

from collections.abc import Sequence

from ortops.kernels.jit.kernel import Array


def check_map(names: tuple[str, str, str], rois: Array, x_shape: Sequence[int]) -> None:
    """Check that there are pixels where there are RoIs.

    Args:
        names: the operator's names of feature map, RoIs and batch indices.
        rois: [R, 4], or [R, 5] for rotated RoIs.
        x_shape: the shape of the feature map.

    Raises:
        ValueError: there are RoIs but no pixels.
    """
    height, width = x_shape[2:]
    if len(rois) and (height == 0 or width == 0):
        raise ValueError(f"{names[0]} is {height} x {width} pixels: must not be empty where there are RoIs")


def check_rois(
    names: tuple[str, str, str], invalid: int, rois: Array, batch_indices: Array, x_shape: Sequence[int]
) -> None:
    """Raise an error for the first invalid RoI.

    Args:
        names: as in `check_map`.
        invalid: the number of the first invalid RoI, or -1 if there is none.
        rois: [R, 4], or [R, 5] for rotated RoIs.
        batch_indices: the image of each RoI [R].
        x_shape: the shape of the feature map.

    Raises:
        ValueError: the RoI's batch index is invalid, or a coordinate is not finite.
    """
    if invalid < 0:
        return
    count = x_shape[0]
    if not 0 <= batch_indices[invalid] < count:
        raise ValueError(
            f"{names[2]}[{invalid}] = {batch_indices[invalid]}: must be >= 0 and < {count}, the number of images"
        )
    raise ValueError(f"{names[1]}[{invalid}] = {rois[invalid].tolist()}: must be finite")


def check_bins(name: str, dy: Array) -> None:
    """Check that dY has bins.

    Args:
        name: the operator's name of dY.
        dy: [R, C, PH, PW].

    Raises:
        ValueError: PH or PW is 0.
    """
    if 0 in dy.shape[2:]:
        raise ValueError(f"{name} has shape {list(dy.shape)}: must have an output height and width >= 1")
