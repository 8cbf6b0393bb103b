"""What every operator on RoIs checks of its data, with errors that name argument, value and rule."""

from __future__ import annotations

from collections.abc import Sequence

from ortops.kernels.jit.kernel import Array


def check_map(names: tuple[str, str, str], rois: Array, x_shape: Sequence[int]) -> None:
    """Check that there are pixels where there are RoIs.

    Args:
        names: what the operator calls feature map, RoIs and batch indices.
        rois: [R, 4], or [R, 5] of rotated ones.
        x_shape: the shape of the feature map.

    Raises:
        ValueError: the map has RoIs but no pixels.
    """
    height, width = x_shape[2:]
    if len(rois) and (height == 0 or width == 0):
        raise ValueError(f"{names[0]} is {height} x {width} pixels: must not be empty where there are RoIs")


def check_rois(
    names: tuple[str, str, str], invalid: int, rois: Array, batch_indices: Array, x_shape: Sequence[int]
) -> None:
    """Refuse the RoI at which placing them has ended.

    Args:
        names: as in `check_map`.
        fault: its number, or -1 if there is none.
        rois: [R, 4], or [R, 5] of rotated ones.
        images: the image of each RoI [R].
        x_shape: the shape of the feature map.

    Raises:
        ValueError: its batch index is not an image's, or it is not finite.
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
    """Check that a gradient has bins.

    Args:
        name: what the operator calls dY.
        dy: [R, C, PH, PW].

    Raises:
        ValueError: it has none.
    """
    if 0 in dy.shape[2:]:
        raise ValueError(f"{name} has shape {list(dy.shape)}: must have an output height and width >= 1")
