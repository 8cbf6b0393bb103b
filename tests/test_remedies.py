# SPDX-License-Identifier: MIT
"""What an error of a session advises: who follows it, has a session that runs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from ortops.custom.kernel import custom_ops
from ortops.engine.c_api import CustomOp, Domains, TensorType
from ortops.foreign.third_party import THIRD_PARTY
from ortops.spec import ELEMENT_TYPES
from test_standard import FEEDS, OTHERS, ROI_ALIGN, of_other, parse, saved

Vector = Annotated[NDArray[np.float32], ("n",)]
X = {"x": np.ones(2, np.float32)}


def vector_model(op_type: str, domain: str = "", imports: str = "") -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 16{imports}]> g (float[n] x) => (float[n] y) {{ y = Relu (x) }}'
    )
    model.graph.node[0].op_type, model.graph.node[0].domain = op_type, domain
    return model


def advice(model: onnx.ModelProto | bytes | Path, chosen: Any = None, **arguments: Any) -> str:
    """The error's text."""
    content = saved(model) if isinstance(model, onnx.ModelProto) else model
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the type is ONNX Runtime's own
        ortops.InferenceSession(content, chosen or options(), providers=[CPU], **arguments)
    return str(caught.value)


def answer(model: onnx.ModelProto | bytes | Path, chosen: Any = None, feeds: Any = X, **arguments: Any) -> Any:
    content = saved(model) if isinstance(model, onnx.ModelProto) else model
    return ortops.InferenceSession(content, chosen or options(), providers=[CPU], **arguments).run(None, feeds)[0]


def _DCNv2(x: Vector) -> Vector:  # noqa: N802
    return 2 * x


@pytest.mark.parametrize("compiled", [False, True])
def test_a_node_without_a_domain_gets_the_operator_that_the_error_asks_for(compiled: bool) -> None:
    model = vector_model("_DCNv2")
    asked = re.search(r"write it with ortops\.operator\(domain=('.*?')\), .* operators=\[(\w+)\]", advice(model))
    assert asked
    domain, name = asked[1].strip("'"), asked[2]

    def fill(x: Vector, y: Vector) -> None:
        y[:] = 2 * x

    settings: dict[str, Any] = {"compiled": True, "outputs": ["y"]} if compiled else {}
    operator = ortops.operator(domain=domain, name=name, **settings)(fill if compiled else _DCNv2)
    assert answer(model, operators=[operator]).tolist() == [2, 2]
    chosen = options()
    ortops.register(chosen, operators=[operator])
    session = onnxruntime.InferenceSession(saved(model), chosen, providers=[CPU])
    assert session.run(None, X)[0].tolist() == [2, 2]


def test_a_node_without_a_domain_runs_next_to_nodes_of_onnx_that_ortops_runs() -> None:
    model = parse(f"z = {ROI_ALIGN}  y = Relu (z)")
    model.graph.node[1].op_type = "Twice"

    @ortops.operator(domain="")
    def Twice(x: NDArray[np.float32]) -> NDArray[np.float32]:  # noqa: N802
        return 2 * x

    expected = answer(parse(f"y = {ROI_ALIGN}"), feeds=FEEDS)
    shared = options()
    for _ in range(2):
        assert (answer(model, shared, FEEDS, operators=[Twice]) == 2 * expected).all()
        assert "write it with ortops.operator(domain='')" in advice(model, shared)


def test_a_node_without_a_domain_has_a_gradient_if_operators_are_given_as_the_error_says() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n] x) => (float loss) { y = Relu (x) loss = ReduceSum <keepdims = 0> (y) }""")
    model.graph.node[0].op_type = "Square"

    @ortops.operator(domain="")
    def SquareGrad(dy: Vector, x: Vector) -> Vector:  # noqa: N802
        return 2 * dy * x

    @ortops.operator(domain="", gradient=SquareGrad)
    def Square(x: Vector) -> Vector:  # noqa: N802
        return x * x

    with pytest.raises(ValueError, match=r"ONNX has no operator Square.*: .* must be among operators="):
        onnx_models.gradient(model, "loss", ["x"])
    typo = onnx.ModelProto.FromString(model.SerializeToString().replace(b"Square", b"Sofmax"))
    with pytest.raises(ValueError, match=r"ONNX has no operator Sofmax \(.*Softmax"):
        onnx_models.gradient(typo, "loss", ["x"])
    operators = [Square, SquareGrad]
    derivative = onnx_models.gradient(model, "loss", ["x"], operators=operators)
    session = ortops.InferenceSession(saved(derivative), options(), providers=[CPU], operators=operators)
    assert session.run(["x_grad"], {"x": np.array([3, -1], np.float32)})[0].tolist() == [6, -2]


@pytest.mark.parametrize("by", ["session", "operator"])
def test_a_node_in_the_domain_of_onnxruntime_extensions_gets_the_domain_that_the_error_names(by: str) -> None:
    model = vector_model("_DCNv2", "ai.onnx.contrib", ', "ai.onnx.contrib" : 1')
    if by == "session":
        text = advice(model)
    else:
        with pytest.raises(ValueError, match=r"domain = 'ai\.onnx\.contrib': only ortops and") as caught:
            ortops.operator(domain="ai.onnx.contrib")(_DCNv2)
        text = str(caught.value)
    domain = re.search(r"node\.domain = '(\w+)'", text)
    statement = re.search(r"model\.opset_import\.append\(.*\)\)", text)
    assert domain
    assert statement
    for node in model.graph.node:
        node.domain = domain[1]
    exec(statement[0], {"model": model, "onnx": onnx})  # noqa: S102 - what the error says
    assert answer(model, operators=[ortops.operator(domain=domain[1])(_DCNv2)]).tolist() == [2, 2]


def test_an_element_type_that_an_operator_does_not_take_is_cast_or_annotated_as_the_error_says() -> None:
    def twice(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return 2 * x

    operator = ortops.operator(domain="t", name="Op")(twice)
    model = vector_model("Op", "t", ', "t" : 1')
    text = advice(model, operators=[operator])
    asked = re.search(
        r"t::Op takes x as double: cast 'x' in the model \(Cast\), or annotate x with NDArray\[(np\.\w+)\]", text
    )
    assert asked
    kind = eval(asked[1])  # noqa: S307 - what the error says
    twice.__annotations__ = dict.fromkeys(("x", "return"), NDArray[kind])  # type: ignore[valid-type]
    assert answer(model, operators=[ortops.operator(domain="t", name="Op")(twice)]).tolist() == [2, 2]
    model.graph.node.insert(0, onnx.helper.make_node("Cast", ["x"], ["cast"], to=onnx.TensorProto.DOUBLE))
    model.graph.node[1].input[0] = "cast"
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    assert answer(model, operators=[operator]).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ("y = RoiAlign (x, boxes, x)", "RoiAlign takes batch_indices as int64: cast 'x' in the model"),
        (
            "y = ai.onnx.contrib.MaxRoiPool_1 <pooled_shape = [1, 1]> (x, of)",
            "MaxRoiPool_1 takes rois as float16 or float or",
        ),
        ("y = mmcv.grid_sampler (x, of)", "mmcv::grid_sampler takes grid as float or double or float16: cast 'of'"),
    ],
)
def test_an_element_type_that_an_operator_of_ours_does_not_take_is_named(node: str, says: str) -> None:
    assert says in advice(parse(node, 16, imports=', "ai.onnx.contrib" : 1, "mmcv" : 1'))


_kept: list[Domains] = []


def with_library(domain: str, operators: Iterable[CustomOp]) -> Any:
    """Options that have a library with operators in a domain."""
    chosen = options()
    _kept.append(Domains())
    _kept[-1].add(chosen, domain, operators)
    return chosen


def test_another_library_in_a_domain_of_ortops_is_left_out_as_the_error_says() -> None:
    """Those of ortops are in its own domain; others are in domains of which a session runs nodes."""
    model, tensor = vector_model("Relu"), (TensorType(ELEMENT_TYPES["float"]),)
    ours = [CustomOp("RoiAlign_16", "RoiAlign_16", tensor, tensor)]
    text = advice(model, with_library("ai.onnx.contrib", ours))
    assert "make new options. If the library is one of ortops" in text
    assert "do not register it" in text
    assert answer(model).tolist() == [1, 1]
    assert "or use onnxruntime.InferenceSession" in text
    chosen = with_library("ai.onnx.contrib", ours)
    assert onnxruntime.InferenceSession(saved(model), chosen, providers=[CPU]).run(None, X)[0].tolist() == [1, 1]
    other, row = of_other(*OTHERS[0]), THIRD_PARTY["mmcv", "MMCVRoiAlign"]
    text = advice(other, with_library("mmcv", custom_ops(row.definition, row.bind)))
    assert "if it is of another project, pass standard=False" in text
    chosen = with_library("mmcv", custom_ops(row.definition, row.bind))
    assert ortops.InferenceSession(saved(other), chosen, providers=[CPU], standard=False)
