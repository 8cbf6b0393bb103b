# SPDX-License-Identifier: MIT
"""RoiAlign_16 and RoiAlignGrad as Python operators of onnxruntime-extensions, by its documented decorator.

This is the way that its documents show. `ortops.register` takes another one, since such an operator holds Python's lock, has
float and double only, needs every input and attribute, and ends the process if its function raises.

    python -m examples.onnx_op
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime_extensions import PyCustomOpDef, get_library_path, onnx_op

import ortops

Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]
FLOAT, INT64 = PyCustomOpDef.dt_float, PyCustomOpDef.dt_int64
SIZE = {"output_height": INT64, "output_width": INT64}


@onnx_op(op_type="RoiAlign_16", inputs=[FLOAT, FLOAT, INT64], outputs=[FLOAT], attrs=SIZE)
def roi_align(x: Floats, rois: Floats, batch_indices: Integers, output_height: int, output_width: int) -> Floats:
    """Y of RoiAlign at opset 16, with the defaults of all attributes but the size."""
    return ortops.roi_align(x, rois, batch_indices, output_height=output_height, output_width=output_width)


@onnx_op(op_type="RoiAlignGrad", inputs=[FLOAT, FLOAT, INT64, INT64], outputs=[FLOAT])
def roi_align_grad(dy: Floats, rois: Floats, batch_indices: Integers, x_shape: Integers) -> Floats | None:
    """DX of RoiAlign at opset 16."""
    dx, _ = ortops.roi_align_grad(dy, rois, batch_indices, x_shape, outputs=["dx"])
    return dx


MODEL = """
    <ir_version: 8, opset_import: ["" : 16, "ai.onnx.contrib" : 1]>
    both (float[n, c, h, w] x, float[r, 4] rois, int64[r] batch_indices, int64[4] x_shape)
        => (float[r, c, 2, 2] y, float[n, c, h, w] dx) {
        y = ai.onnx.contrib.RoiAlign_16 <output_height = 2, output_width = 2> (x, rois, batch_indices)
        dx = ai.onnx.contrib.RoiAlignGrad (y, rois, batch_indices, x_shape)
    }"""


def session() -> onnxruntime.InferenceSession:
    """A session that runs both: RoiAlign, and its gradient for dL/dY = Y."""
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    return onnxruntime.InferenceSession(onnx.parser.parse_model(MODEL).SerializeToString(), options)


if __name__ == "__main__":
    x, rois = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5), np.array([[1, 1, 3, 3]], np.float32)
    feeds = {"x": x, "rois": rois, "batch_indices": np.array([0]), "x_shape": np.array(x.shape)}
    print(*session().run(None, feeds), sep="\n")
