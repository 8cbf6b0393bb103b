# SPDX-License-Identifier: MIT
"""GridSample in types for which ONNX Runtime has no kernel on the CPU."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

import ortops
from conformance.backends.session import CPU, options
from ortops.foreign.cast_samples import cast_samples

KINDS = {"float": np.float32, "double": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def sampler(x: str, grid: str, opset: int, axes: str = "n, c, h, w", nodes: str = "") -> onnx.ModelProto:
    mode = '"linear"' if opset >= 20 else '"bilinear"'
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}]> g ({x}[{axes}] a, {grid}[{axes}] grid) => '
        f'({x}[{axes}] y) {{ X = Identity (a) y = GridSample <mode = {mode}, padding_mode = "border"> (X, grid) {nodes} }}'
    )


@pytest.mark.parametrize(
    ("opset", "x", "grid"),
    [row for row in itertools.product((16, 20, 22), KINDS, KINDS) if row[0] >= 22 or "bfloat16" not in row],
)
def test_a_session_casts_what_onnx_runtime_lacks(opset: int, x: str, grid: str) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 3, 5, 6)).astype(KINDS[x])
    places = rng.uniform(-1.2, 1.2, (2, 4, 4, 2)).astype(KINDS[grid])
    session = ortops.InferenceSession(sampler(x, grid, opset).SerializeToString(), options(), providers=[CPU])
    values = {"a": a, "grid": places}
    given = {name: ortops.to_ort(value) for name, value in values.items()}
    (y,) = map(ortops.from_ort, session.run_with_ort_values(["y"], given))
    exact = onnxruntime.InferenceSession(
        sampler("double", "double", 20).SerializeToString(), options(), providers=[CPU]
    )
    doubles = {name: value.astype(np.float64) for name, value in values.items()}
    expected = exact.run(None, doubles)[0]
    assert y.dtype == KINDS[x]
    tolerance = {"float": 1e-5, "double": 1e-12, "float16": 5e-3, "bfloat16": 4e-2}[x]
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=0, atol=tolerance)


def test_volumes() -> None:
    model = sampler("float", "double", 20, "n, c, d, h, w").SerializeToString()
    session = ortops.InferenceSession(model, options(), providers=[CPU])
    values = {"a": np.ones((1, 1, 2, 2, 2), np.float32), "grid": np.zeros((1, 1, 1, 1, 3))}
    assert session.run(None, values)[0].item() == 1


@pytest.mark.parametrize("opset", [16, 20])
def test_only_nodes_without_a_kernel_change(opset: int) -> None:
    model = sampler("float", "double", opset, nodes="near = Cast <to = 1> (grid) z = GridSample (X, near)")
    nodes = list(model.graph.node)
    assert cast_samples(model)
    assert [node.op_type for node in model.graph.node] == ["Identity", "Cast", "GridSample", "Cast", "GridSample"]
    assert model.graph.node[-1] == nodes[-1]
    assert not cast_samples(model)


def test_a_node_may_call_onnxs_domain_ai_onnx() -> None:
    model = sampler("float", "double", 20)
    model.graph.node[-1].domain = "ai.onnx"
    session = ortops.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    values = {"a": np.ones((1, 1, 2, 2), np.float32), "grid": np.zeros((1, 1, 1, 2))}
    assert session.run(None, values)[0].item() == 1


def test_sessions_that_leave_standard_nodes_alone_refuse_the_model() -> None:
    model = sampler("float", "double", 20).SerializeToString()
    with pytest.raises(Exception, match="Could not find an implementation for GridSample"):
        ortops.InferenceSession(model, options(), providers=[CPU], standard=False)
