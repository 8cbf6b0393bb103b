# SPDX-License-Identifier: MIT
"""Gradients of single operators, quantization among them: what takes more than a row of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.utils
import pytest

import ortops
from gradient_checks import Array, Call, check, declared, not_of_old, of_sum, parsed, run, with_loss
from gradient_samples import GATES, recurrent
from onnx_models.gradient import ZeroGradientWarning, gradient, vjp
from pairs import pairwise

HEADER = '<ir_version: 10, opset_import: ["" : 18]>'


def test_the_gradient_by_a_transposed_weight_is_not_transposed() -> None:
    made = parsed(f"""{HEADER} g (float[N,4] a, float[5,4] w) => (float loss) {{
        turned = Transpose <perm = [1, 0]> (w) y = MatMul(a, turned) loss = ReduceSum <keepdims = 0> (y) }}""")
    nodes = gradient(made, "loss", ["w"]).graph.node
    assert [node.output[0] for node in nodes if node.op_type == "Transpose"] == ["turned"]


@pytest.mark.parametrize(
    ("lines", "shapes", "wrt"),
    [
        # In double, of which ONNX Runtime has other products.
        ("MatMul(a, b)", {"a": (0, 4), "b": (2, 4, 3)}, "ab"),
        ("MatMul(a, b)", {"a": (2, 3, 4), "b": (2, 4, 0)}, "ab"),
        ("Conv(x, w, b)", {"x": (0, 4, 7), "w": (4, 4, 3), "b": (4,)}, "wb"),
        ("Conv<group = 2, strides = [2, 2]>(x, w, b)", {"x": (0, 4, 5, 6), "w": (4, 2, 3, 3), "b": (4,)}, "wb"),
        ("Conv<group = 4>(x, w, b)", {"x": (0, 4, 6, 7), "w": (4, 1, 4, 3), "b": (4,)}, "wb"),
        ("ConvTranspose(x, w, b)", {"x": (0, 4, 5, 6), "w": (4, 4, 1, 1), "b": (4,)}, "wb"),
        ("ConvTranspose<group = 4>(x, w, b)", {"x": (0, 4, 3, 4, 5), "w": (4, 1, 2, 1, 2), "b": (4,)}, "wb"),
    ],
    ids=str,
)
def test_sums_over_nothing_are_0_and_not_what_a_run_left_in_memory(
    lines: str, shapes: dict[str, tuple[int, ...]], wrt: str
) -> None:
    call = Call(lines, shapes, kind="double" if lines.startswith("MatMul") else "float")
    dtype = call.feeds[wrt[0]].dtype
    made = gradient(with_loss(call.model("names"), {"y": np.ones(1, dtype)}), "loss", list(wrt))
    session, names = ortops.InferenceSession(made.SerializeToString()), [f"{name}_grad" for name in wrt]
    full = {name: np.full([length or 5 for length in shape], np.nan, dtype) for name, shape in shapes.items()}
    for _ in range(3):
        session.run(names, full)
        for found in session.run(names, call.feeds):
            assert not np.asarray(found).any()


@pytest.mark.parametrize(
    ("outputs", "ratio", "training"),
    [("y", "r", "t"), ("y, mask", "", "t"), ("y, mask", "constant", "true"), ("y", "r", "false"), ("y, mask", "r", "")],
)
def test_dropout_passes_what_it_keeps(outputs: str, ratio: str, training: str) -> None:
    made = parsed(f"""{HEADER} g (double[N, M] x, float r, bool t) => (double {outputs.replace(" mask", " bool mask")}) {{
        constant = Constant <value_float = 0.25> ()
        true = Constant <value = bool {{1}}> () false = Constant <value = bool {{0}}> ()
        {outputs} = Dropout <seed = 3> (x, {ratio}, {training}) }}""")
    rng = np.random.default_rng(1)
    weights, x = rng.uniform(1, 2, (40, 50)), rng.uniform(0.1, 2, (40, 50))
    differentiated = gradient(with_loss(made, {"y": weights}), "loss", ["x"])
    assert [value.name for value in differentiated.graph.output if "mask" in value.name] == ["mask"] * ("m" in outputs)
    for in_training in [True, False] if training == "t" else [training == "true"]:
        feeds: dict[str, Any] = {"x": x, "r": np.asarray(np.float32(0.75)), "t": np.array(in_training)}
        found, alone = run(differentiated, feeds), run(made, feeds)
        np.testing.assert_array_equal(found["y"], alone["y"])
        kept = found["y"] != 0
        share = {"": 0.5, "r": 0.25, "constant": 0.75}[ratio] if in_training else 1
        assert abs(kept.mean() - share) < 0.05
        np.testing.assert_allclose(found["x_grad"], kept * weights / share, rtol=1e-12)


def test_the_window_of_local_response_normalization_is_longer_behind_where_its_size_is_even() -> None:
    """ONNX Runtime takes odd sizes alone: the gradient by the only pixel of the loss tells which ones it reads."""
    made = Call("LRN<size = 4, alpha = 1.0>(x)", {"x": (1, 6, 1, 1)}).model("lengths")
    third = np.eye(1, 6, 2, dtype=np.float32).reshape(1, 6, 1, 1)
    differentiated = gradient(with_loss(made, {"y": third}), "loss", ["x"])
    by_x = run(onnx.utils.Extractor(differentiated).extract_model(["x"], ["x_grad"]), {"x": third + 1})["x_grad"]
    assert by_x.reshape(-1).astype(bool).tolist() == [False, True, True, True, True, False]


def test_regions_of_a_maximum_have_a_gradient_of_0_with_its_reason() -> None:
    call = Call("MaxRoiPool<pooled_shape = [2, 2]>(x, r)", {"x": (1, 2, 5, 6), "r": (3, 5)})
    with pytest.warns(ZeroGradientWarning, match="a pixel is in a bin or is not"):
        gradient(with_loss(call.model("names"), {"y": np.ones(1, np.float32)}), "loss", ["r"])


@pytest.mark.parametrize(
    ("call", "opset"),
    [
        ("ReduceProd<keepdims = 0>(x, one)", 18),
        pytest.param("CumProd(x, first)", 26, marks=not_of_old),
        pytest.param("CumProd<exclusive = 1, reverse = 1>(x, first)", 26, marks=not_of_old),
        ('ScatterElements<reduction = "mul", axis = 1>(start, places, x)', 18),
    ],
)
def test_products_have_a_second_derivative_also_where_one_factor_is_0(call: str, opset: int) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : {opset}]> g (double[N, M] x) => (double y)
        <int64[1] one = {{1}}, int64 first = {{1}}, double[3, 2] start = {{2, 3, 4, 5, 6, 7}},
         int64[3, 4] places = {{0, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1}}> {{ y = {call} }}"""
    check(text, {"x": np.array([[2.0, 3, 0, 4], [0, 2, 5, 3], [1, 2, 3, 4]])}, ["x"], second_order=True)


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_grid_sample_has_the_gradients_of_pytorch_on_pixels_and_on_borders(
    mode: str, padding: str, align: bool
) -> None:
    torch = pytest.importorskip("torch")
    ticks = np.arange(-12, 25)  # thirds of a pixel, from outside to outside
    across, down = ((2 * ticks / 3 + 1) / n - 1 if not align else 2 * ticks / 3 / (n - 1) - 1 for n in (5, 4))
    grid = np.stack(np.meshgrid(across, down), -1)[None]
    attributes = f'mode = "{mode}", padding_mode = "{padding}", align_corners = {int(align)}'
    call = Call(f"GridSample<{attributes}>(x, grid)", {"x": (1, 2, 4, 5), "grid": grid}, opset=20, kind="double")
    feeds, wrt = call.feeds, ["x"] if mode == "nearest" else ["x", "grid"]
    found = of_sum(call.model("names"), feeds, wrt)
    given = {name: torch.tensor(value, requires_grad=True) for name, value in feeds.items()}
    torch_mode = mode if mode == "nearest" else f"bi{mode}"
    torch.nn.functional.grid_sample(
        given["x"], given["grid"], mode=torch_mode, padding_mode=padding, align_corners=align
    ).sum().backward()
    for name in wrt:
        np.testing.assert_allclose(found[name], given[name].grad.numpy(), atol=1e-9, err_msg=name)


@not_of_old
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_points_that_are_no_numbers_do_not_read_outside_of_the_tensor(padding: str) -> None:
    inputs = {"x": (1, 2, 4, 5), "grid": (1, 1, 4, 2)}
    call = Call(f'GridSample<padding_mode = "{padding}">(x, grid)', inputs, opset=20, kind="double")
    feeds = call.feeds
    feeds["grid"][0, 0, :, 0] = [np.nan, np.inf, -np.inf, 1e300]
    assert of_sum(call.model("names"), feeds, call.wrt)["grid"].shape == feeds["grid"].shape


def test_half_precision_has_its_coordinates_in_float() -> None:
    inputs = {"x": (1, 1, 1, 2000), "grid": np.array([[[[0.4995, 0.0]]]])}
    call = Call("GridSample(x, grid)", inputs, opset=20, kind="float16")
    feeds = call.feeds
    by_x = of_sum(call.model("names"), feeds, ["x"])["x"]
    at = (float(feeds["grid"][0, 0, 0, 0]) + 1) * 1000 - 0.5
    assert by_x.dtype == np.float16
    np.testing.assert_allclose(by_x[0, 0, 0], np.maximum(1 - np.abs(np.arange(2000) - at), 0), atol=2e-3)


@pytest.mark.torch
@not_of_old
def test_offsets_at_the_edge_have_the_gradients_of_torchvision() -> None:
    torch = pytest.importorskip("torch")
    if not pytest.importorskip("torchvision_operators").IS_COMPILED:  # what stands in for it has no gradient
        pytest.skip("needs torchvision with its compiled operators")
    vision = pytest.importorskip("torchvision")
    inputs = {"x": (1, 2, 4, 4), "weights": (3, 2, 3, 3), "offset": (1, 18, 4, 4)}
    call = Call("DeformConv<pads = [1, 1, 1, 1]>(x, weights, offset)", inputs, (-1, 1), opset=19, kind="double")
    feeds = call.feeds
    feeds["offset"] = np.round(feeds["offset"])  # with offsets of 0, pads of 1 are read at -1 and at the length
    found = of_sum(call.model("names"), feeds, call.wrt)
    given = {name: torch.tensor(value, requires_grad=True) for name, value in feeds.items()}
    vision.ops.deform_conv2d(given["x"], given["offset"], given["weights"], padding=1).sum().backward()
    for name in feeds:
        np.testing.assert_allclose(found[name], given[name].grad.numpy(), atol=1e-9, err_msg=name)


@pytest.mark.parametrize("operator", GATES)
def test_what_stands_beyond_the_end_of_a_sequence_is_not_read(operator: str) -> None:
    call = recurrent(operator, lengths=[2, 3, 4])
    feeds = call.feeds
    feeds["x"][3, 0] = np.nan
    found = of_sum(call.model("names"), feeds, call.wrt)
    for name in call.wrt:
        assert np.isfinite(found[name]).all(), name
    assert not found["x"][3, 0].any()


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_padding_of_any_length_leaves_gradients_as_they_are(direction: str) -> None:
    """States that grew in the padding would be infinite after so many steps."""
    call = recurrent("RNN", f'activations = ["Relu"], direction = "{direction}"', lengths=[2, 4, 3])
    feeds = call.feeds | {"r": np.full((1, 3, 3), 9, np.float32)}
    longer = feeds | {"x": np.concatenate([feeds["x"], np.ones((90, 3, 2), np.float32)])}
    short, long = (of_sum(call.model("names"), given, call.wrt) for given in (feeds, longer))
    for name in call.wrt:
        np.testing.assert_array_equal(long[name][:4] if name == "x" else long[name], short[name], err_msg=name)


@pytest.mark.parametrize("operator", GATES)
def test_batches_that_come_first(operator: str) -> None:
    """ONNX Runtime runs no such layers: what they give, from another layer, is given to the gradient."""
    order = dict.fromkeys(("x", "h", "c", "oh", "oc"), (1, 0, 2)) | {"o": (2, 0, 1, 3)}

    def turned(name: str, value: Array) -> Array:
        return value.transpose(order.get(name.partition("_")[0], range(value.ndim)))

    plain, transposed = (recurrent(operator, f"layout = {layout}", lengths=[2, 4, 3]) for layout in (0, 1))
    rng, models = np.random.default_rng(0), []
    for call in (plain, transposed):
        model = call.model("names")
        outputs = list(model.graph.node[1].output)
        del model.graph.node[2:], model.graph.output[:]
        for name in outputs:
            model.graph.output.add(name=name).type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        models.append(vjp(model, outputs, call.wrt))
    shapes = {"o": (4, 1, 3, 3), "oh": (1, 3, 3), "oc": (1, 3, 3)}
    drawn = {f"{name}_cotangent": rng.uniform(-1, 1, shapes[name]).astype(np.float32) for name in outputs}
    feeds = plain.feeds | drawn
    expected = run(models[0], feeds)
    graph = models[1].graph
    graph.node.remove(next(node for node in graph.node if node.op_type == operator))
    graph.input.extend(graph.output[: len(outputs)])
    del graph.output[: len(outputs)]
    feeds |= {name: expected[name] for name in outputs}
    found = run(models[1], {name: turned(name, value) for name, value in feeds.items()})
    for name, value in found.items():
        np.testing.assert_allclose(value, turned(name, expected[name]), rtol=1e-5, atol=1e-6, err_msg=name)


INTEGERS = {
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
}

SHAPE = (4, 6, 3)
"""Of x."""

Layout = tuple[str, tuple[int, ...], Callable[[Array], Array]]
"""Attributes, the shape of the scale, and how the scale is repeated to the shape of x."""

LAYOUTS: list[Layout] = [
    ("", (), lambda s: s),
    ("", (1,), lambda s: s),
    ("", (6,), lambda s: s[:, None]),
    ("axis = -1", (3,), lambda s: s),
    ("axis = 1, block_size = 4", (4, 2, 3), lambda s: s.repeat(4, 1)[:, :6]),
]


KINDS = [
    # The gradient by the scale of 16 bits is beyond float16.
    *(("int16", "float"), ("uint16", "float")),
    *((kind, real) for kind in ("int8", "uint8") for real in ("float", "float16")),
    *(pytest.param(kind, real, marks=not_of_old) for kind in ("int4", "uint4") for real in ("float", "float16")),
]


@pairwise({"kind, real": KINDS, "layout": LAYOUTS, "opened": [False, True], "zero": [None, 3]})
def test_rounding_passes_a_gradient_that_cutting_off_stops(
    kind: str, real: str, layout: Layout, opened: bool, zero: int | None
) -> None:
    attributes, shape, repeated = layout
    low, high = INTEGERS[kind]
    number = onnx.TensorProto.DataType.Value(kind.upper())
    x, s = (declared(name, lengths, "names" if opened else "lengths") for name, lengths in (("x", SHAPE), ("s", shape)))
    of_q = ", ".join(filter(None, [attributes, f"output_dtype = {number}" if zero is None else ""]))
    of_both, more = f"<{attributes}>" if attributes else "", ", zero" if zero is not None else ""
    made = parsed(f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({real}{x} x, {real}{s} s) => ({real} y) {{
          zero = Cast <to = {number}> (zeros)
          q = QuantizeLinear {f"<{of_q}>" if of_q else ""} (x, s{more})
          y = DequantizeLinear {of_both} (q, s{more}) }}""")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.full(shape, zero or 0, np.int32), "zeros"))
    rng = np.random.default_rng(3)
    dtype = np.float16 if real == "float16" else np.float32
    scale = (rng.uniform(0.5, 1, shape) / (high - low)).astype(dtype)
    feeds: dict[str, Array] = {"x": rng.uniform(-1.5, 1.5, SHAPE).astype(dtype), "s": np.asarray(scale)}
    cotangent: Array = rng.uniform(-1, 1, SHAPE).astype(dtype)
    found = run(gradient(with_loss(made, {"y": cotangent}), "loss", ["x", "s"]), feeds)
    wide = np.asarray(repeated(scale.astype(np.float64)))
    ratio = (feeds["x"].astype(np.float32) / wide.astype(np.float32)).astype(np.float64)
    steps = np.round(ratio)
    is_inside = (steps + (zero or 0) >= low) & (steps + (zero or 0) <= high)
    assert 0.1 < is_inside.mean() < 0.9
    kept = np.clip(steps + (zero or 0), low, high) - (zero or 0)
    np.testing.assert_allclose(
        found["x_grad"], np.where(is_inside, cotangent, 0), rtol=2e-3 if dtype == np.float16 else 1e-6
    )
    # The sum over what an element of the scale is repeated to: the derivative of sum(terms * wide) by it.
    terms = cotangent * np.where(is_inside, kept - ratio, kept)
    for i in np.ndindex(shape):
        unit = np.zeros(shape)
        unit[i] = 1
        chosen = np.broadcast_to(repeated(unit), SHAPE)
        bound = (abs(cotangent * (abs(kept) + is_inside * abs(ratio))) * chosen).sum()
        error = abs(found["s_grad"][i] - (terms * chosen).sum())
        assert error <= (2e-3 if dtype == np.float16 else 1e-6) * bound
