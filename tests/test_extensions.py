"""The interfaces to onnxruntime and onnxruntime-extensions. Tests that change them for good run in their own processes."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

import pytest
from onnxruntime.capi import onnxruntime_pybind11_state

from ortops.engine.c_api import ort_api
from ortops.engine.extensions import SUPPORTED_RELEASES
from processes import python

pytestmark = pytest.mark.slow


@pytest.mark.skipif(sys.platform == "win32", reason="the operators are Python operators there")
def test_the_c_api_is_of_the_runtime_that_python_imports() -> None:
    class Info(ctypes.Structure):
        _fields_ = (
            ("file", ctypes.c_char_p),
            ("base", ctypes.c_void_p),
            ("symbol", ctypes.c_char_p),
            ("at", ctypes.c_void_p),
        )

    for name, address in ort_api().addresses.items():
        info = Info()
        assert ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info)), name
        assert Path(info.file.decode()).samefile(onnxruntime_pybind11_state.__file__), name


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/maps lists what is loaded")
def test_no_second_runtime_is_loaded() -> None:
    code = """
import onnxruntime, onnx_models, ortops
def loaded():
    return {line.split()[-1] for line in open("/proc/self/maps") if "onnxruntime/capi" in line}
before = loaded()
ortops.InferenceSession(onnx_models.roi_align(16).SerializeToString())
print(len(before) > 0, loaded() - before)
"""
    assert python(code) == "True set()"


def test_missing_parts_of_onnxruntime_extensions_and_an_old_onnxruntime_are_named() -> None:
    parts = ("get_library_path", "Opdef.create", "PyCustomOpDef.install_hooker", "PyCustomOpDef.dt_float")
    code = f"""
import operator, sys
import onnx, onnxruntime, onnxruntime_extensions, ortops

def fails(engine):
    try:
        ortops.register(onnxruntime.SessionOptions(), engine)
    except RuntimeError as error:
        print(error)

package = sys.modules.pop("onnxruntime_extensions")
sys.modules["onnxruntime_extensions"] = None
for engine in ("direct", "pyop", "auto"):
    fails(engine)
sys.modules["onnxruntime_extensions"] = package
for part in {parts}:
    holder, name = package._ocos, part
    if "." in part:
        holder, name = getattr(holder, part.split(".")[0]), part.split(".")[1]
    kept = getattr(holder, name)
    delattr(holder, name)
    fails("pyop" if "." in part else "auto")
    setattr(holder, name, kept)
version, onnxruntime.__version__ = onnxruntime.__version__, "1.19.2"
fails("direct")
onnxruntime.__version__ = version
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
model = onnx.parser.parse_model('''
    <ir_version: 8, opset_import: ["" : 16, "ai.onnx.contrib" : 1]>
    g (float[n] x) => (float[n] y) {{ y = ai.onnx.contrib.OrtopsProbe(x) }}
''')
try:
    onnxruntime.InferenceSession(model.SerializeToString(), options)
except Exception as error:
    print("OrtopsProbe" in str(error))  # nothing was added
"""
    *said, too_old, is_unknown = python(code).splitlines()
    for line in said[:3]:
        assert line.startswith(f"onnxruntime-extensions cannot be imported: must be {SUPPORTED_RELEASES} (")
    for line, part in zip(said[3:], parts, strict=True):
        assert re.fullmatch(rf"onnxruntime-extensions [\d.]+ has no {part}: must be {SUPPORTED_RELEASES}", line)
    assert (too_old, is_unknown) == ("onnxruntime is 1.19.2: must be 1.20 or later", "True")
