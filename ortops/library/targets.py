# SPDX-License-Identifier: MIT
"""The platforms of libraries."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from typing import NamedTuple


class Target(NamedTuple):
    """A platform.

    triple: LLVM's name.
    zig: zig's name, with the oldest libc or system.
    ending: what the name of a library ends with.
    cpus: LLVM's names of processors; a library has code for each, and takes the last one that the processor here can run.
    """

    triple: str
    zig: str
    ending: str
    cpus: tuple[str, ...]


LEVELS = ("x86-64-v3", "x86-64-v4")

TARGETS: Mapping[str, Target] = {
    "x86_64-linux": Target("x86_64-unknown-linux-gnu", "x86_64-linux-gnu.2.17", ".so", LEVELS),
    "aarch64-linux": Target("aarch64-unknown-linux-gnu", "aarch64-linux-gnu.2.17", ".so", ("generic",)),
    "x86_64-windows": Target("x86_64-w64-windows-gnu", "x86_64-windows-gnu", ".dll", LEVELS),
    "aarch64-windows": Target("aarch64-w64-windows-gnu", "aarch64-windows-gnu", ".dll", ("generic",)),
    "aarch64-macos": Target("arm64-apple-macosx11.0", "aarch64-macos.11.0", ".dylib", ("apple-m1",)),
    "aarch64-android": Target("aarch64-unknown-linux-android24", "aarch64-linux-none", ".so", ("generic",)),
    "x86_64-musl": Target("x86_64-unknown-linux-musl", "x86_64-linux-musl", ".so", LEVELS),
}
"""The platforms by the names that users give."""


WHEELS: Mapping[str, str] = {
    "x86_64-linux": "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "aarch64-linux": "manylinux_2_17_aarch64.manylinux2014_aarch64",
    "aarch64-macos": "macosx_11_0_arm64",
    "x86_64-windows": "win_amd64",
    "aarch64-windows": "win_arm64",
}
"""The targets that have a wheel, which ONNX Runtime has as well, with the platforms as names of wheels write them."""

FLOAT_TYPES = ("float16", "bfloat16", "float", "double")
"""The floating-point element types that kernels compute."""

STANDARD_OPSETS = (10, 16, 22)
"""The opsets whose definitions of ONNX's own operators a library has: the versions of RoiAlign."""


def this_machine() -> str:
    """The name of the target that this process runs on.

    Raises:
        ValueError: there is none.
    """
    system = {"linux": "linux", "darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)
    machine = platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
    name = f"{machine}-{'musl' if system == 'linux' and not platform.libc_ver()[0] else system}"
    if name not in TARGETS:
        raise ValueError(f"target: this machine is {name}, must be given as one of {', '.join(TARGETS)}")
    return name
