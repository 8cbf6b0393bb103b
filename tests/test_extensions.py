# SPDX-License-Identifier: MIT
"""The interfaces to onnxruntime and onnxruntime-extensions. Tests that change them for good run in their own processes."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from processes import python

pytestmark = pytest.mark.slow

needs_package = pytest.mark.skipif(
    find_spec("onnxruntime_extensions") is None, reason="onnxruntime-extensions is not installed"
)


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


@needs_package
def test_the_package_is_not_imported_and_still_shares_its_operators() -> None:
    code = """
import sys
import numpy as np, onnx, onnxruntime, ortops
options = onnxruntime.SessionOptions()
ortops.register(options)
print("onnxruntime_extensions" in sys.modules, "torch" in sys.modules)
import onnxruntime_extensions
@onnxruntime_extensions.onnx_op(op_type="Twice", inputs=[onnxruntime_extensions.PyCustomOpDef.dt_float])
def twice(x):
    return 2 * x
model = onnx.parser.parse_model('''
    <ir_version: 8, opset_import: ["" : 16, "ai.onnx.contrib" : 1]>
    g (float[n] x, float[r, 4] rois, int64[r] of, float[a, b, c, d] X) => (float[n] y, float[e, f, g, h] Y) {
        y = ai.onnx.contrib.Twice(x)
        Y = ai.onnx.contrib.RoiAlign_16 (X, rois, of)
    }''')
feeds = {"x": [1.0], "rois": np.zeros((1, 4)), "of": np.array([0]), "X": np.ones((1, 1, 2, 2))}
feeds = {name: np.asarray(value, np.int64 if name == "of" else np.float32) for name, value in feeds.items()}
options = onnxruntime.SessionOptions()
ortops.register(options)
y, Y = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
print(y, Y.shape)
"""
    assert python(code).splitlines() == ["False False", "[2.] (1, 1, 1, 1)"]


@needs_package
def test_the_documented_decorator_gives_the_same_numbers_as_sessions() -> None:
    code = """
import numpy as np
import ortops
from examples.onnx_op import session
from samples import FORWARD
x, rois, of = FORWARD.values()
y, dx = session().run(None, {"x": x, "rois": rois, "batch_indices": of, "x_shape": np.array(x.shape)})
print(np.array_equal(y, ortops.roi_align(x, rois, of, output_height=2, output_width=2)))
print(np.array_equal(dx, ortops.roi_align_grad(y, rois, of, x.shape, outputs=["dx"])[0]))
"""
    assert python(code, cwd=Path(__file__).parent, PYTHONPATH=str(Path(__file__).parents[1])) == "True\nTrue"


def test_sessions_need_no_onnxruntime_extensions() -> None:
    assert python(Path(__file__).with_name("without_extensions.py")) == "all sessions work"


def test_an_old_onnxruntime_is_named() -> None:
    code = """
import onnxruntime, ortops
onnxruntime.__version__ = "1.19.2"
try:
    ortops.register(onnxruntime.SessionOptions())
except RuntimeError as error:
    print(error)
"""
    assert python(code) == "onnxruntime is 1.19.2: must be 1.20 or later"
