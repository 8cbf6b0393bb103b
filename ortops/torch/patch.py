"""Puts `ortops.torch.roi_align` in the place of torchvision's."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ortops.torch.functions import roi_align

_lock = threading.RLock()
"""For the contexts that are open, and for what torchvision calls."""

_theirs: list[Any] = []
"""What torchvision called before the first open context, once for each context."""


@contextmanager
def patch_torchvision() -> Iterator[None]:
    """While a context is open, all of torchvision calls `ortops.torch.roi_align` for its own ``roi_align``.

    That holds for ``torchvision.ops.roi_align``, ``RoIAlign`` and ``MultiScaleRoIAlign``, and for detectors, also those that
    were made before. What other packages have imported by name stays as it is.

        with ortops.torch.patch_torchvision():
            losses = detector(images, targets)

    The whole process sees it, all its threads. Contexts may be nested, and may overlap in several threads: torchvision has
    its own function again after the last one is closed. If other code puts a third function into a module of torchvision
    while a context is open, that function stays there. Such code must not put back what it found after the last context is
    closed, since that was this project's function.

    Raises:
        ImportError: there is no torchvision.
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
    """Put a function in the place of another one in all modules of torchvision."""
    for module in [one for name, one in sys.modules.items() if name.partition(".")[0] == "torchvision"]:
        for name in [name for name, value in vars(module).items() if value is old]:
            setattr(module, name, new)
