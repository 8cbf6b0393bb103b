"""Compare gradients in float with those in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.networks.sessions import Array

MAX_RATIO_TO_TORCH, MAX_OF_ALL = 3.0, 1e-4
"""A gradient is right if its error is at most so many times that of PyTorch's, or at most so large relative to the largest
element of all gradients. The latter is for gradients that are nearly 0, such as those for the weights before a ReLU near 0,
for which both computations are inexact."""


@dataclass(frozen=True)
class Errors:
    """The largest errors of any element of all gradients, against float64.

    each: relative to the largest element of the same gradient. of_all: relative to that of all gradients.
    torch_each, torch_of_all: the same for PyTorch in float.
    wrong: the names of the gradients that are wrong or missing.
    """

    each: float
    of_all: float
    torch_each: float
    torch_of_all: float
    wrong: tuple[str, ...]


def errors(ours: Mapping[str, Array], torch: Mapping[str, Array], truth: Mapping[str, Array]) -> Errors:
    """Compare two computations with float64, by the gradients' names."""
    sizes = {name: _largest(value) for name, value in truth.items()}
    whole = max(sizes.values())
    wrong, found = [], {"ours": (0.0, 0.0), "torch": (0.0, 0.0)}
    for name, value in truth.items():
        off = {who: _off(given, name, value) for who, given in (("ours", ours), ("torch", torch))}
        if not off["ours"] <= max(MAX_RATIO_TO_TORCH * off["torch"], MAX_OF_ALL * whole):
            wrong.append(name)
        for who, (each, of_all) in found.items():
            # A gradient of zeros has no relative error of its own.
            own = off[who] / sizes[name] if sizes[name] else 0.0
            found[who] = max(each, own), max(of_all, off[who] / whole)
    return Errors(*found["ours"], *found["torch"], tuple(wrong))


def _off(given: Mapping[str, Array], name: str, truth: Array) -> float:
    if name not in given or given[name].shape != truth.shape:
        return np.inf
    off = _largest(given[name].astype(np.float64) - truth)
    return off if np.isfinite(off) else np.inf


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))
