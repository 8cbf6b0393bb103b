# SPDX-License-Identifier: MIT
"""The operators' definitions, one file per operator. A new operator needs a new file here and a new name in `OPERATORS`."""

from ortops.operators.dml_resample import DML_RESAMPLE, DML_RESAMPLE_GRAD
from ortops.operators.dml_roi_align import DML_ROI_ALIGN, DML_ROI_ALIGN_GRAD
from ortops.operators.max_roi_pool import MAX_ROI_POOL_1, MAX_ROI_POOL_22, MAX_ROI_POOL_GRAD
from ortops.operators.ms_deform_attn import MS_DEFORM_ATTN, MS_DEFORM_ATTN_GRAD
from ortops.operators.ps_roi_align import PS_ROI_ALIGN, PS_ROI_ALIGN_GRAD
from ortops.operators.roi_align import ROI_ALIGN_10, ROI_ALIGN_16, ROI_ALIGN_22, ROI_ALIGN_GRAD
from ortops.operators.roi_align_rotated import ROI_ALIGN_ROTATED, ROI_ALIGN_ROTATED_GRAD
from ortops.spec import Operator

OPERATORS: tuple[Operator, ...] = (
    ROI_ALIGN_10,
    ROI_ALIGN_16,
    ROI_ALIGN_22,
    ROI_ALIGN_GRAD,
    PS_ROI_ALIGN,
    PS_ROI_ALIGN_GRAD,
    DML_ROI_ALIGN,
    DML_ROI_ALIGN_GRAD,
    DML_RESAMPLE,
    DML_RESAMPLE_GRAD,
    ROI_ALIGN_ROTATED,
    ROI_ALIGN_ROTATED_GRAD,
    MAX_ROI_POOL_1,
    MAX_ROI_POOL_22,
    MAX_ROI_POOL_GRAD,
    MS_DEFORM_ATTN,
    MS_DEFORM_ATTN_GRAD,
)

BY_NAME = {operator.name: operator for operator in OPERATORS}
