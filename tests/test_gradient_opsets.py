# SPDX-License-Identifier: MIT
"""Models of older opsets: converted they compute the same, and their gradients are right."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
import pytest

from conformance.backends.session import CPU, options
from gradient_checks import Array, parsed
from onnx_models.tools.opset_upgrade import CHANGES, NEWEST, OLDEST, upgrade_opset

IMAGE = "float[N, 3, H, 6] x"
NORM = "float[3] a = {1, 2, 3}, float[3] b = {0, 1, 2}, float[3] mean = {0.1, 0.2, 0.3}, float[3] var = {1, 2, 3}"
WHOLE, SHRINK = "float[4] s = {1, 1, 2, 3}", "float[4] s = {1, 1, 0.5, 0.6}"
NO_ROI = "float[0] none = {}"
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")

DECOMPOSITIONS = [
    *(
        ([11, 13, 17], f"p = Exp(x) y = Reduce{name} <axes = [1, -1], keepdims = 0> (p)", "")
        for name in REDUCTIONS
    ),
    ([7, 17], "y = ReduceMax(x)", ""),
    ([7, 11, 12], "s = ReduceSum <axes = [1], keepdims = 0> (x) y = Unsqueeze <axes = [1, 4]> (s)", ""),
    ([7, 12], "s = ReduceSum <axes = [1]> (x) y = Squeeze <axes = [1]> (s)", ""),
    ([7, 12], "y = ReduceSum(x)", ""),
    *(
        ([7, 11, 12], f"y = {name} <axis = {axis}> (x)", "")
        for name in ("Softmax", "LogSoftmax", "Hardmax")
        for axis in (0, 1, 2, 3)
    ),
    ([11, 12], "y = Softmax <axis = -2> (x)", ""),
    ([11, 12, 13], "y = Softmax <axis = -1> (x)", ""),
    ([7, 12], "y = Hardmax(x)", ""),
    ([7, 9], "y = Slice <starts = [1, 0], ends = [3, 1000], axes = [2, 1]> (x)", ""),
    ([7, 9], "y = Slice <starts = [0, 1], ends = [3, -1]> (x)", ""),
    ([7, 9], "y, places = TopK <k = 2, axis = 1> (x)", ""),
    ([7, 10], "y = Clip <min = -0.5, max = 0.5> (x)", ""),
    ([7, 10], "y = Clip <max = 0.5> (x)", ""),
    ([7, 10], "y = Pad <pads = [0, 0, 1, 2, 0, 0, 0, 1], value = 2.5> (x)", ""),
    ([7, 10], "y = Pad <pads = [0, 0, 1, 2, 0, 0, 0, -1]> (x)", ""),
    ([7, 10], 'y = Pad <mode = "reflect", pads = [0, 0, 1, 2, 0, 0, 0, 1]> (x)', ""),
    ([7, 12], "y, z = Split <axis = 3, split = [2, 4]> (x)", ""),
    ([7, 12, 17], "y, z = Split <axis = 3> (x)", ""),
    ([7, 9, 11], "y = Dropout <ratio = 0.3> (x)", ""),
    ([7], "y, mask = Dropout <ratio = 0.3> (x)", ""),
    ([12, 17], "d, mask = Dropout(x) m = Cast <to = 1> (mask) y = Mul(d, m)", ""),
    ([7, 8], "y = BatchNormalization <spatial = 1, momentum = 0.8, epsilon = 0.01> (x, a, b, mean, var)", NORM),
    ([9, 13, 17], "y = BatchNormalization <momentum = 0.8, epsilon = 0.01> (x, a, b, mean, var)", NORM),
    ([7], 'y = Upsample <mode = "nearest", scales = [1.0, 1.0, 2.0, 3.0]> (x)', ""),
    ([7], 'y = Upsample <mode = "linear", scales = [1.0, 1.0, 2.0, 1.5]> (x)', ""),
    ([9], "y = Upsample(x, s)", WHOLE),
    ([9], 'y = Upsample <mode = "linear"> (x, s)', WHOLE),
    *(([10], f'y = Resize <mode = "{m}"> (x, s)', scales) for m in ("nearest", "linear") for scales in (WHOLE, SHRINK)),
    ([10], "y = Resize(x, t)", "float[4] t = {1, 1, 1.3, 2.7}"),
    ([11], 'y = Resize <mode = "linear"> (x, none, s)', f"{NO_ROI}, {SHRINK}"),
    ([11], "y = Resize(x, none, none, z)", f"{NO_ROI}, int64[4] z = {{2, 3, 9, 5}}"),
    ([9, 10], "y = Scatter <axis = 2> (x, i, u)", "int64[1, 1, 1, 1] i = {1}, float[1, 1, 1, 1] u = {3}"),
    ([10, 15, 16], "y = RoiAlign <output_height = 2, output_width = 2> (x, r, i)",
     "float[1, 4] r = {0.5, 0.5, 5, 3}, int64[1] i = {0}"),
    ([7, 11], "y = AveragePool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (x)", ""),
    ([16], "g = Constant <value = float[2, 1, 1, 2] {0.3, 0.2, -0.7, 0.1}> () y = GridSample(x, g)", ""),
    ([16], 'g = Constant <value = float[2, 1, 1, 2] {0.3, 0.2, -0.7, 0.1}> () y = GridSample <mode = "bicubic"> (x, g)', ""),
    ([17], "k = Constant <value = int64[1] {4}> () p = Unsqueeze(x, k) y = DFT(p)", ""),
    ([17], "k = Constant <value = int64[1] {4}> () p = Unsqueeze(x, k) y = DFT <axis = 3> (p)", ""),
]  # fmt: skip


def outputs_of(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    return np.asarray(session.run(None, dict(feeds))[0])


@pytest.mark.parametrize(
    ("opset", "body", "constants"), [(opset, *form) for opsets_of_it, *form in DECOMPOSITIONS for opset in opsets_of_it]
)
def test_a_converted_model_computes_the_same(opset: int, body: str, constants: str) -> None:
    fixed = f"<{constants}>" if constants else ""
    model = parsed(f'<ir_version: 8, opset_import: ["" : {opset}]> g ({IMAGE}) => (float y) {fixed} {{ {body} }}')
    feeds = {"x": np.random.default_rng(opset).uniform(-2, 2, (2, 3, 4, 6)).astype(np.float32)}
    for newer in (18, 20):
        rtol = 0.0 if newer == 18 else 1e-5  # from opset 19 on, ONNX Runtime averages in another order
        np.testing.assert_allclose(outputs_of(upgrade_opset(model, newer), feeds), outputs_of(model, feeds), rtol=rtol)


@pytest.mark.parametrize("kind", ["double", "float16"])
@pytest.mark.parametrize("body", ["y = Clip <min = 0.25> (x)", "y = Pad <pads = [1, 2], value = 1.5> (x)"])
def test_constants_have_the_type_of_the_tensor(kind: str, body: str) -> None:
    made = upgrade_opset(
        parsed(f'<ir_version: 8, opset_import: ["" : 10]> g ({kind}[N] x) => ({kind} y) {{ {body} }}'), 18
    )
    x = np.array([0.1, 0.5], kind)
    expected = x.clip(0.25) if "Clip" in body else np.pad(x, (1, 2), constant_values=1.5)
    np.testing.assert_array_equal(outputs_of(made, {"x": x}), expected)


def test_nodes_in_subgraphs_are_converted_too() -> None:
    model = parsed("""<ir_version: 8, opset_import: ["" : 11]> g (double[N, 3] x, bool c) => (double y) {
        y = If (c) <
            then_branch = one () => (double[N] p) { s = Softmax <axis = 0> (x) p = ReduceL1 <axes = [1], keepdims = 0> (s) },
            else_branch = two () => (double[N] q) { q = ReduceMax <axes = [1], keepdims = 0> (x) }
        > }""")
    x = np.random.default_rng(1).uniform(-1, 1, (2, 3))
    for c in (True, False):
        feeds = {"x": x, "c": np.array(c)}
        np.testing.assert_array_equal(outputs_of(upgrade_opset(model, 18), feeds), outputs_of(model, feeds))


def test_new_names_are_those_of_nothing_else() -> None:
    model = parsed("""<ir_version: 8, opset_import: ["" : 12]> g (double[N, 3] Shape_opset_0) => (double y)
        <double[3] Softmax_opset_2 = {1, 2, 3}> {
            Flatten_opset_1 = Softmax <axis = 0> (Shape_opset_0)
            y = Mul(Flatten_opset_1, Softmax_opset_2) }""")
    feeds = {"Shape_opset_0": np.random.default_rng(1).uniform(-1, 1, (2, 3))}
    np.testing.assert_array_equal(outputs_of(upgrade_opset(model, 18), feeds), outputs_of(model, feeds))


@pytest.mark.parametrize(
    ("opset", "newer", "body", "message"),
    [
        (6, 18, "y = Neg(x)", "opset 6 cannot be converted to 18: must be 7 or later"),
        (
            18,
            NEWEST + 1,
            "y = Neg(x)",
            f"opset 18 cannot be converted to {NEWEST + 1}: must be to {NEWEST} or an older",
        ),
        (8, 18, "y = BatchNormalization <spatial = 0> (x, x, x, x, x)", r"\(BatchNormalization\).* spatial must be 1"),
        (13, 18, "y, m, v = BatchNormalization(x, x, x, x, x)", r"\(BatchNormalization\).* 14: must have one output"),
        (
            11,
            18,
            "d, m = Dropout(x) n = Not(m) y = Where(n, x, d)",
            r"'d' \(Dropout\).* 12: its mask, which changed there, must not be read",
        ),
        (10, 18, "s = Exp(x) y = Resize(x, s)", r"'y' \(Resize\).* to opset 11: must have constant scales"),
        (10, 18, "s = Constant <value = float[2] {2, 0.5}> () y = Resize(x, s)", "both below and above 1 at opset 10"),
        (8, 18, "y = Scan <num_scan_inputs = 1> (x)", r"\(Scan\) cannot be converted to opset 9"),
        (18, 21, "y = GroupNormalization <num_groups = 1> (x, x, x)", r"\(GroupNormalization\).* to opset 21"),
        (18, 19, "y = AveragePool <ceil_mode = 1, kernel_shape = [2]> (x)", "opset 19: ceil_mode must be 0"),
    ],
)
def test_what_cannot_be_converted_is_refused_by_name(opset: int, newer: int, body: str, message: str) -> None:
    model = parsed(f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N, 3] x) => (float y) {{ {body} }}')
    with pytest.raises(ValueError, match=message):
        upgrade_opset(model, newer)


SAME = {
    "ArgMax", "ArgMin", "Attention", "AveragePool", "Cast", "CastLike", "Constant", "DepthToSpace", "DequantizeLinear",
    "GRU", "GatherND", "GroupNormalization", "LSTM", "LpPool", "MaxPool", "Pad", "QuantizeLinear", "RNN", "Reshape",
    "Resize", "ScatterElements", "ScatterND", "Shape", "TopK",
}  # fmt: skip
"""Operators that got an attribute, an input or an output whose default is what was before."""


def test_every_change_of_an_operator_between_opsets_is_known() -> None:
    history = sorted(
        (s for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""), key=lambda s: s.since_version
    )
    last: dict[str, onnx.defs.OpSchema] = {}
    for schema in history:
        before = last.get(schema.name)
        last[schema.name] = schema
        if (
            before is None
            or not OLDEST < schema.since_version <= NEWEST
            or (schema.since_version, schema.name) in CHANGES
        ):
            continue
        assert not schema.deprecated, schema.name
        gone = set(before.attributes) - set(schema.attributes)
        assert not gone, f"{schema.name} of opset {schema.since_version} has no attribute {gone}"
        old, new = ({name: str(one.default_value) for name, one in s.attributes.items()} for s in (before, schema))
        assert all(new[name] == value for name, value in old.items()), (
            f"{schema.name} {schema.since_version}: a default"
        )
        places = [[value.name for value in s.inputs] for s in (before, schema)]
        is_longer = len(places[1]) > len(places[0]) or len(schema.outputs) > len(before.outputs)
        assert schema.name in SAME or (set(new) == set(old) and not is_longer), f"{schema.name} {schema.since_version}"
