"""The examples of backends: each is short, says where it is used, and answers where its runtime is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.__main__ import main

FOLDER = Path(__file__).parent.parent / "examples" / "backends"

PACKAGES = {
    "mnn_backend:MnnBackend": "MNN",
    "ncnn_backend:answer": "ncnn",
    "onnx2torch_backend:Onnx2TorchBackend": "onnx2torch",
    "paddle_backend:answer": "paddle",
    "tvm_backend:TvmBackend": "tvm",
}

MOST_LINES = 40


def test_every_example_is_tried() -> None:
    files = {file.stem for file in FOLDER.glob("*.py")} - {"__init__"}
    assert files == {name.partition(":")[0] for name in PACKAGES}


@pytest.mark.parametrize("name", PACKAGES)
def test_an_example_is_short_and_is_python(name: str) -> None:
    text = (FOLDER / f"{name.partition(':')[0]}.py").read_text("utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert f"`examples.backends.{name}`" in text
    compile(text, name, "exec")


@pytest.mark.parametrize(("name", "package"), PACKAGES.items())
def test_an_example_answers_where_its_runtime_is_installed(name: str, package: str) -> None:
    pytest.importorskip(package)
    case = "roi_align/official/aligned_false/v16/float"
    arguments = ["--backend", f"examples.backends.{name}", "--isolate", "--select", case]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, "1 passed, 0 failed" in result.output) == (0, True), result.output
