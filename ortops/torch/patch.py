# SPDX-License-Identifier: MIT
"""Replaces torchvision's roi_align by `ortops.torch.roi_align`."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ortops.torch.functions import roi_align

_lock = threading.RLock()
"""Guards the open contexts and the functions in torchvision's modules."""

_theirs: list[Any] = []
"""The function that torchvision used before the first open context, once for each context."""


@contextmanager
def patch_torchvision() -> Iterator[None]:
    """While the context is open, all of torchvision calls `ortops.torch.roi_align` instead of its own ``roi_align``.

    This affects ``torchvision.ops.roi_align``, ``RoIAlign``, ``MultiScaleRoIAlign``, and detectors, even existing ones. It
    does not affect functions that other packages have imported by name.

        with ortops.torch.patch_torchvision():
            losses = detector(images, targets)

    It affects all threads of the process. Contexts may be nested, and may overlap in several threads: torchvision gets its
    own function back when the last context closes. If other code puts a third function into a torchvision module while a
    context is open, that function stays there. Such code must not restore the function that it found once the last context
    has closed, since it found this project's function.

    Raises:
        ImportError: torchvision is not installed.
    """
    operators = importlib.import_module("torchvision").ops
    with _lock:
        _theirs.append(_theirs[0] if _theirs else operators.roi_align)
        _replace(_theirs[0], roi_align)
    try:
        yield
    finally:
        with _lock:
            theirs = _theirs.pop()
            if not _theirs:
                _replace(roi_align, theirs)


def _replace(old: Any, new: Any) -> None:
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "torchvision"]:
        for name in [name for name, value in vars(module).items() if value is old]:
            setattr(module, name, new)
