# SPDX-License-Identifier: MIT
"""Libraries in hosts without Python, for other platforms than this one: for Windows under wine, for ARM under qemu.

``python -m release.hosts`` builds these libraries and tries them. It needs the extra `library`, and on Debian or Ubuntu the
packages wine, wine64, qemu-user, libc6-arm64-cross and libstdc++6-arm64-cross.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import click

import onnx_models
from ortops.library.targets import TARGETS
from release.commands import run, step

SOURCE = Path(__file__).parents[1] / "examples/hosts/host.c"
RESULT = "1.5625 3 7.3125 8.75"
"""What `SOURCE` prints."""


class Emulator(NamedTuple):
    """A command that runs programs of another platform, by the names of zig and of ONNX Runtime's wheels.

    release: the last release of ONNX Runtime that it can load. runtime: the file of ONNX Runtime's library in a wheel.
    """

    command: tuple[str, ...]
    zig: str
    wheel: str
    release: str
    runtime: str


EMULATORS = {
    "x86_64-windows": Emulator(("wine",), "x86_64-windows-gnu", "win_amd64", "1.32.0", "onnxruntime.dll"),
    "aarch64-linux": Emulator(  # qemu-user 7.2 of Debian 12 cannot load later releases
        ("qemu-aarch64", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu"),
        "aarch64-linux-gnu.2.28",
        "manylinux_2_28_aarch64",
        "1.24.1",
        "libonnxruntime.so.1.24.1",
    ),
}


def try_host(target: str, library: Path) -> str:
    """Run a host in C with a library for one of `EMULATORS`, and check what it computes.

    Returns:
        Why this machine cannot run it; empty if it has run.
    """
    emulator = EMULATORS[target]
    if shutil.which(emulator.command[0]) is None:
        return f"{emulator.command[0]} is not installed"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = onnx_models.roi_align(16, output_height=2, output_width=2)
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        python = (sys.executable, "-m")
        wheel = ("--platform", emulator.wheel, "--python-version", "3.11", "--only-binary", ":all:", "--no-deps")
        run(*python, "pip", "download", "--quiet", *wheel, f"onnxruntime=={emulator.release}", cwd=folder)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as files:
            files.extractall(folder)
        # As for libraries: zig keeps what it needs.
        run(*python, "ziglang", "cc", "-target", emulator.zig, "-O2", "-s", SOURCE, "-o", "host", cwd=folder)
        arguments = (f"onnxruntime/capi/{emulator.runtime}", library, "model.onnx", "100")
        output = run(*emulator.command, "./host", *arguments, cwd=folder, WINEDEBUG="-all")
    if RESULT not in output.splitlines():
        raise click.ClickException(f"the library for {target} computes {output}, must be {RESULT}")
    return ""


@click.command()
def main() -> None:
    """Build the library for each of these platforms, and try it."""
    for target in EMULATORS:
        with step(f"library for {target}") as folder:
            library = folder / f"library{TARGETS[target].ending}"
            run(sys.executable, "-m", "ortops.build", "--target", target, "--out", library, cwd=SOURCE.parents[2])
            if lacks := try_host(target, library):
                raise click.ClickException(lacks)


if __name__ == "__main__":
    main(prog_name="python -m release.hosts")
