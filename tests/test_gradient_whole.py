# SPDX-License-Identifier: MIT
"""Whole Jacobians and Hessians (`jacobian`, `hessian`)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, load, parsed, run
from onnx_models import hessian, jacobian
from onnx_models.gradient import Mode

MODES: tuple[Mode, ...] = ("reverse", "forward")

NETWORK = """<ir_version: 10, opset_import: ["" : 18]>
network (double{of_x} x, double[2] t, int64[2] codes) => (double{of_scores} scores, double total)
    <double[3,4] w = {{0.5, -1, 0.25, 2, -0.5, 1, 0.75, 0.1, 0.3, -0.2, 0.9, -0.7}},
     double[4,2] u = {{1, -1, 0.5, 2, -0.3, 0.2, 0.1, 0.4}}> {{
        hidden = MatMul (x, w)
        bent = Tanh (hidden)
        scores = Gemm (bent, u, t)
        narrow = Cast <to = 1> (scores)
        squares = Mul (scores, scores)
        total = ReduceSum <keepdims = 0> (squares)
    }}"""
SHAPES = {"lengths": ("[4, 3]", "[4, 2]"), "names": ("[N, 3]", "[N, 2]")}
FEEDS = {"x": np.random.default_rng(8).uniform(-1, 1, (4, 3)), "t": np.array([0.5, -0.25]), "codes": np.array([0, 1])}


def network(shapes: str = "names") -> onnx.ModelProto:
    of_x, of_scores = SHAPES[shapes]
    return onnx.parser.parse_model(NETWORK.format(of_x=of_x, of_scores=of_scores))


def differences(model: onnx.ModelProto, feeds: Mapping[str, Array], y: str, x: str, step: float = 1e-5) -> Array:
    """The Jacobian by central differences."""
    runs, columns = load(model), []
    for place in np.ndindex(feeds[x].shape):
        moved = np.zeros_like(feeds[x])
        moved[place] = step
        ends = [runs({**feeds, x: np.asarray(feeds[x] + sign * moved)})[y].astype(np.float64) for sign in (1, -1)]
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.reshape(np.moveaxis(np.array(columns), 0, -1), columns[0].shape + feeds[x].shape)


@pytest.mark.parametrize(("shapes", "mode"), list(product(SHAPES, MODES)))
def test_jacobians_of_several_outputs_and_inputs(shapes: str, mode: Mode) -> None:
    model = network(shapes)
    made = jacobian(model, ["scores", "total"], {"x": "image", "t": "t"}, mode=mode)
    onnx.checker.check_model(made, full_check=True)
    found = run(made, FEEDS)
    for y, x in product(("scores", "total"), ("x", "t")):
        wanted = differences(model, FEEDS, y, x)
        given = found[f"{y}_{'image' if x == 'x' else x}_jacobian"]
        assert given.shape == wanted.shape
        np.testing.assert_allclose(given, wanted, atol=1e-8)
    # One sample of a batch depends on no other.
    rows = run(jacobian(model, ["scores", "bent"], ["x"], mode=mode, per_sample=True), FEEDS)
    np.testing.assert_allclose(
        rows["scores_x_jacobian"], [found["scores_image_jacobian"][i, :, i] for i in range(4)], atol=1e-12
    )
    assert rows["bent_x_jacobian"].shape == (4, 4, 3)


@pytest.mark.parametrize("mode", MODES)
def test_jacobians_without_elements_are_empty(mode: Mode) -> None:
    empty = {**FEEDS, "x": np.zeros((0, 3))}
    found = run(jacobian(network(), ["scores", "total"], ["x", "t"], mode=mode), empty)
    shapes_of = {name.removesuffix("_jacobian"): value.shape for name, value in found.items() if "jacobian" in name}
    assert shapes_of == {"scores_x": (0, 2, 0, 3), "scores_t": (0, 2, 2), "total_x": (0, 3), "total_t": (2,)}
    found = run(jacobian(network(), ["scores"], ["x"], mode=mode, per_sample=True), empty)
    assert found["scores_x_jacobian"].shape == (0, 2, 3)


ANY = '<ir_version: 10, opset_import: ["" : 18]> g '
NODES = {
    "a Loop": ANY + """(double[3] x) => (double[3] y) { n = Constant<value = int64 {3}> () go = Constant<value = bool {1}> ()
        y = Loop(n, go, x)<body = b (int64 i, bool c, double[3] s) => (bool d, double[3] e)
        { d = Identity(c) f = Sin(s) e = Mul(f, x) }> }""",
    "an operator of ours": ANY + """(double[1, 1, 6, 6] x) => (double[2, 1, 2, 2] y)
        <double[2, 4] boxes = {0, 0.5, 4.2, 5, 1.1, 2, 3, 4}, int64[2] first = {0, 0}>
        { y = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2>(x, boxes, first) }""",
    "an unknown rank": ANY + "(double[] x) => (double[] y) { z = Sin(x) y = Mul(z, x) }",
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("nodes", NODES)
def test_a_jacobian_through(nodes: str, mode: Mode) -> None:
    model = onnx.parser.parse_model(NODES[nodes])
    shape = [2, 2] if "rank" in nodes else [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.asarray(np.random.default_rng(1).uniform(0.2, 1, shape))}
    found = run(jacobian(model, ["y"], ["x"], mode=mode), feeds)
    np.testing.assert_allclose(found["y_x_jacobian"], differences(model, feeds, "y", "x"), atol=1e-8)


@pytest.mark.parametrize(
    ("shapes", "output", "mode"),
    [("lengths", "scores", "forward"), ("lengths", "total", "reverse"), ("names", "scores", "reverse")],
)
def test_the_mode_is_that_of_fewer_passes(shapes: str, output: str, mode: Mode) -> None:
    assert jacobian(network(shapes), [output], ["t"]) == jacobian(network(shapes), [output], ["t"], mode=mode)


@pytest.mark.parametrize("shapes", ["lengths", "names"])
def test_hessians_are_second_derivatives(shapes: str) -> None:
    model = network(shapes)
    made = hessian(model, "total", ["x", "t"])
    onnx.checker.check_model(made, full_check=True)
    found, gradients = run(made, FEEDS), jacobian(model, ["total"], {"x": "x", "t": "t"})
    for a, b in product("xt", "xt"):
        wanted = differences(gradients, FEEDS, f"total_{a}_jacobian", b)
        np.testing.assert_allclose(found[f"{a}_{b}_hessian"], wanted, atol=1e-8)
        assert found[f"{a}_grad"].shape == FEEDS[a].shape
    vectors = {f"{name}_vector": np.random.default_rng(9).normal(size=FEEDS[name].shape) for name in "xt"}
    products = run(hessian(model, "total", ["x", "t"], vector=True), {**FEEDS, **vectors})
    for a in "xt":
        parts = [np.tensordot(found[f"{a}_{b}_hessian"], vectors[f"{b}_vector"], FEEDS[b].ndim) for b in "xt"]
        np.testing.assert_allclose(products[f"{a}_hessian_vector"], parts[0] + parts[1], atol=1e-12)


def test_jacobians_and_hessians_are_differentiated_again() -> None:
    check(jacobian(network(), ["scores"], ["x"]), FEEDS, ["x"], outputs=["scores_x_jacobian"])
    check(hessian(network(), "total", {"x": "z"}), FEEDS, ["x"], outputs=["z_z_hessian"])


def test_a_jacobian_has_the_type_of_the_input() -> None:
    for mode in MODES:
        made = jacobian(network(), ["narrow"], ["t"], mode=mode)
        assert run(made, FEEDS)["narrow_t_jacobian"].dtype == np.float64


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: jacobian(m, ["scores"], ["codes"]), "wrt has 'codes' of type int64: must have a floating-point type"),
        (lambda m: jacobian(m, ["scores"], ["x"], mode="b"), "mode = 'b': must be 'forward', 'reverse'"),  # type: ignore[arg-type]
        (lambda m: jacobian(m, ["total"], ["x"], per_sample=True), "'total' has rank 0: must have a first axis"),
        (lambda m: jacobian(m, ["scores"], {"x": "t", "t": "t"}), "has a tensor 'scores_t_jacobian' already"),
        (lambda m: hessian(m, "bent", ["x"]), "loss = 'bent' has shape .*: must have one element"),
    ],
)  # fmt: skip
def test_wrong_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(network())  # type: ignore[operator]


def test_samples_of_other_numbers_are_an_error_of_the_session() -> None:
    text = ANY + "(double[n, 2] x, double[m, 2] z) => (double[k, 2] y) { y = Concat<axis = 0>(x, z) }"
    made = jacobian(parsed(text), ["y"], ["x"], per_sample=True)
    with pytest.raises(Exception, match="Reshape"):
        run(made, {"x": np.ones((3, 2)), "z": np.ones((1, 2))})
