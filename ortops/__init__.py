# SPDX-License-Identifier: MIT
"""ONNX Runtime custom operators in Python: RoiAlign and its relatives, MaxRoiPool, DirectML's ROI_ALIGN1 and RESAMPLE2.

Each operator has a gradient operator, and each is also a function on NumPy arrays.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from ortops import forks as _forks  # noqa: F401 - before a first call, which imports modules
from ortops.functional.dml_resample import dml_resample, dml_resample_grad
from ortops.functional.dml_roi_align import dml_roi_align, dml_roi_align_grad
from ortops.functional.max_roi_pool import max_roi_pool, max_roi_pool_grad
from ortops.functional.ms_deform_attn import ms_deform_attn, ms_deform_attn_grad
from ortops.functional.ps_roi_align import ps_roi_align, ps_roi_align_grad
from ortops.functional.roi_align import roi_align, roi_align_grad
from ortops.functional.roi_align_rotated import roi_align_rotated, roi_align_rotated_grad
from ortops.operators import OPERATORS
from ortops.spec import Attribute, Tensor

if TYPE_CHECKING:
    from ortops.custom.decorator import CustomOperator, operator
    from ortops.library.build import build_library
    from ortops.ortvalue import from_ort, to_ort
    from ortops.session import InferenceSession, library_path, register

__version__ = "0.3.0"

__all__ = [  # noqa: RUF022  # in groups
    # the definitions
    "OPERATORS",
    # in ONNX Runtime sessions
    "InferenceSession",
    "from_ort",
    "library_path",
    "register",
    "to_ort",
    # your own operators
    "Attribute",
    "CustomOperator",
    "Tensor",
    "operator",
    # in servers and in other hosts
    "build_library",
    "warmup",
    # on NumPy arrays
    "dml_resample",
    "dml_resample_grad",
    "dml_roi_align",
    "dml_roi_align_grad",
    "max_roi_pool",
    "max_roi_pool_grad",
    "ms_deform_attn",
    "ms_deform_attn_grad",
    "ps_roi_align",
    "ps_roi_align_grad",
    "roi_align",
    "roi_align_grad",
    "roi_align_rotated",
    "roi_align_rotated_grad",
]


def warmup(*_: object, **__: object) -> None:
    """Do nothing: nothing compiles at run time any more. Earlier releases compiled kernels here."""
    warnings.warn(
        "ortops.warmup does nothing any more: no kernel is compiled at run time", DeprecationWarning, stacklevel=2
    )


_LAZY = {
    "CustomOperator": "ortops.custom.decorator",
    "operator": "ortops.custom.decorator",
    "build_library": "ortops.library.build",
    "InferenceSession": "ortops.session",
    "library_path": "ortops.session",
    "register": "ortops.session",
    "from_ort": "ortops.ortvalue",
    "to_ort": "ortops.ortvalue",
}
"""The modules of names that are imported on first use, so that `import ortops` stays fast; most need onnxruntime."""


def __getattr__(name: str) -> Any:
    """Return a name in `_LAZY`, or import ``ortops.torch``, which needs the extra ``torch``."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name == "torch":
        return importlib.import_module("ortops.torch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
