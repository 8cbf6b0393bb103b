"""CPU levels: the sets of CPU features for which a wheel has machine code.

A CPU supports a level if it has all of its features, whatever the CPU's name. Source of the x86-64 levels: the x86-64
psABI, "Micro-Architecture Levels".
"""

from __future__ import annotations

import platform
from collections.abc import Iterator

from llvmlite import binding as llvm

_V3 = ("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

LEVELS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"x86-64-v4": _V4, "x86-64-v3": _V3},
    "aarch64": {"generic": ("neon",)},
}
"""Each architecture's levels with their features, best level first, under LLVM's names for CPUs and features."""


def architecture() -> str:
    """LLVM's name of this machine's architecture."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def supported() -> Iterator[str]:
    """The levels that this CPU supports, best first."""
    features = llvm.get_host_cpu_features()
    for level, needed in LEVELS.get(architecture(), {}).items():
        if all(features.get(feature) for feature in needed):
            yield level
