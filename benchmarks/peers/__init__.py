"""Other implementations to compare with, each a function (`benchmarks.bench.Peer`). Only its module imports its package.

A new one is a module here with a function `prepare`, and its name in `NAMES`. What PyTorch differentiates is made by
`benchmarks.peers.torch.differentiable`, whether it is torchvision's or our own.
"""

from __future__ import annotations

import contextlib
import importlib
import os

from benchmarks import models
from benchmarks.bench import Peer

NAMES = ("onnxruntime", "openvino", "torchvision", "torch", "loops", "bodies")

BY_DEFAULT = NAMES[:-1]
"""Without bodies, which take seconds where the others take milliseconds."""


def load(name: str) -> Peer:
    """Return a peer by its name.

    Raises:
        ValueError: its package is not installed or cannot be imported.
    """
    if name in ("onnxruntime", "bodies"):
        return models.bodies if name == "bodies" else models.onnxruntime_own
    # Spinning idle threads of OpenMP, which torch uses, would take the others' cores. OpenMP reads this when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        found: Peer = importlib.import_module(f"benchmarks.peers.{name}").prepare
    except (ImportError, RuntimeError) as error:  # torchvision raises the latter if it does not fit the torch
        raise ValueError(f"{name!r}: must be installed ({error})") from error
    return found


def present() -> dict[str, Peer]:
    """Return the default peers whose packages are installed."""
    found = {}
    for name in BY_DEFAULT:
        with contextlib.suppress(ValueError):
            found[name] = load(name)
    return found
