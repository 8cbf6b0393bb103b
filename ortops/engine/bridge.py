"""A shared library that tells Python the address of ONNX Runtime's OrtApiBase, where onnxruntime-extensions does not.

ONNX Runtime hands the address to each library that session options register, and cannot hand it to Python.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
import tempfile
from pathlib import Path

import onnxruntime

from ortops.engine.extensions import OrtError
from ortops.jit import c_compiler, disk

_SOURCE = """
#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT
#endif
static const void *base;
EXPORT void *RegisterCustomOps(void *options, const void *api_base) { (void)options; base = api_base; return 0; }
EXPORT const void *ortops_api_base(void) { return base; }
"""

_ENDING = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


@functools.cache
def api_base() -> int:
    """The address of the OrtApiBase of the onnxruntime that this process imports.

    Raises:
        OrtError: the library can neither be found nor be linked.
    """
    name = f"bridge-{hashlib.sha256((sys.platform + _SOURCE).encode()).hexdigest()[:16]}{_ENDING}"
    try:
        path = str(disk.file(name, _linked))
    except (RuntimeError, OSError) as error:
        raise OrtError(
            f"onnxruntime-extensions takes no operators here, and what replaces it cannot be linked: {error}"
        ) from error
    library = ctypes.CDLL(path)  # stays in memory when the options are gone
    library.ortops_api_base.restype = ctypes.c_uint64
    onnxruntime.SessionOptions().register_custom_ops_library(path)
    return int(library.ortops_api_base())


def _linked() -> bytes:
    compiler = c_compiler.native() or c_compiler.zig()
    if compiler is None:
        raise RuntimeError("there is no C compiler: must be installed, or pip install ziglang")
    with tempfile.TemporaryDirectory() as name:
        source, library = Path(name, "bridge.c"), Path(name, f"bridge{_ENDING}")
        source.write_text(_SOURCE)
        c_compiler.run([*compiler, "-shared", "-fPIC", "-O2", str(source), "-o", str(library)], Path(name))
        return library.read_bytes()
