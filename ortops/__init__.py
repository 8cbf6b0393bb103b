"""ONNX Runtime custom operators in Python: RoiAlign, RoIAlignRotated, MaxRoiPool, DirectML's ROI_ALIGN1 and RESAMPLE2.

Each has a gradient operator, and each is also a function on NumPy arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ortops.functional import (
    dml_resample,
    dml_resample_grad,
    dml_roi_align,
    dml_roi_align_grad,
    max_roi_pool,
    max_roi_pool_grad,
    roi_align,
    roi_align_grad,
    roi_align_rotated,
    roi_align_rotated_grad,
)
from ortops.operators import OPERATORS
from ortops.precompile import warmup

if TYPE_CHECKING:
    from ortops.engine.session import InferenceSession, library_path, register

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022  # in groups
    # the definitions
    "OPERATORS",
    # in ONNX Runtime sessions
    "InferenceSession",
    "library_path",
    "register",
    # in servers
    "warmup",
    # on NumPy arrays
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


def __getattr__(name: str) -> Any:
    # onnxruntime is imported on first use, so that `import ortops` stays fast.
    if name in ("InferenceSession", "library_path", "register"):
        from ortops.engine import session

        return getattr(session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
