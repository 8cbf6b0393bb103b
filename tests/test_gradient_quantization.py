"""Gradient rules of quantization: rounding passes a gradient, computing with integers does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from gradient_calls import not_of_old
from gradient_checks import Array, declared, parsed, run, with_loss
from onnx_models.gradient import gradient, hessian, jvp
from pairs import pairwise

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


def test_second_derivatives_pass_straight_through_as_first_ones_do() -> None:
    made = parsed("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[n] x) => (float y) <float s = {0.1}, int8 zero = {0}> {
          q = QuantizeLinear (x, s, zero)
          d = DequantizeLinear (q, s, zero)
          y = ReduceSumSquare <keepdims = 0> (d) }""")
    x, v = np.array([0.52, -1.31, 2.04], np.float32), np.array([1, 10, 100], np.float32)
    first = gradient(made, "y", ["x"])
    forward = run(jvp(first, {"x_grad": "twice"}, {"x": "v"}), {"x": x, "v": v})
    reverse = run(hessian(made, "y", ["x"], vector=True), {"x": x, "x_vector": v})
    np.testing.assert_allclose([forward["twice"], reverse["x_hessian_vector"]], [2 * v, 2 * v], rtol=1e-6)
