"""Pooling a map over RoIs whose samples are placed, and its gradients: which kernel each mode has.

Arguments: x [N, C, H, W]; y [R, C, PH, PW].
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ortops.kernels.jit.kernel import Kernel
from ortops.kernels.jit.run import Runner
from ortops.kernels.layout import Placed

Array: TypeAlias = np.ndarray[Any, Any]

_pool_average = Kernel("average", "pool_average")


def pool(x: Array, placed: Placed, y: Array, mode: str, runner: Runner, outside: float = 0.0) -> None:
    """Fill y; mode is avg, max (of weighted corners) or max_interpolated; outside is the value of samples off the map.

    Raises:
        MemoryError: there is none left to work in.
    """
    if y.size == 0:
        return
    if mode == "avg":
        _check(_pool_average(x, y, placed, *runner, outside))


def _check(status: int) -> None:
    if status:
        raise MemoryError("out of memory for the work space of a RoI")
