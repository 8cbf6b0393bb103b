"""A shared library that tells Python the address of ONNX Runtime's OrtApiBase, where onnxruntime-extensions does not.

ONNX Runtime hands it to each library that session options register. Python cannot be called there, so the library stores it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import tempfile
from pathlib import Path

import onnxruntime

from ortops.engine.extensions import OrtError
from ortops.jit import disk

_MODULE = """
@base = internal global i64 0

define {storage} i64 @RegisterCustomOps(i64 %options, i64 %base) {{
  store i64 %base, ptr @base
  ret i64 0
}}

define {storage} i64 @ortops_api_base() {{
  %base = load i64, ptr @base
  ret i64 %base
}}
"""


@functools.cache
def api_base() -> int:
    """The address of the OrtApiBase of the onnxruntime that this process imports.

    Raises:
        OrtError: the library can neither be found nor be linked.
    """
    path = str(_file())
    library = ctypes.CDLL(path)  # stays in memory when the options are gone
    library.ortops_api_base.restype = ctypes.c_uint64
    onnxruntime.SessionOptions().register_custom_ops_library(path)
    return int(library.ortops_api_base())


def _file() -> Path:
    """The path of the library, linked once and kept with compiled code."""
    from ortops.library.linking import link
    from ortops.library.targets import TARGETS, this_machine

    try:
        target = this_machine()
        module = _MODULE.format(storage="dllexport" if TARGETS[target].ending == ".dll" else "")

        def linked() -> bytes:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder, "bridge")
                link(target, module, [], out)
                return out.read_bytes()

        digest = hashlib.sha256(module.encode()).hexdigest()[:16]
        return disk.file(f"bridge-{target}-{digest}{TARGETS[target].ending}", linked)
    except (ValueError, RuntimeError, OSError) as error:
        raise OrtError(
            f"onnxruntime-extensions does not take C operators here, and what replaces it cannot be linked ({error}): must "
            "have the extra `library`"
        ) from error
