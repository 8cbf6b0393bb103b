# SPDX-License-Identifier: MIT
"""A program for a new process in which numba and llvmlite count as not installed: all that compiles nothing works."""

from __future__ import annotations

import importlib.util
import inspect
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

import onnx_models
import ortops
import ortops.__main__
import ortops.build
from samples import FORWARD, every, samples
from test_standard import OTHERS, of_other, rois_of

Vector = Annotated[NDArray[np.float32], ("n",)]
SIZE: Any = {"output_height": 2, "output_width": 2}
EXTRA = "which compiles it, is not installed: pip install 'ortops[compile]'"


@ortops.operator(domain="mine")
def InPython(x: Vector, *, by: list[float]) -> Vector:  # noqa: N802
    return np.asarray(x + np.float32(sum(by)))


@ortops.operator(domain="mine", compiled=True, outputs=["y"])
def Compiled(x: Vector, y: Vector) -> None:  # noqa: N802
    y[:] = 2 * x


def run(model: onnx.ModelProto | str, feeds: Any, **arguments: Any) -> Any:
    if isinstance(model, str):
        model = onnx.parser.parse_model(model)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return ortops.InferenceSession(model.SerializeToString(), options, **arguments).run(None, feeds)


def error_of(call: Any, *arguments: Any, **keywords: Any) -> str:
    try:
        call(*arguments, **keywords)
    except Exception as error:  # noqa: BLE001
        return str(error)
    return "no error"


def same(found: Any, due: Any) -> bool:
    return [one.tobytes() for one in found] == [np.asarray(one).tobytes() for one in due]


# Every public name; every operator and ONNX's, in a session and as a function; nodes of other projects; converted models.
assert all(inspect.getdoc(getattr(ortops, name)) for name in ortops.__all__)
for sample in every(samples)["argvalues"]:
    assert same(run(sample.model(), sample.inputs), sample.function()), sample
for sample in every(samples, of_onnx=True)["argvalues"]:
    if sample.is_of_onnx:
        outputs = run(sample.model(), sample.inputs)
        assert same(run(onnx_models.convert(sample.model()), sample.inputs), outputs), sample
for domain, node, columns in OTHERS:
    model = of_other(domain, node, columns)
    feeds = {"x": np.ones((2, 3, 8, 8), np.float32), "rois": rois_of(columns, 5 if "Rotated" in node else 4)}
    assert same(run(onnx_models.convert(model), feeds), run(model, feeds)), node

# What onnx_models makes of models.
forward = onnx_models.roi_align(16, **SIZE)
y = run(forward, FORWARD)[0]
assert np.allclose(run(onnx_models.lower(forward), FORWARD)[0], y, rtol=1e-5)
assert run(onnx_models.portable.attach(forward), FORWARD)[0].tobytes() == y.tobytes()
model = onnx_models.gradient(onnx_models.with_loss(forward, "mean_squared_error", "Y"), "loss", ["X"])
*_, loss, dx = run(model, {**FORWARD, "target": 0 * y})
assert np.isclose(loss, np.square(y).mean())
_, rois, of = FORWARD.values()
due = ortops.roi_align_grad(2 * y / y.size, rois, of, dx.shape, outputs=["dx"])[0]
assert due is not None
assert np.allclose(dx, due)
onnx_models.register_schemas()

# The other public functions, and sessions of onnxruntime's own class.
value = ortops.to_ort(FORWARD["X"])
assert ortops.from_ort(value).tobytes() == FORWARD["X"].tobytes()
options = onnxruntime.SessionOptions()
ortops.register(options, operators=InPython, opset=16)
onnxruntime.InferenceSession(onnx_models.roi_align(16, standard=True, **SIZE).SerializeToString(), options)
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(ortops.library_path())
assert onnxruntime.InferenceSession(forward.SerializeToString(), options).run(None, FORWARD)[0].tobytes() == y.tobytes()
if importlib.util.find_spec("torch"):
    import torch

    x, rois = torch.ones(1, 4, 5, 5, requires_grad=True), torch.tensor([[0.0, 0.0, 0.0, 4.0, 4.0]], requires_grad=True)
    rotated = torch.tensor([[0.0, 2.0, 2.0, 3.0, 3.0, 0.5]])
    for found in (
        ortops.torch.roi_align(x, rois, 2),
        ortops.torch.roi_pool(x, rois, 2),
        ortops.torch.ps_roi_align(x, rois, 2),
        ortops.torch.roi_align_rotated(x, rotated, 2, 1.0, 2),
        ortops.torch.RoIAlign(2, 1.0, 2)(x, rois),
    ):
        (of_x,) = torch.autograd.grad(found.sum(), x, create_graph=True)
        assert of_x.shape == x.shape

# Operators of users in Python work; compiled ones and what else compiles say what is missing.
IN_PYTHON = """
    <ir_version: 8, opset_import: ["mine" : 1]>
    g (float[n] x) => (float[n] y) { y = mine.InPython <by = [1.0, 2.0]> (x) }"""
ones = np.ones(1, np.float32)
assert run(IN_PYTHON, {"x": ones}, operators=InPython)[0].tolist() == [4]
compiled = '<ir_version: 8, opset_import: ["mine" : 1]> g (float[n] x) => (float[n] y) { y = mine.Compiled(x) }'
assert EXTRA in error_of(run, compiled, {"x": ones}, operators=Compiled)
assert EXTRA in error_of(Compiled, ones)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "library.so")
    arguments = ["library", "--out", str(path), "--operators"]
    for call, *given in (
        (ortops.build_library, path, ["RoiAlign_16"]),
        (ortops.build_library, path, [Compiled]),
        (ortops.__main__.main, [*arguments, "RoiAlign_16"], "ortops", None, False),
        (ortops.build.main, ["--out", str(path)], "ortops", None, False),
    ):
        assert EXTRA in error_of(call, *given), given
    assert "a list of names" in error_of(ortops.build_library, path, "RoiAlign_16")
    assert not path.exists()
print("all works")
