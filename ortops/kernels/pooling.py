"""Pooling a map over RoIs whose samples are placed already, and its gradients: what each mode is called.

Arguments: x [N, C, H, W]; axes [R, 2, NUMBERS], y before x; images [R], the image of each RoI; y [R, C, PH, PW].
"""

from __future__ import annotations

from ortops.kernels.element import Array, words
from ortops.kernels.parallel import Runner
from ortops.kernels.pooled_average import average_rois, average_rois_drois, average_rois_dx
from ortops.kernels.pooled_maximum import maximum_rois, maximum_rois_drois, maximum_rois_dx


def pool(x: Array, axes: Array, images: Array, y: Array, mode: str, runner: Runner, outside: float = 0.0) -> None:
    """Fill y; mode is avg, max (of weighted corners) or max_interpolated; outside is the value of samples off the map.

    Raises:
        MemoryError: there is none left to work in.
    """
    if y.size == 0:
        return
    arrays = words(x), axes, images, words(y)
    if mode == "avg":
        failed = average_rois(*arrays, outside, runner)
    else:
        failed = maximum_rois(*arrays, outside, mode == "max", runner)
    _check(failed)


def pool_gradient(
    dy: Array, axes: Array, images: Array, x: Array, dx: Array | None, drois: Array | None, mode: str, runner: Runner
) -> None:
    """Fill dx [N, C, H, W] and drois [R, 4] where not None; x may be None for the dx of an average.

    Raises:
        MemoryError: there is none left to work in.
    """
    dy = words(dy)
    if dx is not None and dx.size:
        if mode == "avg":
            _check(average_rois_dx(dy, axes, images, words(dx), runner))
        else:
            _check(maximum_rois_dx(words(x), dy, axes, images, words(dx), mode == "max", runner))
    if drois is not None and drois.size:
        if mode == "avg":
            _check(average_rois_drois(words(x), dy, axes, images, drois, runner))
        else:
            _check(maximum_rois_drois(words(x), dy, axes, images, drois, mode == "max", runner))


def _check(failed: bool) -> None:
    if failed:
        raise MemoryError("out of memory for the work space of a RoI")
