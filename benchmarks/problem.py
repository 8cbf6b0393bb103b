"""One operation on one workload in one element type, and the arrays that everybody gets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from benchmarks.operations import Operation
from benchmarks.workloads import Array, Resampling, Workload
from ortops.spec import ELEMENT_DTYPES


@dataclass(frozen=True)
class Problem:
    """What is to be computed."""

    operation: Operation
    workload: Workload | Resampling
    element_type: str

    @property
    def arrays(self) -> dict[str, Array]:
        """X, and rois, batch_indices, dY and x_shape where the operation has them, by these names.

        The maps are the same memory for problems that follow one another on one workload.
        """
        arrays = _inputs(self.workload, self.element_type)
        if self.operation.family == "max_roi_pool":
            rois = arrays["rois"]
            arrays = {"X": arrays["X"], "rois": np.column_stack([arrays["batch_indices"].astype(rois.dtype), rois])}
        if not self.operation.is_gradient:
            return arrays
        return {**arrays, "dY": _gradient(self.workload, self.element_type), "x_shape": np.array(self.workload.shape)}


# Two: another type is compared with float.
@lru_cache(maxsize=2)
def _inputs(workload: Workload | Resampling, element_type: str) -> dict[str, Array]:
    return {name: _cast(array, element_type) for name, array in workload.inputs().items()}


@lru_cache(maxsize=2)
def _gradient(workload: Workload | Resampling, element_type: str) -> Array:
    return _cast(workload.gradient(), element_type)


def _cast(array: Array, element_type: str) -> Array:
    return array.astype(ELEMENT_DTYPES[element_type], copy=False) if array.dtype.kind == "f" else array
