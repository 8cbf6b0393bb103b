"""An operation on a workload in an element type, and the arrays that all implementations get."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from benchmarks.operations import Operation
from benchmarks.workloads import Array, Resampling, Workload
from ortops.spec import ELEMENT_DTYPES


@dataclass(frozen=True)
class Problem:
    """An operation on a workload in an element type."""

    operation: Operation
    workload: Workload | Resampling
    element_type: str

    @property
    def arrays(self) -> dict[str, Array]:
        """X, and those of rois, batch_indices, dY and x_shape that the operation has, by name.

        Successive problems on one workload share the memory of the maps.
        """
        arrays = _inputs(self.workload, self.element_type)
        if self.operation.family == "max_roi_pool":
            rois = arrays["rois"]
            arrays = {"X": arrays["X"], "rois": np.column_stack([arrays["batch_indices"].astype(rois.dtype), rois])}
        if not self.operation.is_gradient:
            return arrays
        return {**arrays, "dY": _gradient(self.workload, self.element_type), "x_shape": np.array(self.workload.shape)}


# Two, since other types are compared with float.
@lru_cache(maxsize=2)
def _inputs(workload: Workload | Resampling, element_type: str) -> dict[str, Array]:
    return {name: _cast(array, element_type) for name, array in workload.inputs().items()}


@lru_cache(maxsize=2)
def _gradient(workload: Workload | Resampling, element_type: str) -> Array:
    return _cast(workload.gradient(), element_type)


def _cast(array: Array, element_type: str) -> Array:
    return array.astype(ELEMENT_DTYPES[element_type], copy=False) if array.dtype.kind == "f" else array
