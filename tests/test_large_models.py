# SPDX-License-Identifier: MIT
"""Models beyond 2 GiB, which protobuf does not serialize: the data of their initializers is kept out of ONNX's tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from conformance.backends.session import CPU
from gradient_checks import run
from onnx_models import convert, gradient, with_loss, with_optimizer
from onnx_models.__main__ import main
from onnx_models.portable import attach
from onnx_models.tools import protos

TEXT = """<ir_version: 8, opset_import: ["" : 13, "own" : 1], metadata_props: ["key": "value"]>
    g (float[1, 1, 8, 8] x, float[1, 4] rois, float[n, 200] z) => (float loss) <int64[1] i = {0}> {
        y = RoiAlign <output_height = 2, output_width = 2> (x, rois, i)
        by_rois = ReduceSum <keepdims = 0> (y)
        h = own.Layer(z, w)
        total = ReduceSum <keepdims = 0> (h)
        loss = Mul(total, by_rois)
    }
    <domain: "own", opset_import: ["" : 15]> Layer (a, b) => (c) { m = MatMul(a, b) axes = Constant <value_ints = [1]> ()
        c = ReduceSum(m, axes) }"""
W = np.random.default_rng(0).uniform(-1, 1, (200, 300)).astype(np.float32)
FEEDS = {
    "x": np.ones((1, 1, 8, 8), np.float32),
    "rois": np.array([[1, 1, 5, 6]], np.float32),
    "z": np.ones((3, 200), np.float32),
}


def large() -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    return model


def test_no_tool_of_onnx_is_given_large_data(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def small_only(tool: Callable[..., onnx.ModelProto]) -> Callable[..., onnx.ModelProto]:
        def checked(model: onnx.ModelProto, *args: Any, **options: Any) -> onnx.ModelProto:
            assert model.ByteSize() < W.nbytes / 2, tool.__name__
            seen.append(tool.__name__)
            return tool(model, *args, **options)

        return checked

    for module, name in ((onnx.shape_inference, "infer_shapes"), (onnx.inliner, "inline_selected_functions")):
        monkeypatch.setattr(module, name, small_only(getattr(module, name)))
    step = with_optimizer(
        gradient(with_loss(large(), "mean_squared_error", "total", name="error"), "error", ["w"]), "sgd"
    )
    assert set(seen) == {"infer_shapes", "inline_selected_functions"}
    attach(convert(gradient(large(), "loss", ["x", "w"])))
    (tensor,) = (tensor for tensor in step.graph.initializer if tensor.name == "w")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), W)


def test_a_model_without_its_data_and_with_it_again_is_the_same() -> None:
    model = large()
    bare = protos.strip_weights(model)
    assert bare.ByteSize() < W.nbytes / 2
    assert protos.restore_weights(bare, model) == model


def test_a_model_that_protobuf_does_not_copy_is_copied_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    class TooLarge:
        def CopyFrom(self, _: onnx.ModelProto) -> None:  # noqa: N802
            raise EncodeError("Failed to serialize proto")

    made = iter((TooLarge(), onnx.ModelProto()))
    monkeypatch.setattr(protos, "onnx", SimpleNamespace(ModelProto=made.__next__, TensorProto=onnx.TensorProto))
    model = large()
    assert protos.copy_model(model) == model


def test_external_data_stays_in_its_file_on_the_command_line(tmp_path: Path) -> None:
    path, out = tmp_path / "model.onnx", tmp_path / "gradient.onnx"
    onnx.save(large(), path, save_as_external_data=True, location="weights.bin", size_threshold=1000)
    weights = (tmp_path / "weights.bin").stat().st_size
    arguments = ["gradient", str(path), "--wrt", "w", "--wrt", "x", "--portable", "--out", str(out)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert out.stat().st_size < W.nbytes / 2
    assert (tmp_path / "weights.bin").stat().st_size == weights
    session = onnxruntime.InferenceSession(out, providers=[CPU])
    found = dict(zip(("loss", "w_grad", "x_grad"), session.run(None, FEEDS), strict=True))
    for name, value in run(gradient(large(), "loss", ["w", "x"]), FEEDS).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)
