# SPDX-License-Identifier: MIT
"""The build backend: hatchling, which also puts the documents and the library into a wheel.

Building the library takes a minute, unless one was built before of almost the same sources. The wheel is for the platform
that builds it. ORTOPS_BUILD_TARGET in the environment is another target of `python -m ortops.build`, for a wheel that all
systems of the platform take, linked by zig; or "none" for a wheel of any platform, which has no library.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import hatchling.build
from hatchling.build import *  # noqa: F403 - the functions that pip and other tools call
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.wheel import WheelBuilder

VARIABLE = "ORTOPS_BUILD_TARGET"


def get_requires_for_build_wheel(  # type: ignore[no-redef] # extends hatchling's
    config_settings: dict[str, Any] | None = None,
) -> list[str]:
    """The packages that the build of a wheel needs: those that compile the library, and zig if it links."""
    requires = hatchling.build.get_requires_for_build_wheel(config_settings)
    root = Path.cwd()
    platform = _platform(root)
    if platform is None:
        return requires
    core = WheelBuilder(str(root)).metadata.core
    links = runpy.run_path(str(root / "ortops/compiler/c_compiler.py"))["native"]() is not None
    extras = ["compile", *["library"] * (platform.is_portable or not links)]
    needed = [*core.dependencies, *(package for extra in extras for package in core.optional_dependencies[extra])]
    return requires + [package for package in needed if not package.startswith(("onnxruntime", "ortops["))]


class Platform(NamedTuple):
    """The platform of a wheel: its library's target and the ending of its name, and the tag in the wheel's name.

    is_portable: whether the wheel is for all systems of the platform.
    """

    target: str
    ending: str
    tag: str
    is_portable: bool


def _platform(root: Path) -> Platform | None:
    """The platform that the environment asks for, or this one; None for a wheel without a library."""
    targets = runpy.run_path(str(root / "ortops/library/targets.py"))
    tags, target = targets["WHEELS"], os.environ.get(VARIABLE, "")
    if target == "none":
        return None
    is_portable = bool(target)
    if not target:
        try:
            target = targets["this_machine"]()
        except ValueError:
            return None
    elif target not in tags:
        raise ValueError(f"{VARIABLE} = {target!r}: must be none or one of {', '.join(tags)}")
    tag = sysconfig.get_platform().translate({ord("-"): "_", ord("."): "_"})
    if is_portable or sys.platform == "darwin":
        tag = tags[target]
    return Platform(target, targets["TARGETS"][target].ending, tag, is_portable)


class Library(BuildHookInterface[Any]):
    """The build hook that puts the documents and the library into a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library before hatchling collects the files of a wheel."""
        self.folder = tempfile.TemporaryDirectory()
        if version == "editable":
            return
        root = Path(self.root)
        files = (path for path in (root / "docs").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc"))
        places = {str(path): f"conformance/{path.relative_to(root).as_posix()}" for path in files}
        platform = _platform(root)
        if platform is not None:
            if platform.is_portable and find_spec("ziglang") is None:
                raise RuntimeError(f"{VARIABLE} = {platform.target!r}: zig is needed, which is the package ziglang")
            library = str(Path(self.folder.name, f"library{platform.ending}"))
            self._run("-m", "ortops.build", "--target", platform.target, "--out", library)
            digest = self._run("-c", "from ortops.runtime import sources_digest; print(sources_digest())").strip()
            places[library] = f"ortops/built/ortops-{digest}{platform.ending}"
            build_data |= {"tag": f"py3-none-{platform.tag}", "pure_python": False}
        build_data["force_include"] |= places

    def _run(self, *arguments: str) -> str:
        """Run Python on the package that is built, and return what it prints."""
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=self.root, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the library that the wheel has."""
        self.folder.cleanup()
