"""The example of an operator of one's own: from a PyTorch module to a host in C."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import onnxruntime
import pytest
from click.testing import CliRunner

from examples.own_operator import leaky_bias
from ortops.__main__ import main
from processes import python

ROOT = Path(__file__).resolve().parents[1]
EXPORT = """
import json, sys
import torch
from examples.own_operator import network
network.export(sys.argv[1])
print(network.Network()(torch.tensor(json.loads(sys.argv[2]))).tolist())
"""

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="its commands are of Linux"),
]


def test_a_host_in_c_gives_what_the_module_gives(tmp_path: Path) -> None:
    model, library, host = (tmp_path / name for name in ("model.onnx", "libmine.so", "host"))
    # In a process of its own: PyTorch has one operator of a name, and a document's test may have made it here, too.
    given = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    *_, printed = python(EXPORT, str(model), repr(given), cwd=ROOT).splitlines()
    assert [(node.domain, node.op_type) for node in onnx.load(model).graph.node][-1] == ("mine", "LeakyBias")
    built = ["library", "--out", str(library), "--operators", f"{leaky_bias.__name__}:LeakyBias"]
    result = CliRunner().invoke(main, built)
    assert result.exit_code == 0, result.output
    source = ROOT / "examples/own_operator/host.c"
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", source, "-o", host, "-ldl"], check=True)  # noqa: S603, S607
    (runtime,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    done = subprocess.run([host, runtime, library, model], capture_output=True, text=True, check=True)  # noqa: S603
    expected = json.loads(printed)
    assert expected == [[-0.375, 0.0], [-0.375, 9.0]]
    assert [[float(one) for one in line.split()] for line in done.stdout.splitlines()] == expected
