"""How packages are built: by hatchling, with documents and with compiled kernels in a wheel.

On Linux a wheel holds machine code for every level of processors of the architecture that it is built on. An editable
installation compiles at the first call instead. Two environment variables say otherwise:

    ORTOPS_BUILD_COMPILED  0: no machine code, and a wheel for any platform; or levels separated by commas, such as
                           x86-64-v3, or native for the best one of this machine
    ORTOPS_BUILD_TYPES     element types separated by commas, of float16, bfloat16, float and double
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import hatchling.build
from hatchling.build import *  # noqa: F403 - the functions that pip and other tools call
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.wheel import WheelBuilder


def get_requires_for_build_wheel(  # type: ignore[no-redef] # hatchling's, with more
    config_settings: dict[str, Any] | None = None,
) -> list[str]:
    """What is installed to build a wheel: to run the kernels once, everything that the package itself needs."""
    requires = hatchling.build.get_requires_for_build_wheel(config_settings)
    return requires + (WheelBuilder(str(Path.cwd())).metadata.core.dependencies if _compiles() else [])


class CompiledKernels(BuildHookInterface[Any]):
    """Puts archives of machine code into a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of a wheel are collected."""
        self.folder = tempfile.TemporaryDirectory()
        if version == "editable":
            return
        build_data["force_include"] |= {"docs": "conformance/docs"}
        if not _compiles():
            return
        command = [sys.executable, "-m", "ortops.kernels.jit.build", self.folder.name]
        subprocess.run([*command, *_options()], cwd=self.root, check=True)  # noqa: S603
        archives = sorted(Path(self.folder.name).iterdir())
        if archives:
            build_data["pure_python"] = False
            # Of the system the code needs only functions that all C libraries have, and nothing of Python.
            libc = "manylinux_2_17" if platform.libc_ver()[0] == "glibc" else "linux"
            build_data["tag"] = f"py3-none-{libc}_{platform.machine()}"
            build_data["force_include"] |= {str(path): f"ortops/kernels/compiled/{path.name}" for path in archives}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was compiled."""
        self.folder.cleanup()


def _compiles() -> bool:
    return sys.platform == "linux" and os.environ.get("ORTOPS_BUILD_COMPILED") != "0"


def _options() -> list[str]:
    """The arguments for the command that compiles."""
    given = {"--level": "ORTOPS_BUILD_COMPILED", "--type": "ORTOPS_BUILD_TYPES"}
    return [
        f"{option}={word}" for option, name in given.items() for word in os.environ.get(name, "").split(",") if word
    ]
