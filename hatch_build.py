"""The build backend: hatchling, which also puts the documents and compiled kernels into a wheel.

A wheel runs on any platform and compiles a kernel at its first call. Variables of the environment change that on Linux:

    ORTOPS_BUILD_COMPILED=1    adds the kernels as LLVM bitcode, which a first call turns into machine code in a moment
    ORTOPS_BUILD_LIBRARY       x86_64-windows or aarch64-windows: adds the libraries that sessions use there, and makes the
                               wheel for that platform alone
    ORTOPS_BUILD_TYPES         compiles only for these element types, separated by commas: float16, bfloat16, float, double
"""

from __future__ import annotations

import os
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
    """The packages that the build of a wheel needs. Compiling kernels needs all dependencies of ortops."""
    requires = hatchling.build.get_requires_for_build_wheel(config_settings)
    core = WheelBuilder(str(Path.cwd())).metadata.core
    if _target():
        requires += core.optional_dependencies["library"]
    return requires + (core.dependencies if _compiles() or _target() else [])


_TAGS = {"x86_64-windows": "win_amd64", "aarch64-windows": "win_arm64"}
"""How the names of wheels write each platform."""

_LIBRARIES = {"ortops.dll": [], **{f"ortops-onnx{opset}.dll": ["--standard", str(opset)] for opset in (10, 16, 22)}}
"""The files that `ortops.library.installed` looks for, with the options that build each."""


class CompiledKernels(BuildHookInterface[Any]):
    """The build hook that puts compiled kernels into a wheel."""

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
        kinds, target = [kind for kind in os.environ.get("ORTOPS_BUILD_TYPES", "").split(",") if kind], _target()
        if _compiles():
            archive = Path(self.folder.name, "kernels.zip")
            self._run("bitcode", str(archive), *(f"--type={kind}" for kind in kinds))
            build_data["force_include"][str(archive)] = "ortops/kernels/compiled/kernels.zip"
        if target:
            build_data |= {"tag": f"py3-none-{_TAGS[target]}", "pure_python": False}
            for name, options in _LIBRARIES.items():
                made = Path(self.folder.name, name)
                types = ["--types", ",".join(kinds)] if kinds else []
                self._run("library", "--out", str(made), "--target", target, *types, *options)
                build_data["force_include"][str(made)] = f"ortops/library/built/{name}"

    def _run(self, *command: str) -> None:
        """Run a command of the package that is built."""
        subprocess.run([sys.executable, "-m", "ortops", *command], cwd=self.root, check=True)  # noqa: S603

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the temporary archive."""
        self.folder.cleanup()


def _compiles() -> bool:
    return sys.platform == "linux" and os.environ.get("ORTOPS_BUILD_COMPILED", "0") not in ("", "0")


def _target() -> str:
    target = os.environ.get("ORTOPS_BUILD_LIBRARY", "")
    if target and target not in _TAGS:
        raise ValueError(f"ORTOPS_BUILD_LIBRARY = {target!r}: must be one of {', '.join(_TAGS)}")
    return target
