"""The machine and the versions of packages of a measurement."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from ortops.kernels.jit.runners import available_cpus

PACKAGES = ("ortops", "onnxruntime", "onnxruntime-extensions", "numba", "numpy")


def machine() -> dict[str, object]:
    """Return the processor, the number of CPUs of this process, the system and its present load."""
    return {
        "cpu": _cpu(),
        "cpus": available_cpus(),
        "architecture": platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the installed versions."""
    return {package: metadata.version(package) for package in packages}


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
