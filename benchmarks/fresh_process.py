"""The first average in a process, and with an argument its gradient: ``python -m benchmarks.fresh_process [dX]``.

`benchmarks.start` measures it. It imports little besides NumPy and ortops.
"""

from __future__ import annotations

import sys

import ortops
from benchmarks.workloads import Array, Workload

WORKLOAD = Workload("small", (1, 64, 50, 76), 100, 7, 2, 1 / 16, (112, 600))
"""Typical of detectors, but computed within milliseconds."""


def average(workload: Workload) -> Array:
    """Compute Y."""
    y: Array = ortops.roi_align(*workload.inputs().values(), **workload.attributes)
    return y


def gradient(workload: Workload) -> Array:
    """Compute dX alone."""
    x, rois, of = workload.inputs().values()
    given = workload.gradient_attributes
    dx, _ = ortops.roi_align_grad(workload.gradient(), rois, of, x.shape, outputs=["dx"], **given)
    assert dx is not None  # noqa: S101 - it is wanted
    return dx


if __name__ == "__main__":
    average(WORKLOAD)
    if sys.argv[1:]:
        gradient(WORKLOAD)
