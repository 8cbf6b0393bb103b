"""The check of gradients on ONNX's node tests: it finds rules that are wrong on purpose, and does not report kinks."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from onnx_models.__main__ import main
from onnx_models.gradient import gradient
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules import RULES
from onnx_models.gradient.rules.registry import Incoming, Part, Zero
from onnx_models.gradient_check import Verdict, check_gradients, command, ours, workers
from onnx_models.gradient_check.cases import Case
from onnx_models.gradient_check.checker import Checker
from onnx_models.gradient_check.finite_differences import directional_derivative
from onnx_models.gradient_check.retype import Array

Change = Callable[[Graph, Node, list[str]], Sequence[Part]]
"""From a graph, a node and the right gradients to wrong ones."""


def outcomes(verdicts: Sequence[Verdict]) -> set[str]:
    return {verdict.verdict for verdict in verdicts}


def twice(graph: Graph, _node: Node, right: list[str]) -> list[Part]:
    return [graph.op("Add", right[0], right[0])]


def one_percent_more(graph: Graph, node: Node, right: list[str]) -> list[Part]:
    return [graph.op("Mul", right[0], graph.number(1.01, node.input(0)))]


def negative(graph: Graph, _node: Node, right: list[str]) -> list[Part]:
    return [right[0], graph.op("Neg", right[1])]


def forgotten(graph: Graph, node: Node, right: list[str]) -> list[Part]:
    return [right[0], graph.zeros(node.input(1))]


def declared_zero(_graph: Graph, _node: Node, right: list[str]) -> list[Part]:
    return [right[0], Zero("it is said to be")]


def not_summed(graph: Graph, node: Node, right: list[str]) -> list[Part]:
    return [right[0], graph.op("Expand", right[1], graph.shape(node.outputs[0]))]


def summed_over_another_axis(graph: Graph, _node: Node, right: list[str]) -> list[Part]:
    return [right[0], graph.op("ReduceSum", right[0], graph.ints([-1]), keepdims=0)]


def of_another_axis(graph: Graph, node: Node, _right: list[str]) -> list[Part]:
    """Softmax's gradient for the cotangent 1 at the axis before its own, which is not 0 there."""
    y = node.outputs[0]
    inner = graph.op("ReduceSum", graph.op("Mul", y, y), graph.ints([node.attribute("axis", -1) - 1]))
    return [graph.op("Mul", y, graph.op("Sub", y, inner))]


def case(text: str, expected: object, **feeds: object) -> Case:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    arrays = {name: np.asarray(value, np.float32) for name, value in feeds.items()}
    return Case("test_of_ours", model.graph.node[0].op_type, model, arrays, [np.asarray(expected, np.float32)])


def numbers(*shape: int) -> Array:
    return np.random.default_rng(1).uniform(0.5, 1.5, shape).astype(np.float32)


A, B = numbers(3, 4, 5), numbers(3, 4, 5)[::-1].copy()
EXP = case("g (float[3,4,5] x) => (float[3,4,5] y) { y = Exp (x) }", np.exp(A), x=A)
SINH = case("g (float[3,4,5] x) => (float[3,4,5] y) { y = Sinh (x) }", np.sinh(A), x=A)
SUB = case("g (float[3,4,5] x, float[3,4,5] y) => (float[3,4,5] z) { z = Sub (x, y) }", A - B, x=A, y=B)
MUL = case("g (float[3,4,5] x, float[3,4,5] y) => (float[3,4,5] z) { z = Mul (x, y) }", A * B, x=A, y=B)
ROW = case("g (float[3,4,5] x, float[5] y) => (float[3,4,5] z) { z = Add (x, y) }", A + B[0, 0], x=A, y=B[0, 0])
SQUARE_AND_ROW = case(
    "g (float[2,2] x, float[2] y) => (float[2,2] z) { z = Add (x, y) }", [[2, 4], [4, 6]], x=[[1, 2], [3, 4]], y=[1, 2]
)
SOFTMAX = case(
    "g (float[3,4,5] x) => (float[3,4,5] y) { y = Softmax <axis = 2> (x) }",
    np.exp(A) / np.exp(A).sum(2, keepdims=True),
    x=A,
)


@pytest.mark.parametrize(
    ("asked", "change"),
    [
        (EXP, twice),
        (SINH, one_percent_more),  # in float: ONNX Runtime has no kernel for double
        (SUB, negative),
        (MUL, forgotten),
        (MUL, declared_zero),
        (ROW, not_summed),
        (SQUARE_AND_ROW, summed_over_another_axis),
        (SOFTMAX, of_another_axis),
    ],
)
def test_a_rule_that_is_wrong_on_purpose_is_found(monkeypatch: pytest.MonkeyPatch, asked: Case, change: Change) -> None:
    right = RULES["", asked.operator]
    assert outcomes(Checker(asked, ours).verdicts()) == {"agree"}

    def changed(graph: Graph, node: Node, incoming: Incoming) -> Sequence[Part]:
        found = right(graph, node, incoming)
        assert found is not None
        return change(graph, node, [str(part) for part in (found.values() if isinstance(found, dict) else found)])

    monkeypatch.setitem(RULES, ("", asked.operator), changed)
    assert "wrong" in outcomes(Checker(asked, ours).verdicts())


@pytest.mark.slow
def test_the_gradients_of_some_node_tests_agree() -> None:
    operators = ["Abs", "Concat", "Div", "Floor", "Gemm", "MatMul", "Max", "MaxPool", "Relu", "SequenceMap", "Where"]
    verdicts = check_gradients(operators=operators)
    assert {verdict.operator for verdict in verdicts if verdict.verdict == "agree"} == set(operators) - {"SequenceMap"}
    assert "wrong" not in outcomes(verdicts)
    assert verdicts == check_gradients(operators=operators)
    names = {verdict.input for verdict in verdicts if verdict.case == "test_sequence_map_add_2_sequences"}
    assert names == {"x0_0", "x0_1", "x0_2", "x1_0", "x1_1", "x1_2"}


RELU = "g (float[3] x) => (float[3] y) { y = Relu (x) }"
FLOOR = "g (float[3] x) => (float[3] y) { y = Floor (x) }"
MAX = "g (float[3] a, float[3] b) => (float[3] y) { y = Max (a, b) }"


@pytest.mark.parametrize(
    "at_a_kink",
    [
        case(RELU, [0, 0, 2], x=[-1, 0, 2]),
        case(RELU, [0, 0, 0], x=[0, 0, 0]),
        case(FLOOR, [1, -2, 0], x=[1, -2, 0]),
        case(MAX, [1, 2, 3], a=[1, 2, 3], b=[1, 2, 0]),
    ],
    ids=["Relu", "Relu-of-zeros", "Floor", "Max"],
)
def test_a_kink_a_tie_or_a_step_in_the_data_is_no_fault(at_a_kink: Case) -> None:
    assert outcomes(Checker(at_a_kink, ours).verdicts()) == {"agree"}


def straight_through(model: onnx.ModelProto, loss: str, wrt: Sequence[str]) -> onnx.ModelProto:
    """A gradient that takes Floor for the identity."""
    made = gradient(model, loss, wrt)
    made.graph.node.remove(next(node for node in made.graph.node if node.output[0] == f"{wrt[0]}_grad"))
    weights = made.graph.input[-1].name
    made.graph.node.append(onnx.helper.make_node("Identity", [weights], [f"{wrt[0]}_grad"]))
    return made


def test_a_gradient_through_a_step_is_wrong_where_the_data_are_on_it() -> None:
    (verdict,) = Checker(case(FLOOR, [1, -2, 0], x=[1, -2, 0]), straight_through).verdicts()
    assert verdict.verdict == "wrong"
    assert verdict.difference == 0


def test_a_gradient_that_is_not_finite_is_wrong() -> None:
    text = "g (float[2] x) => (float[2] y) { z = Sqrt (x) y = Mul (z, z) }"

    def infinite(model: onnx.ModelProto, loss: str, wrt: Sequence[str]) -> onnx.ModelProto:
        made = gradient(model, loss, wrt)
        made.graph.node[-1].output[0] = "finite"
        made.graph.node.append(onnx.helper.make_node("Sub", ["finite", "finite"], ["zero"]))
        made.graph.node.append(onnx.helper.make_node("Div", ["zero", "zero"], [f"{wrt[0]}_grad"]))
        return made

    (verdict,) = Checker(case(text, [1, 4], x=[1, 4]), infinite).verdicts()
    assert (verdict.verdict, "not finite" in verdict.reason) == ("wrong", True)


def refusing(_model: onnx.ModelProto, _loss: str, _wrt: Sequence[str]) -> onnx.ModelProto:
    raise ValueError("no rule")


def failing(_model: onnx.ModelProto, _loss: str, _wrt: Sequence[str]) -> onnx.ModelProto:
    raise KeyError("x")


def not_loading(model: onnx.ModelProto, loss: str, wrt: Sequence[str]) -> onnx.ModelProto:
    made = gradient(model, loss, wrt)
    made.graph.node[-1].input[0] = "nowhere"
    return made


def changing(model: onnx.ModelProto, loss: str, wrt: Sequence[str]) -> onnx.ModelProto:
    made = gradient(model, loss, wrt)
    made.graph.node[0].op_type = "Cos"
    return made


@pytest.mark.parametrize(
    ("differentiate", "verdict", "reason"),
    [
        (refusing, "refused", "no rule"),
        (failing, "wrong", "breaks: KeyError: 'x'"),
        (not_loading, "wrong", "nowhere"),
        (changing, "wrong", "an output of the model differs"),
    ],
)
def test_refusing_is_told_from_breaking(
    differentiate: Callable[..., onnx.ModelProto], verdict: str, reason: str
) -> None:
    (found,) = Checker(EXP, differentiate).verdicts()
    assert (found.verdict, reason in found.reason) == (verdict, True), found


def test_a_refusal_by_one_input_does_not_hide_another() -> None:
    def of_first(model: onnx.ModelProto, loss: str, wrt: Sequence[str]) -> onnx.ModelProto:
        if "y" in wrt:
            raise ValueError("not by y")
        return ours(model, loss, wrt)

    verdicts = Checker(MUL, of_first).verdicts()
    assert [(verdict.input, verdict.verdict) for verdict in verdicts] == [("x", "agree"), ("y", "refused")]


def test_a_refusal_that_ends_with_constants_for_the_other_inputs_says_so() -> None:
    def of_constants(model: onnx.ModelProto, loss: str, wrt: Sequence[str]) -> onnx.ModelProto:
        if any(value.name == "axes" for value in model.graph.input):
            raise ValueError("axes must be constant")
        return ours(model, loss, wrt)

    squeeze = case("g (float[1,4,5] x, int64[1] axes) => (float[4,5] y) { y = Squeeze (x, axes) }", A[0], x=A[:1])
    squeeze.feeds["axes"] = np.array([0])
    (verdict,) = Checker(squeeze, of_constants).verdicts()
    assert (verdict.verdict, verdict.reason) == ("agree", "only with constants for the other inputs")


def test_a_case_that_no_runtime_runs_is_not_testable() -> None:
    broken = case("g (float[3] x) => (float[3] y) { y = Reshape (x, x) }", [1, 2, 3], x=[1, 2, 3])
    (verdict,) = Checker(broken, lambda model, _loss, _wrt: model).verdicts()
    assert (verdict.verdict, verdict.reason.startswith("the model does not run")) == ("not testable", True)


def test_differences_in_one_half_of_the_values_show_a_kink() -> None:
    at, along = np.array([0.0, 1.0]), np.array([1.0, 1.0])
    weights = np.array([1.0, 1.0])
    assert not directional_derivative(np.abs, at, along, weights, "double").smooth
    assert not directional_derivative(np.floor, at, along, weights, "double").smooth
    found = directional_derivative(np.sin, at, along, weights, "double")
    assert found.smooth
    assert abs(found.value - np.cos(at) @ along) <= found.error


def exiting_or_sleeping(model: onnx.ModelProto, loss: str, wrt: Sequence[str]) -> onnx.ModelProto:
    if model.graph.node[0].op_type == "Exp":
        os._exit(3)
    if model.graph.node[0].op_type == "Cos":
        time.sleep(60)
    return ours(model, loss, wrt)


@pytest.fixture
def _few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    tan = case("g (float[3,4,5] x) => (float[3,4,5] y) { y = Tan (x) }", np.tan(A / 2), x=A / 2)
    cos = case("g (float[3,4,5] x) => (float[3,4,5] y) { y = Cos (x) }", np.cos(A), x=A)
    named = tuple(replace(one, name=f"test_{one.operator.lower()}") for one in (EXP, cos, tan))
    # The package has a function of the same name as this module.
    monkeypatch.setattr(importlib.import_module("onnx_models.gradient_check.cases"), "_all", lambda: named)


@pytest.mark.usefixtures("_few_cases")
def test_neither_a_crash_nor_a_hang_takes_other_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "TIME_LIMIT", 5.0)
    verdicts = check_gradients(differentiate=exiting_or_sleeping, jobs=2)
    found = {(verdict.operator, verdict.verdict, verdict.reason) for verdict in verdicts}
    assert found == {
        ("Exp", "wrong", "breaks: the process ended with exit code 3 while it ran the gradient"),
        ("Cos", "wrong", "breaks: running the gradient took more than 5 s"),
        ("Tan", "agree", ""),
    }


def negated(model: onnx.ModelProto, loss: str, wrt: Sequence[str]) -> onnx.ModelProto:
    made = gradient(model, loss, wrt)
    made.graph.node[-1].op_type = "Neg"
    return made


@pytest.mark.usefixtures("_few_cases")
@pytest.mark.parametrize(("way", "status"), [(ours, 0), (negated, 1)])
def test_the_command_writes_all_verdicts_and_fails_on_a_wrong_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: Callable[..., onnx.ModelProto], status: int
) -> None:
    monkeypatch.setattr(command, "ours", way)
    file = tmp_path / "verdicts.json"
    arguments = ["check-gradients", "--operator", "Tan", "--jobs", "1", "--json", str(file)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == status, result.output
    verdicts = json.loads(file.read_text("utf-8"))["onnx_models"]
    wanted = "wrong" if status else "agree"
    assert [(entry["case"], entry["verdict"]) for entry in verdicts] == [("test_tan", wanted)]
    assert f"1 inputs of 1 operators {'are wrong' if status else 'agree'}" in result.output


@pytest.mark.usefixtures("_few_cases")
def test_a_selection_of_nothing_is_an_error_of_use() -> None:
    result = CliRunner().invoke(main, ["check-gradients", "--select", "no_such_*"])
    assert result.exit_code == 2
    assert "no_such_*" in result.output
