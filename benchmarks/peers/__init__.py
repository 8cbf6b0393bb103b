"""Other implementations to compare with: one module for each, and only that one imports its package."""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import Protocol, cast

from benchmarks.call import Call
from benchmarks.problem import Problem

NAMES = ("onnxruntime", "openvino", "torchvision", "torch", "loops", "bodies")

BY_DEFAULT = ("onnxruntime", "openvino", "torchvision", "torch", "loops")
"""Without bodies, which take seconds where the others take milliseconds."""


class MissingPeerError(Exception):
    """A peer is not installed."""


class Peer(Protocol):
    """A module of this package. PACKAGE: the distribution whose version is reported."""

    PACKAGE: str

    def prepare(self, problem: Problem, threads: int) -> Call | None:
        """Return a call that computes the problem, or None if the peer does not support it."""


def load(name: str) -> Peer:
    """Import a peer by its name.

    Raises:
        MissingPeerError: its package is not installed or cannot be imported.
    """
    # Spinning idle threads of OpenMP, which torch uses, would take the others' cores. OpenMP reads this when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return cast("Peer", importlib.import_module(f"benchmarks.peers.{name}"))
    except (ImportError, RuntimeError) as error:  # torchvision raises the latter if it does not fit the torch
        raise MissingPeerError(f"{name!r}: must be installed ({error})") from error


def present() -> dict[str, Peer]:
    """Return the default peers whose packages are installed."""
    found = {}
    for name in BY_DEFAULT:
        with contextlib.suppress(MissingPeerError):
            found[name] = load(name)
    return found
