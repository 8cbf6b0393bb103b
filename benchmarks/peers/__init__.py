"""Who else computes the same: one file a peer, which alone imports the peer's package."""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import Protocol, cast

from benchmarks.call import Call
from benchmarks.problem import Problem

NAMES = ("onnxruntime", "torchvision", "mmcv", "torch", "loops", "bodies")

BY_DEFAULT = ("onnxruntime", "torchvision", "mmcv", "torch", "loops")
"""Bodies take seconds for what the others take milliseconds for."""


class MissingPeerError(Exception):
    """A peer that is not installed."""


class Peer(Protocol):
    """A module of this package. PACKAGE: the distribution whose version matters."""

    PACKAGE: str

    def prepare(self, problem: Problem, threads: int) -> Call | None:
        """The call that solves the problem; None where the peer cannot."""


def load(name: str) -> Peer:
    """A peer by its name.

    Raises:
        MissingPeerError: its package is not installed, or cannot be imported.
    """
    # Idle threads of OpenMP, which torch uses, would spin and take the others' cores. It reads this when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return cast("Peer", importlib.import_module(f"benchmarks.peers.{name}"))
    except (ImportError, RuntimeError) as error:  # the latter of a torchvision that does not fit the torch
        raise MissingPeerError(f"{name!r}: must be installed ({error})") from error


def present() -> dict[str, Peer]:
    """The peers that are measured where nobody says which: those whose package is installed."""
    found = {}
    for name in BY_DEFAULT:
        with contextlib.suppress(MissingPeerError):
            found[name] = load(name)
    return found
