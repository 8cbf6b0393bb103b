"""Reports of gradients, the table of operators, and invalid graphs."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path

import onnx
import pytest

import onnx_models
from gradient_checks import parsed
from onnx_models.gradient import Coverage, gradient, report

ROOT = Path(__file__).parents[1]
HEADER = '<ir_version: 10, opset_import: ["" : 18, "own" : 1]>'

TEXT = f"""{HEADER} g (float[N, 3] x, float[3] w, float[M] free, int64[2] k) => (float loss) {{
    shape = Shape(x)
    lengths = Gather(shape, k)
    scaled = Mul(x, w)
    rounded = Round(scaled)
    twice = Mul(scaled, rounded)
    soft = Softsign(twice)
    aside = Exp(x)
    loss = ReduceSum <keepdims = 0> (soft)
}}"""


def test_a_report_has_the_operators_between_and_where_a_gradient_ends() -> None:
    found = report(parsed(TEXT), "loss", ["x", "free"])
    ways = {one.operator: (one.way, number) for one, number in found.operators}
    assert ways == {
        "Mul": ("rule", 2),
        "Round": ("zero", 1),
        "Softsign": ("rule", 1),
        "ReduceSum": ("rule", 1),
    }
    assert found.zero_gradients == ("free",)
    assert "node of 'rounded' (Round): it is constant between its steps" in found.zeros
    assert found.refused == ()
    made = gradient(parsed(TEXT), "loss", ["x"])
    assert (found.nodes_before, report(parsed(TEXT), "loss", ["x"]).nodes_after) == (8, len(made.graph.node))


def test_a_report_of_operators_that_a_gradient_cannot_pass() -> None:
    text = TEXT.replace("Softsign(twice)", "own.Unknown(twice)")
    found = report(parsed(text), "loss", ["x"])
    assert found.nodes_after is None
    assert found.zero_gradients == ()
    (refused,) = found.refused
    assert "(Unknown) has no gradient rule (domain own)" in refused
    assert Coverage("own", "Unknown", "none") in {one for one, _ in found.operators}
    with pytest.raises(ValueError, match="loss has 'y': must be the name of a tensor"):
        report(parsed(text), "y", ["x"])


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("p = Neg(q) q = Exp(x)", r"node of 'p' \(Neg\) reads 'q': must be computed by an earlier node"),
        ("p = Neg(nothing)", r"node of 'p' \(Neg\) reads 'nothing': must be computed by an earlier node"),
        ("p = Neg(late)", r"node of 'p' \(Neg\) reads 'late': must be computed by an earlier node"),
        ("p = Neg(x) p = Exp(x)", r"node of 'p' \(Exp\) computes 'p': must be a new name"),
        ("x = Exp(early) p = Neg(x)", r"node of 'x' \(Exp\) computes 'x': must be a new name"),
        ("r = Neg(x)", "graph 'one' has the output 'p': must be computed by one of its nodes"),
        ("early = Neg(x) p = Neg(early)", r"node of 'early' \(Neg\) computes 'early': must be a new name"),
        (
            "p = If (c) <then_branch = a () => (float[N] s) { s = Exp(nothing) }, else_branch = b () => () { t = Exp(x) }>",
            r"node of 's' \(Exp\) reads 'nothing': must be computed by an earlier node",
        ),
    ],
)
@pytest.mark.parametrize("on_the_path", [True, False])
def test_a_malformed_graph_inside(inside: str, message: str, on_the_path: bool) -> None:
    text = f"""{HEADER} g (float[N] x, bool c) => (float loss) {{
        early = Exp(x)
        y = If (c) <
            then_branch = one () => (float[N] p) {{ {inside} }},
            else_branch = two () => (float[N] q2) {{ q2 = Neg(early) }}
        >
        late = Exp({"y" if on_the_path else "x"})
        loss = ReduceSum <keepdims = 0> (late)
    }}"""
    with pytest.raises(ValueError, match=message):
        gradient(onnx.parser.parse_model(text), "loss", ["x"])


def test_an_input_of_a_graph_inside_has_a_name_of_its_own() -> None:
    text = f"""{HEADER} g (float[N] x, int64 n) => (float loss) {{
        y = Loop (n, , x) <body = b (int64 i, bool c, float[N] x) => (bool again, float[N] v) {{
            again = Identity(c) v = Exp(x) }}>
        loss = ReduceSum <keepdims = 0> (y)
    }}"""
    with pytest.raises(ValueError, match="graph 'b' has 'x': must not have the name of a tensor of the enclosing"):
        gradient(onnx.parser.parse_model(text), "loss", ["x"])


def test_what_documents_name_can_be_reached_from_the_package() -> None:
    texts = [path.read_text("utf-8") for path in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]]
    names = {name for text in texts for name in re.findall(r"\bonnx_models(?:\.[A-Za-z_]\w*)+", text)}
    assert {"onnx_models.report", "onnx_models.own_operators"} <= names
    for name in names:
        if not name.startswith("onnx_models.torch"):  # needs PyTorch
            reduce(getattr, name.split(".")[1:], onnx_models)
