# SPDX-License-Identifier: MIT
"""Links shared libraries: by zig for any platform, or by the C compiler of this machine for this one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ortops.compiler import c_compiler
from ortops.custom.counted_memory import C_FUNCTIONS
from ortops.library.objects import emit_native
from ortops.library.targets import TARGETS, this_machine

_SYSTEM_LIBRARIES = {
    "libc.so": (
        *C_FUNCTIONS["libc"],
        "pthread_create",
        "pthread_detach",
        "pthread_join",
        "strlen",
        "strncat",
        "strtod",
    ),
    "libm.so": C_FUNCTIONS["libm"],
}
"""What libraries need of Android's, which zig does not have: they are linked with ones of the same names and functions."""


def linker_of(target: str) -> list[str]:
    """The command that links for a target.

    Raises:
        RuntimeError: there is none.
    """
    if zig := c_compiler.zig():
        return [*zig, "-target", TARGETS[target].zig]
    native = c_compiler.native()
    if native is None or target != this_machine():
        raise RuntimeError(f"there is no linker for {target}: pip install ziglang")
    return native


def link(target: str, exports: str, objects: Sequence[bytes]) -> bytes:
    """Link a shared library, and return its content.

    Args:
        target: its platform.
        exports: the LLVM module of the functions that hosts call (`exports.module_of`).
        objects: object files with everything else.

    Raises:
        RuntimeError: there is nothing to link with, or it fails.
        OSError: the files cannot be written.
    """
    command = linker_of(target)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = folder / f"libortops{TARGETS[target].ending}"
        files = [folder / f"{number}.o" for number in range(len(objects))]
        for file, code in zip(files, objects, strict=True):
            file.write_bytes(code)
        if "ziglang" in command:
            files.append(folder / "exports.ll")
            files[-1].write_text(exports)
        else:
            files.append(folder / "exports.o")
            files[-1].write_bytes(emit_native(TARGETS[target], exports))
        libraries = ["-lm"]
        if target == "aarch64-android":
            libraries = ["-nostdlib", *_stubs(command, folder)]
        listed = folder / "files"  # Windows takes no more than 32,767 characters
        listed.write_text("\n".join(file.as_posix() for file in files))
        flags = ["-shared", "-O2", "-s", *_flags_of(target)]
        c_compiler.run([*command, *flags, f"@{listed}", *libraries, "-o", str(library)], folder)
        return library.read_bytes()


def _flags_of(target: str) -> list[str]:
    """Flags for the linker: a function is missing at once and not at run time, and registrations outlive their options.

    A library for macOS has a name of its own, by which programs that link it find it. The default is its temporary path.
    """
    if TARGETS[target].ending == ".dylib":
        return ["-install_name", "@rpath/libortops.dylib"]
    return ["-Wl,-z,defs", "-Wl,-z,nodelete"] if TARGETS[target].ending == ".so" else []


def _stubs(command: Sequence[str], folder: Path) -> Iterator[str]:
    for name, functions in _SYSTEM_LIBRARIES.items():
        source, library = folder / f"{name}.ll", folder / name
        source.write_text("\n".join(f"define void @{function}() {{ ret void }}" for function in functions))
        flags = ["-shared", "-nostdlib", f"-Wl,-soname,{name}"]
        c_compiler.run([*command, *flags, str(source), "-o", str(library)], folder)
        yield str(library)
