"""Gradient rules of operators that move elements: reshaping, slicing, gathering and scattering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, of_sum, parsed, run, with_loss
from onnx_models.gradient import ZeroGradientWarning, gradient


def _model(
    operator: str,
    inputs: Sequence[Array | None],
    *,
    shapes: str = "lengths",
    constants: bool = True,
    opset: int = 18,
    outputs: int = 1,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node with inputs x0, x1, ... and outputs y0, y1, ..., and what to feed it.

    Args:
        inputs: values; None stands for an absent input.
        shapes: of the inputs: ``lengths``, ``names``, or of ``any`` rank.
        constants: inputs other than floats are initializers.
    """
    values, initializers, feeds = [], [], {}
    for i, value in enumerate(inputs):
        if value is None:
            continue
        if constants and value.dtype.kind != "f":
            initializers.append(onnx.numpy_helper.from_array(value, f"x{i}"))
            continue
        feeds[f"x{i}"] = value
        named: list[str | int] = [f"n{i}_{axis}" if shapes == "names" else n for axis, n in enumerate(value.shape)]
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        values.append(onnx.helper.make_tensor_value_info(f"x{i}", kind, None if shapes == "any" else named))
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    node = onnx.helper.make_node(operator, names, [f"y{i}" for i in range(outputs)], **attributes)
    made = [onnx.helper.make_tensor_value_info(f"y{i}", onnx.TensorProto.DOUBLE, None) for i in range(outputs)]
    graph = onnx.helper.make_graph([node], "g", values, made, initializers)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10), feeds


def _random(*shape: int) -> Array:
    return np.asarray(np.random.default_rng(7).uniform(-1, 1, shape))


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize("part", ["Gather <axis = 1> (turned, one)", "Slice(turned, first, second, first)"])
def test_a_part_of_a_transpose(part: str) -> None:
    # ONNX Runtime moves the Transpose of the gradient past the Pad, and takes pads of some axes for those of the first.
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
    g (float[3,4,5] x) => (float y) <int64 one = {{1}}, int64[1] first = {{1}}, int64[1] second = {{2}}> {{
        turned = Transpose <perm = [2, 0, 1]> (x)
        part = {part}
        y = Mul(part, part)
    }}"""
    check(text, {"x": _random(3, 4, 5).astype(np.float32)}, ["x"], step=2**-7, tolerance=1e-5)


def test_range() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]>
        g (double start, double limit, double delta) => (double y) { y = Range(start, limit, delta) }"""
    feeds = {"start": np.array(0.5), "limit": np.array(3.0), "delta": np.array(0.75)}
    with pytest.warns(ZeroGradientWarning, match="'limit' is 0: .*how many numbers there are"):
        found = check(text, feeds, ["start", "limit", "delta"])
    assert found["limit"] == 0


@pytest.mark.parametrize("like", [False, True])
def test_cast(like: bool) -> None:
    other = np.zeros((), np.float32)
    made, feeds = _model("CastLike", [_random(3), other]) if like else _model("Cast", [_random(3)], to=1)
    made.graph.node[0].output[0] = "single"
    made.graph.node.append(onnx.helper.make_node("Cast", ["single"], ["y0"], to=onnx.TensorProto.DOUBLE))
    check(made, feeds, ["x0"], step=2**-6, tolerance=1e-5)
    if like:
        with pytest.warns(ZeroGradientWarning, match="only its type is read"):
            assert not check(made, feeds, ["x1"], step=2**-6, tolerance=1e-5)["x1"].any()


@pytest.mark.parametrize(
    ("outputs", "ratio", "training"),
    [("y", "r", "t"), ("y, mask", "", "t"), ("y, mask", "constant", "true"), ("y", "r", "false"), ("y, mask", "r", "")],
)
def test_dropout_passes_what_it_keeps(outputs: str, ratio: str, training: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (double[N, M] x, float r, bool t) => (double {outputs.replace(" mask", " bool mask")}) {{
          constant = Constant <value_float = 0.25> ()
          true = Constant <value = bool {{1}}> ()
          false = Constant <value = bool {{0}}> ()
          {outputs} = Dropout <seed = 3> (x, {ratio}, {training}) }}"""
    weights = np.random.default_rng(1).uniform(1, 2, (40, 50))
    made = parsed(text)
    differentiated = gradient(with_loss(made, {"y": weights}), "loss", ["x"])
    assert [one.name for one in differentiated.graph.output if "mask" in one.name] == (
        ["mask"] if "m" in outputs else []
    )
    for in_training in [True, False] if training == "t" else [training == "true"]:
        feeds = {"x": _random(40, 50) + 1, "r": np.asarray(np.float32(0.75)), "t": np.array(in_training)}
        found, alone = run(differentiated, feeds), run(made, feeds)
        np.testing.assert_array_equal(found["y"], alone["y"])
        kept = found["y"] != 0
        share = {"": 0.5, "r": 0.25, "constant": 0.75}[ratio] if in_training else 1
        assert abs(kept.mean() - share) < 0.05
        np.testing.assert_allclose(found["x_grad"], kept * weights / share, rtol=1e-12)


def test_the_ratio_of_dropout_has_no_gradient() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]>
        g (double[N] x, double r, bool t) => (double y) { y = Dropout(x, r, t) }"""
    with pytest.warns(ZeroGradientWarning, match="it only determines the random mask"):
        gradient(with_loss(parsed(text), {"y": np.ones(1)}), "loss", ["r"])


@pytest.mark.parametrize("kind", ["float16", "float32"])
@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("Slice", [_ints(1), _ints(3)], {}),
        ("Gather", [_ints(1, 1)], {}),
        ("Pad", [_ints(1, 1, 0, 0), np.array(1.0)], {}),
        ("Pad", [_ints(1, 1, 0, 0)], {"mode": "edge"}),
        ("Tile", [_ints(2, 2)], {}),
        ("Compress", [np.array([True, False, True])], {"axis": 1}),
        ("ScatterElements", [np.array([[1]]), np.array([[0.5]])], {}),
        ("Concat", [_random(2, 4)], {"axis": 0}),
    ],
)
def test_other_types(kind: str, operator: str, inputs: list[Array], attributes: dict[str, Any]) -> None:
    values = [value.astype(kind) if value.dtype.kind == "f" else value for value in (_random(4, 4), *inputs)]
    made, feeds = _model(operator, values, **attributes)
    made.graph.output[0].name = made.graph.node[0].output[0] = "y"
    made.graph.output[0].type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    for name, by_it in of_sum(made, feeds, list(feeds)).items():
        assert (by_it.dtype, by_it.shape) == (np.dtype(kind), feeds[name].shape)
