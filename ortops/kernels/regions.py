"""What every operator on RoIs checks of its data, with errors that name argument, value and rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ortops.kernels.compile import cached
from ortops.kernels.element import Array, widen, words


def check_regions(names: tuple[str, str, str], rois: Array, images: Array, x_shape: Sequence[int]) -> None:
    """Check rois [R, 4] and the image of each [R] against the shape of the feature map.

    Args:
        names: what the operator calls feature map, RoIs and batch indices.

    Raises:
        ValueError: the map has RoIs but no pixels, an index is not an image's, or a RoI is not finite.
    """
    count, _, height, width = x_shape
    if len(rois) and (height == 0 or width == 0):
        raise ValueError(f"{names[0]} is {height} x {width} pixels: must not be empty where there are RoIs")
    r = _first_fault(words(rois), images, count)
    if r < 0:
        return
    if not 0 <= images[r] < count:
        raise ValueError(f"{names[2]}[{r}] = {images[r]}: must be >= 0 and < {count}, the number of images")
    raise ValueError(f"{names[1]}[{r}] = {rois[r].tolist()}: must be finite")


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


@cached
def _first_fault(rois: Array, images: Array, count: int) -> int:
    """The first RoI with an index that is not an image's or a coordinate that is not finite; -1 if there is none."""
    for r in range(len(rois)):
        if images[r] < 0 or images[r] >= count:
            return r
        for k in range(4):
            if not np.isfinite(widen(rois[r, k])):
                return r
    return -1
