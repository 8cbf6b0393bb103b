"""Puts `ortops.torch.roi_align` in the place of torchvision's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from ortops.torch.functions import roi_align


@contextmanager
def patch_torchvision() -> Iterator[None]:
    """While the context is open, all of torchvision calls `ortops.torch.roi_align` for its own ``roi_align``.

    That holds for ``torchvision.ops.roi_align``, ``RoIAlign`` and ``MultiScaleRoIAlign``, and for detectors, also those that
    were made before. What other packages have imported by name stays as it is. The whole process sees it, all its threads.

        with ortops.torch.patch_torchvision():
            losses = detector(images, targets)

    Raises:
        ImportError: there is no torchvision.
    """
    theirs = importlib.import_module("torchvision").ops.roi_align
    with ExitStack() as stack:
        for module in [one for name, one in sys.modules.items() if name.partition(".")[0] == "torchvision"]:
            for name, value in list(vars(module).items()):
                if value is theirs:
                    stack.enter_context(mock.patch.object(module, name, roi_align))
        yield
