"""What every operator on RoIs checks of its data, with errors that name argument, value and rule."""

from __future__ import annotations

from collections.abc import Sequence

from ortops.kernels.jit.kernel import Array


def check_map(names: tuple[str, str, str], rois: Array, x_shape: Sequence[int]) -> None:
    """Check that there are pixels where there are RoIs.

    Args:
        names: what the operator calls feature map, RoIs and batch indices.
        rois: [R, 4].
        x_shape: the shape of the feature map.

    Raises:
        ValueError: the map has RoIs but no pixels.
    """
    height, width = x_shape[2:]
    if len(rois) and (height == 0 or width == 0):
        raise ValueError(f"{names[0]} is {height} x {width} pixels: must not be empty where there are RoIs")


def check_rois(names: tuple[str, str, str], fault: int, rois: Array, images: Array, x_shape: Sequence[int]) -> None:
    """Refuse the RoI at which placing them has ended.

    Args:
        names: as in `check_map`.
        fault: its number, or -1 if there is none.
        rois: [R, 4].
        images: the image of each RoI [R].
        x_shape: the shape of the feature map.

    Raises:
        ValueError: its batch index is not an image's, or it is not finite.
    """
    if fault < 0:
        return
    count = x_shape[0]
    if not 0 <= images[fault] < count:
        raise ValueError(f"{names[2]}[{fault}] = {images[fault]}: must be >= 0 and < {count}, the number of images")
    raise ValueError(f"{names[1]}[{fault}] = {rois[fault].tolist()}: must be finite")


def check_gradient(
    names: tuple[str, str, str, str],
    dy: Array,
    x: Array | None,
    dx: Array | None,
    drois: Array | None,
    asks_for_x: str | None,
) -> None:
    """Check what a gradient is given and asked for.

    Args:
        names: what the operator calls dY, X, dX and drois.
        asks_for_x: the attribute and its value for which X is needed, or None.

    Raises:
        ValueError: nothing is asked for, X is missing, or dY has no bins.
    """
    if dx is None and drois is None:
        raise ValueError(f"{names[2]} and {names[3]} are both left out: at least one must be wanted")
    asks_for_x = asks_for_x or (None if drois is None else names[3])
    if x is None and asks_for_x:
        raise ValueError(f"{names[1]} is missing: must be given for {asks_for_x}")
    if 0 in dy.shape[2:]:
        raise ValueError(f"{names[0]} has shape {list(dy.shape)}: must have an output height and width >= 1")
