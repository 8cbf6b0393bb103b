"""The build backend: hatchling, which also puts the documents and compiled kernels into a wheel.

A wheel contains no machine code and runs on any platform: kernels are compiled at their first call. Two variables of the
environment change this on Linux:

    ORTOPS_BUILD_COMPILED  all for machine code for every microarchitecture level of the architecture that it is built on;
                           or levels separated by commas, such as x86-64-v3; or native for the building machine's best level
    ORTOPS_BUILD_TYPES     element types to compile for, separated by commas: float16, bfloat16, float, double
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


def get_requires_for_build_wheel(  # type: ignore[no-redef] # extends hatchling's
    config_settings: dict[str, Any] | None = None,
) -> list[str]:
    """The packages that building a wheel needs: to compile the kernels, all dependencies of the package itself."""
    requires = hatchling.build.get_requires_for_build_wheel(config_settings)
    return requires + (WheelBuilder(str(Path.cwd())).metadata.core.dependencies if _compiles() else [])


class CompiledKernels(BuildHookInterface[Any]):
    """The build hook that puts archives of machine code into a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels before hatchling collects the files of a wheel."""
        self.folder = tempfile.TemporaryDirectory()
        if version == "editable":
            return
        files = [
            path for path in Path(self.root, "docs").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
        ]
        places = {path: path.relative_to(self.root).as_posix() for path in files}
        build_data["force_include"] |= {str(path): f"conformance/{place}" for path, place in places.items()}
        if not _compiles():
            return
        command = [sys.executable, "-m", "ortops.kernels.jit.build", self.folder.name]
        subprocess.run([*command, *_options()], cwd=self.root, check=True)  # noqa: S603
        archives = sorted(Path(self.folder.name).iterdir())
        if archives:
            build_data["pure_python"] = False
            # The code calls only functions that every version of the C library has, and nothing of Python.
            libc = "manylinux_2_17" if platform.libc_ver()[0] == "glibc" else "linux"
            build_data["tag"] = f"py3-none-{libc}_{platform.machine()}"
            build_data["force_include"] |= {str(path): f"ortops/kernels/compiled/{path.name}" for path in archives}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the temporary archives."""
        self.folder.cleanup()


def _compiles() -> bool:
    return sys.platform == "linux" and os.environ.get("ORTOPS_BUILD_COMPILED", "0") not in ("", "0")


def _options() -> list[str]:
    """The command-line options of `ortops.kernels.jit.build`."""
    variables = {"--level": "ORTOPS_BUILD_COMPILED", "--type": "ORTOPS_BUILD_TYPES"}
    return [
        f"{option}={word}"
        for option, name in variables.items()
        for word in os.environ.get(name, "").split(",")
        if word not in ("", "all")
    ]
