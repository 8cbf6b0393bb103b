# SPDX-License-Identifier: MIT
"""Models in half precision: the Casts around RoiAlign, and what sessions compute, by the recipes of docs/pytorch.md."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnxruntime.transformers.float16 import convert_float_to_float16

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from test_docs import ROOT, blocks
from test_standard import NEWEST

RNG = np.random.default_rng(0)
CORNERS = RNG.uniform(0, 40, (20, 2))
FEEDS = {
    "image": RNG.standard_normal((1, 3, 64, 64)).astype(np.float32),
    # As float16 has them, since others would be rounded and so move on the map.
    "boxes": np.hstack([CORNERS, CORNERS + RNG.uniform(2, 24, (20, 2))]).astype(np.float16).astype(np.float32),
    "of": np.zeros(20, np.int64),
}


def head(opset: int) -> onnx.ModelProto:
    """A convolution, RoiAlign and a layer of a detector's head, in float32."""
    if opset > NEWEST:
        pytest.skip(f"this release of ONNX Runtime does not know opset {opset}")
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : {opset}]>
        head (float[1, 3, 64, 64] image, float[r, 4] boxes, int64[r] of) => (float[r, 9] y) {{
            maps = Conv <pads = [1, 1, 1, 1]> (image, w)
            pooled = RoiAlign <output_height = 3, output_width = 3, sampling_ratio = 2> (maps, boxes, of)
            flat = Flatten (pooled)
            y = Gemm <transB = 1> (flat, v)
        }}""")
    for i, node in enumerate(model.graph.node):
        node.name = f"node {i}"
    for name, shape in (("w", (64, 3, 3, 3)), ("v", (9, 576))):
        weights = RNG.standard_normal(shape) / np.prod(shape[1:]) ** 0.5
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights.astype(np.float32), name))
    return model


def by_document(way: str, model: onnx.ModelProto) -> onnx.ModelProto:
    """What the document's block with this text makes of an exported model."""
    (block,) = (one for one in blocks(ROOT / "docs" / "pytorch.md") if one.language == "python" and way in one.text)
    names: dict[str, Any] = {"program": SimpleNamespace(model_proto=model), "ortops": ortops}
    exec(block.text, names)  # noqa: S102  # of this project's own document
    return names["half"]  # type: ignore[no-any-return]


def outputs(model: onnx.ModelProto, chosen: Any = None) -> NDArray[np.float32]:
    session = ortops.InferenceSession(model.SerializeToString(), chosen or options(), providers=[CPU])
    return np.asarray(session.run(None, FEEDS)[0])


def casts(model: onnx.ModelProto) -> int:
    return Counter(node.op_type for node in model.graph.node)["Cast"]


def assert_near(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert found.dtype == np.float32
    assert 0 < np.abs(found - expected).max() < 4e-3 * np.abs(expected).max()


@pytest.mark.parametrize("opset", [16, 22])
@pytest.mark.parametrize("way", ["stock", "converted before", "op_block_list"])
def test_roi_align_in_float16_needs_no_casts_of_its_own(way: str, opset: int) -> None:
    """Those of the image, the boxes and the result stay: the model's inputs and outputs are float32."""
    model = head(opset)
    expected = outputs(model)
    if way == "op_block_list":
        half = by_document(way, model)
    else:
        given = onnx_models.convert(model) if way == "converted before" else model
        half = convert_float_to_float16(given, keep_io_types=True)
    assert casts(half) == (6 if way == "stock" else 3)
    assert_near(outputs(half), expected)


def test_weights_in_float16_leave_no_casts_to_a_session(tmp_path: Any) -> None:
    model = head(16)
    half = by_document("_half", model)
    assert casts(half) == 2
    assert len(half.SerializeToString()) < 0.55 * len(model.SerializeToString())
    chosen = options()
    chosen.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    assert_near(outputs(half, chosen), outputs(model))
    assert casts(onnx.load(tmp_path / "optimised.onnx")) == 0
