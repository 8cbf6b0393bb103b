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
from test_package import python

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def test_one_module_uses_onnxruntime_extensions() -> None:
    parts = re.compile(
        r"onnxruntime_extensions|_ocos|_odlist|\bOpdef|PyCustomOpDef|\"AddExternalCustomOp\"|ExternalCustomOp\("
    )
    folders = ("ortops", "onnx_models", "conformance", "benchmarks", "examples")
    files = {path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py")}
    using = {path.as_posix() for path in files if parts.search((ROOT / path).read_text(encoding="utf-8"))}
    assert using == {"ortops/engine/extensions.py"}


def test_the_releases_in_errors_are_those_of_the_requirements() -> None:
    assert f"'onnxruntime-extensions{SUPPORTED_RELEASES};" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


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


REGISTER = """
import onnxruntime, ortops
{change}
try:
    ortops.register(onnxruntime.SessionOptions(), {engine!r})
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("engine", ["direct", "pyop", "auto"])
def test_without_onnxruntime_extensions_the_error_names_the_releases(engine: str) -> None:
    printed = python(REGISTER.format(change="import sys; sys.modules['onnxruntime_extensions'] = None", engine=engine))
    assert printed.startswith(f"onnxruntime-extensions cannot be imported: must be {SUPPORTED_RELEASES} (")


@pytest.mark.parametrize(
    ("part", "engine"),
    [
        ("get_library_path", "auto"),
        ("Opdef.create", "pyop"),
        ("PyCustomOpDef.install_hooker", "pyop"),
        ("PyCustomOpDef.dt_float", "pyop"),
        ("_on_pyop_invocation", "pyop"),
    ],
)
def test_a_missing_part_of_onnxruntime_extensions_is_named(part: str, engine: str) -> None:
    change = f"import onnxruntime_extensions; del onnxruntime_extensions._ocos.{part}"
    printed = python(REGISTER.format(change=change, engine=engine))
    assert re.fullmatch(rf"onnxruntime-extensions [\d.]+ has no {part}: must be {SUPPORTED_RELEASES}", printed)


def test_an_onnxruntime_without_the_api_is_refused_before_anything_is_added() -> None:
    change = "version, onnxruntime.__version__ = onnxruntime.__version__, '1.19.2'"
    code = """
import onnx, onnxruntime_extensions
onnxruntime.__version__ = version
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
model = onnx.parser.parse_model('''
    <ir_version: 8, opset_import: ["" : 16, "ai.onnx.contrib" : 1]>
    g (float[n] x) => (float[n] y) { y = ai.onnx.contrib.OrtopsProbe(x) }
''')
try:
    onnxruntime.InferenceSession(model.SerializeToString(), options)
except Exception as error:
    print("OrtopsProbe" in str(error))
"""
    assert python(REGISTER.format(change=change, engine="direct") + code).splitlines() == [
        "onnxruntime is 1.19.2: must be 1.20 or later",
        "True",
    ]
