"""From a PyTorch module to a host in C, as docs/from_pytorch_to_c.md does."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import onnx
import onnxruntime
import pytest

from processes import python
from test_docs import ROOT, Shell, blocks, commands


@pytest.mark.skipif(sys.platform != "linux", reason="its commands are of Linux")
def test_a_host_in_c_gives_what_the_module_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    document = blocks(ROOT / "docs/from_pytorch_to_c.md")
    operator, network, *_ = (block.text for block in document if block.language == "python")
    (library, *_) = (command for block in document if block.language == "console" for command in commands(block.text))
    (tmp_path / "leaky_bias.py").write_text(operator, "utf-8")
    # In a process of its own: PyTorch has one operator of a name, and the document's test may have made it here, too.
    expected = ast.literal_eval(python(network, cwd=tmp_path, PYTHONPATH=str(ROOT)).splitlines()[-1])
    (node,) = (node for node in onnx.load(tmp_path / "model.onnx").graph.node if node.domain)
    assert (node.domain, node.op_type) == ("mine", "LeakyBias")
    assert Shell(tmp_path).run(library[0])[0] == 0
    source = ROOT / "examples/hosts/own_operator.c"
    compiler = ["cc", "-Wall", "-Wextra", "-Werror", str(source), "-o", "host", "-ldl"]
    subprocess.run(compiler, check=True)  # noqa: S603
    (runtime,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    host = ["./host", str(runtime), "./libmine.so", "model.onnx"]
    output = subprocess.run(host, capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert [[float(number) for number in line.split()] for line in output.splitlines()] == expected
