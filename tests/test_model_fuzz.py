"""No model ends the process: damaged ones, and those that ended it or hung once."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import onnx_models
from model_fuzz import HEADER, NUMBERS
from processes import python


def fuzz(first: int, count: int, *more: str) -> None:
    said = python(Path(__file__).with_name("model_fuzz.py"), str(first), str(count), *more)
    assert said.splitlines()[-1] == "all refused or done"


def test_damaged_models_are_refused() -> None:
    fuzz(0, 40)


@pytest.mark.slow
def test_damaged_models_of_onnx_tests_are_refused() -> None:
    fuzz(1000, 150, "nodes")


@pytest.mark.parametrize(
    "body",
    [
        "p = Constant <value = int64[8] {0, 0, -9, 0, 0, 0, 0, 0}> () a = Pad (x, p)",
        "w = Constant <value = float[1, 2, 1, 1] {1, 2}> () a = Conv <dilations = [100, 1], kernel_shape = [9, 1]> (x, w)",
        "a = MaxPool <kernel_shape = [90, 1]> (x)",
        "w = Constant <value = float[2, 1, 1, 1] {1, 2}> () a = ConvTranspose <pads = [9, 0, 9, 0]> (x, w)",
        "p = Constant <value = float[4] {1, 1, -2, 1}> () a = Resize (x, , p)",
        "p = Constant <value = int64[2] {-3, 9}> () a, b = Split <axis = 2> (x, p)",
    ],
)
@pytest.mark.parametrize(
    "ending",
    [
        "y = Slice (a, s, e, ax)",
        "y = If(c) <then_branch = t () => (float q) {q = Slice(a, s, e, ax)}, else_branch = u () => (float r) {r = Neg(a)}>",
        "y = own.part (a, s, e, ax)",
    ],
)
def test_a_slice_of_a_negative_length_is_refused(body: str, ending: str) -> None:
    text = f"""{HEADER} g (float[1, 2, 6, 6] x, bool c) => (float[] y) {{ {NUMBERS} {body} {ending} }}
        <opset_import: ["" : 18], domain: "own"> part (t, s, e, a) => (d) {{ d = Slice (t, s, e, a) }}"""
    with pytest.raises(
        ValueError, match=r"\(Slice\) reads a tensor of shape \[1, \d, -\d+, .\]: must have lengths of 0 or"
    ):
        onnx_models.vjp(onnx.parser.parse_model(text), ["y"], ["x"])


def test_long_vectors_are_quick_and_keep_their_lengths() -> None:
    text = f"""{HEADER} g (float[1099511627776] x, float[1099511627776] w) => (float loss) {{
        both = Add (x, w)
        size = Size (both)
        number = CastLike (size, both)
        part = Div (both, number)
        loss = ReduceSum <keepdims = 0> (part)
    }}"""
    made = onnx_models.gradient(onnx.parser.parse_model(text), "loss", ["w"])
    assert [length.dim_value for length in made.graph.output[1].type.tensor_type.shape.dim] == [2**40]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda made: made.graph.initializer[0].dims.__setitem__(0, -2),
            r"tensor 'w' has the shape \[-2, 3\]: must have len",
        ),
        (
            lambda made: setattr(made.graph.initializer[0], "data_type", 99),
            "tensor 'w' has the element type 99: must be one",
        ),
        (
            lambda made: made.graph.node[1].ClearField("attribute"),
            r"node of 'y' \(If\) has no then_branch: must have this",
        ),
        (
            lambda made: made.graph.node[0].attribute.add(name="axis", i=-(2**40)),
            "'a'.* has axis = -1099511627776: must be",
        ),
        (
            lambda made: setattr(made.graph.input[0].type.tensor_type, "elem_type", 99),
            "declares the element type 99: must",
        ),
        *(
            (
                lambda made, kind=kind: setattr(made.graph.node[1].attribute[0], "type", kind),
                rf"node of 'y' \(If\) has then_branch as an attribute of type {name}: must be a GRAPH",
            )
            for kind, name in ((0, "UNDEFINED"), (6, "FLOATS"), (10, "GRAPHS"))
        ),
    ],
)
def test_what_no_tool_of_onnx_should_see(change: object, message: str) -> None:
    text = f"""{HEADER} g (float[N, 3] x, bool c) => (float loss) <float[2, 3] w = {{1, 2, 3, 4, 5, 6}}> {{
        a = Add (x, x)
        y = If (c) <then_branch = t () => (float q) {{ q = Neg (a) }}, else_branch = u () => (float r) {{ r = Exp (a) }}>
        loss = ReduceSum <keepdims = 0> (y)
    }}"""
    made = onnx.parser.parse_model(text)
    change(made)  # type: ignore[operator]
    for call in (
        onnx_models.convert,
        onnx_models.portable.attach,
        lambda one: onnx_models.gradient(one, "loss", ["x"]),
    ):
        with pytest.raises(ValueError, match=message):
            call(made)


def test_a_loop_whose_body_is_no_graph_is_refused() -> None:
    text = f"""{HEADER} g (float[3] x, int64 n, bool c) => (float[3] y) {{
        y = Loop (n, c, x) <body = b (int64 i, bool go, float[3] s) => (bool on, float[3] t) {{
            on = Identity (go) t = Exp (s) }}> }}"""
    made = onnx.parser.parse_model(text)
    made.graph.node[0].attribute[0].type = onnx.AttributeProto.GRAPHS
    with pytest.raises(ValueError, match=r"\(Loop\) has body as an attribute of type GRAPHS: must be a GRAPH"):
        onnx_models.vjp(made, ["y"], ["x"])


def test_an_axis_beyond_the_rank_is_refused() -> None:
    text = f"""{HEADER} g (float[N, 3] x) => (float loss) {{
        {NUMBERS}
        five = Constant <value_ints = [5]> ()
        y = Slice (x, s, e, five)
        loss = ReduceSum <keepdims = 0> (y)
    }}"""
    with pytest.raises(ValueError, match=r"node of 'y' \(Slice\)"):
        onnx_models.gradient(onnx.parser.parse_model(text), "loss", ["x"])
