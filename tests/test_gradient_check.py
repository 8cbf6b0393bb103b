# SPDX-License-Identifier: MIT
"""Gradients of all operators on ONNX's node tests; and that the comparison finds rules wrong on purpose."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import onnx
import pytest

from gradient_checks import Array, Call, not_of_old
from onnx_models.gradient import coverage
from onnx_models.gradient.graph import GradientGraph, Node
from onnx_models.gradient.registry import Incoming, Part
from onnx_models.gradient.reports import COMPOSITION, FUNCTION, RULE
from onnx_models.gradient.rules import REFUSED, RULES
from onnx_models.gradient_check import Load, check
from onnx_models.tools.protos import normalize_domain
from onnx_node_tests import Case, cases, in_reference, in_session

OPERATORS = [
    *(row.operator for row in coverage() if row.domain == "" and row.way in (RULE, COMPOSITION, FUNCTION)),
    # The gradient is 0.
    *("Bernoulli", "Ceil", "Floor", "Hardmax", "MelWeightMatrix", "Round", "Sign"),
    # Refused, but not its function body; in another domain; and deprecated.
    *("DynamicQuantizeLinear", "FlexAttention", "Scatter", "Upsample"),
]
EACH = {"Attention": 8, "GridSample": 3, "LinearAttention": 4, "Resize": 4, "SoftmaxCrossEntropyLoss": 4}
"""Of the tests of an operator that has many, every so many run at each commit, and all of them each week."""

NOT_COMPARED = {
    "test_dynamicquantizelinear*_expanded:x": "agrees",
    "test_dynamicquantizelinear*:x": "cannot be differentiated: .* computes with integers",
    "test_resize_*:roi": "cannot be differentiated: .* a region",
    "test_resize_*:scales": "cannot be differentiated: .* a scale",
    "test_upsample_*:scales": "cannot be differentiated: .* a scale",
    "test_scan_sum:*": "cannot be converted to opset",
    # Neither ONNX Runtime nor the reference evaluator has this layout.
    "test_*_batchwise:*": "the model does not run: Scan is not implemented",
    # A quotient of 0 or infinity: neither outputs nor gradients are finite.
    "test_mod_float_edge_cases_*:y": "kink",
    "test_bernoulli*:x": "must not draw random numbers|agrees",
    "test_training_dropout*": "kink|wrong|agrees",
    "test_unique_bfloat16_*": "kink",
}
"""By test and input, with * and ?, what comes instead of "agrees"; the first that matches counts."""


def outcomes(case: Case, feeds: dict[str, Array], names: Sequence[str], load: Load = in_session) -> dict[str, str]:
    """By input, the worst outcome of all outputs, or the message of an error."""
    try:
        found = check(case.model, feeds, wrt=names, load=load)
    except ValueError as error:
        return dict.fromkeys(names, " ".join(str(error).split()))
    by_input: dict[str, set[str]] = {name: set() for name in names}
    for comparison in found:
        by_input[comparison.wrt].add(comparison.outcome.replace("zero", "agrees"))  # many derivatives are 0
    return {name: next(worst for worst in ("wrong", "kink", "agrees") if worst in by_input[name]) for name in names}


def outcome(case: Case, name: str, load: Load) -> str:
    """The outcome at the test's own values; at others if these have a kink; or with constants for the other inputs."""
    found = outcomes(case, case.feeds, [name], load)[name]
    if "cannot be differentiated" in found:
        alone = case.with_constants(case.feeds.keys() - {name})
        again = outcomes(alone, alone.feeds, [name], load)[name]
        return again if again in ("agrees", "wrong") else found
    for seed, factor in enumerate((1, 1, 1, 0.1)):  # the last one avoids saturation
        for names in (case.wrt, [name]):
            if found == "kink":
                again = outcomes(case, case.perturbed(names, seed, factor), [name], load)[name]
                found = again if again in ("agrees", "wrong") else found
    return found


@pytest.mark.filterwarnings("ignore")  # of functions out of their domains
@pytest.mark.parametrize(
    ("operator", "step"),
    [
        *((name, EACH.get(name, 1)) for name in OPERATORS),
        *(pytest.param(name, 1, marks=pytest.mark.weekly) for name in EACH),
    ],
)
def test_gradients_agree_with_differences_on_onnxs_node_tests(operator: str, step: int) -> None:
    faults = []
    for case in [case for case in cases() if case.operator == operator and case.wrt][::step]:
        for name, at_once in outcomes(case, case.feeds, case.wrt).items():
            found = at_once if at_once == "agrees" else outcome(case, name, in_session)
            if "does not run" in found:
                found = outcome(case, name, in_reference)
            label = f"{case.name}:{name}"
            wanted = next((NOT_COMPARED[pattern] for pattern in NOT_COMPARED if fnmatchcase(label, pattern)), "agrees")
            if not re.search(wanted, found):
                faults.append(f"{label}: {found}")
    assert not faults, "\n".join(faults)


def test_every_operator_of_a_node_test_is_compared_or_refused() -> None:
    known = {*OPERATORS, *(operator for _, operator in REFUSED)}
    others = [case for case in cases() if case.operator not in known and case.wrt]
    domains = {normalize_domain(case.model.graph.node[-1].domain) for case in others}
    assert domains <= {"ai.onnx.ml", "ai.onnx.preview.training"}


Change = Callable[[GradientGraph, Node, list[str]], Sequence[Part]]
"""From a graph, a node and the right gradients to wrong ones."""


X = {"x": (3, 4, 5)}
WRONG: dict[str, tuple[Call, Change]] = {
    # a call, and gradients in place of the right ones
    "twice": (Call("Exp(x)", X), lambda graph, _, right: [graph.op("Add", right[0], right[0])]),
    # in float: ONNX Runtime has no kernel for double
    "one percent more": (
        Call("Sinh(x)", X), lambda graph, node, right: [graph.op("Mul", right[0], graph.number(1.01, node.input(0)))],
    ),
    "no number": (Call("Sqrt(x)", X), lambda graph, _, right: [graph.op("Div", *[graph.op("Sub", *right * 2)] * 2)]),
    "forgotten": (
        Call("Mul(x, b)", X | {"b": (3, 4, 5)}), lambda graph, node, right: [right[0], graph.zeros(node.input(1))],
    ),
    "not summed": (
        Call("Add(x, b)", X | {"b": (5,)}),
        lambda graph, node, right: [right[0], graph.op("Expand", right[1], graph.shape(node.outputs[0]))],
    ),
    "of another axis": (
        Call("Softmax<axis = 2>(x)", X),
        lambda graph, node, _: [graph.op("Softmax", node.input(0), axis=node.attribute("axis") - 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "change"), WRONG.values(), ids=WRONG)
def test_a_rule_that_is_wrong_on_purpose_is_found(monkeypatch: pytest.MonkeyPatch, call: Call, change: Change) -> None:
    model, feeds = call.model("lengths"), call.feeds
    operator = model.graph.node[0].op_type
    assert {comparison.outcome for comparison in check(model, feeds)} == {"agrees"}
    right = RULES["", operator]

    def changed(graph: GradientGraph, node: Node, incoming: Incoming) -> Sequence[Part]:
        gradients = right(graph, node, incoming)
        assert isinstance(gradients, list)
        return change(graph, node, [str(part) for part in gradients])

    monkeypatch.setitem(RULES, ("", operator), changed)
    assert "wrong" in {comparison.outcome for comparison in check(model, feeds)}


def test_every_operator_is_differentiated_or_a_zero_or_refused_with_a_reason() -> None:
    assert not [row.operator for row in coverage() if row.way == "none"]


@not_of_old
@pytest.mark.parametrize("mask", ["", "an input", "an initializer"])
def test_a_body_that_depends_on_types_takes_absent_inputs_and_initializers(mask: str) -> None:
    inputs: dict[str, tuple[int, ...]] = {"q": (2, 2, 3, 4), "past": (2, 2, 1, 4), **dict.fromkeys("kv", (2, 2, 5, 4))}
    inputs |= {"mask": (3, 6)} if mask else {}
    call = Call(f"y, keys, values = Attention(q, k, v, {'mask' * bool(mask)}, past, past)", inputs, (-1, 1), opset=23)
    made, feeds = call.model("names"), call.feeds
    if mask == "an initializer":
        del made.graph.input[-1]
        made.graph.initializer.append(onnx.numpy_helper.from_array(feeds.pop("mask"), "mask"))
    assert {comparison.outcome for comparison in check(made, feeds, wrt=list(feeds))} == {"agrees"}
