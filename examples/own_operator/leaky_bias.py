"""The operator."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

import ortops


@ortops.operator(domain="mine", compiled=True, outputs=["y"])
def LeakyBias(  # noqa: N802 - the name of its nodes
    x: Annotated[NDArray[np.float32], ("n", "m")],
    bias: Annotated[NDArray[np.float32], ("m",)],
    y: Annotated[NDArray[np.float32], ("n", "m")],
    slope: float = 0.1,
) -> None:
    """Add a bias, and multiply negative sums by a slope."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            v = x[i, j] + bias[j]
            y[i, j] = v if v > 0 else slope * v
