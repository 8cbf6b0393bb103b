# SPDX-License-Identifier: MIT
"""The examples of backends answer where their runtimes are installed; the document has one of them."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from conformance.cases import collect
from conformance.expected_failures import read
from suite_runs import run

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "backends"
DOCUMENT = ROOT / "docs" / "conformance.md"

PACKAGES = {
    "emx_backend:EmxBackend": "emx-onnx-cgen",
    "mindspore_backend:answer": "mindspore",
    "mnn_backend:MnnBackend": "MNN",
    "ncnn_backend:answer": "ncnn",
    "onnx2tf_backend:Onnx2TfBackend": "onnx2tf",
    "onnx2torch_backend:Onnx2TorchBackend": "onnx2torch",
    "onnxruntime_openvino_backend:OpenVinoProvider": "onnxruntime-openvino",
    "opencv_backend:OpenCvBackend": "opencv-python-headless",
    "paddle_backend:answer": "paddlepaddle",
    "tvm_backend:TvmBackend": "apache-tvm",
}


def test_every_example_is_tried() -> None:
    files = {file.stem for file in FOLDER.glob("*.py")} - {"__init__"}
    assert files == {name.partition(":")[0] for name in PACKAGES}


@pytest.mark.parametrize("name", PACKAGES)
def test_an_example_is_python_and_names_itself(name: str) -> None:
    text = (FOLDER / f"{name.partition(':')[0]}.py").read_text("utf-8")
    assert f"`examples.backends.{name}`" in text
    compile(text, name, "exec")


@pytest.mark.parametrize(("name", "package"), PACKAGES.items())
def test_an_example_answers_where_its_runtime_is_installed(name: str, package: str) -> None:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    case = "roi_align/official/aligned_false/v16/float"
    arguments = ["--backend", f"examples.backends.{name}", "--select", case]
    result = run(*arguments)
    assert (result.exit_code, "1 passed, 0 failed" in result.output) == (0, True), result.output


def blocks(language: str) -> list[str]:
    """The code of a language in the document."""
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_the_lists_of_the_document_name_cases(tmp_path: Path) -> None:
    ids, counts = [case.id for case in collect()], []
    for text in blocks("toml"):
        (tmp_path / "known.toml").write_text(text, "utf-8")
        counts.append(len(read(tmp_path / "known.toml", ids).failures))
    assert counts == [2]
