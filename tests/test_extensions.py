"""The seam to onnxruntime-extensions; what changes it for good runs in processes of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ortops.engine.extensions import RELEASES
from test_package import python

ROOT = Path(__file__).parent.parent


def test_one_module_uses_onnxruntime_extensions() -> None:
    parts = re.compile(
        r"onnxruntime_extensions|_ocos|_odlist|\bOpdef|PyCustomOpDef|\"AddExternalCustomOp\"|ExternalCustomOp\("
    )
    folders = ("ortops", "onnx_models", "conformance", "benchmarks", "examples")
    files = {path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py")}
    using = {path.as_posix() for path in files if parts.search((ROOT / path).read_text(encoding="utf-8"))}
    assert using == {"ortops/engine/extensions.py"}


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
    assert printed.startswith(f"onnxruntime-extensions cannot be imported: must be {RELEASES} (")


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
    assert re.fullmatch(rf"onnxruntime-extensions [\d.]+ has no {part}: must be {RELEASES}", printed)
