"""The operators as functions on NumPy arrays, with the checks and the kernels that sessions use."""

from ortops.functional.dml_resample import dml_resample, dml_resample_grad
from ortops.functional.dml_roi_align import dml_roi_align, dml_roi_align_grad
from ortops.functional.max_roi_pool import max_roi_pool, max_roi_pool_grad
from ortops.functional.roi_align import roi_align, roi_align_grad
from ortops.functional.roi_align_rotated import roi_align_rotated, roi_align_rotated_grad

__all__ = [
    "dml_resample",
    "dml_resample_grad",
    "dml_roi_align",
    "dml_roi_align_grad",
    "max_roi_pool",
    "max_roi_pool_grad",
    "roi_align",
    "roi_align_grad",
    "roi_align_rotated",
    "roi_align_rotated_grad",
]
