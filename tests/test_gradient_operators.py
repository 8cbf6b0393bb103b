"""Every operator of the installed onnx, at its newest opset, has a gradient, a zero, or a refusal that names it."""

from __future__ import annotations

import onnx
import pytest

from gradient_checks import check
from gradient_nodes import node_model, not_of_old, uniform
from onnx_models.gradient import coverage, gradient
from onnx_models.gradient.expand import has_body

REALS = {"tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"}


def test_every_operator_is_differentiated_or_a_zero_or_refused_with_a_reason() -> None:
    assert not [one.operator for one in coverage() if one.domain == "" and one.way == "none"]


@pytest.mark.parametrize(
    "name", [one.operator for one in coverage() if one.domain == "" and one.way == "function of the specification"]
)
def test_the_bodies_of_operators_consist_of_operators_that_are_known(name: str) -> None:
    # A body that depends on types is not in the schema: the node tests of onnx differentiate such.
    body = onnx.defs.get_schema(name).function_body
    known = {one.operator for one in coverage() if one.domain == "" and one.way != "none"}
    assert {node.op_type for node in body.node} <= known


OTHERS = [
    one
    for one in onnx.defs.get_all_schemas()
    if one.domain
    and not one.deprecated
    and any(REALS & set(x.types) for x in one.inputs)
    and not has_body(onnx.helper.make_node(one.name, [], [], domain=one.domain), one.since_version)
]
"""The operators of ONNX's other domains that read floating-point tensors and have no body."""


@pytest.mark.parametrize("schema", OTHERS, ids=lambda one: f"{one.domain}.{one.name}")
def test_operators_of_other_domains_are_refused_by_name(schema: onnx.defs.OpSchema) -> None:
    """Their outputs are as if of unknown types, in which a gradient could pass."""
    outputs = ["y", *(f"y{i}" for i in range(1, schema.min_output))]
    node = onnx.helper.make_node(schema.name, ["x"] * max(schema.min_input, 1), outputs, "it", domain=schema.domain)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1])
    loss = onnx.helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, [])
    sums = [onnx.helper.make_node("ReduceSum", [name], [f"sum_{name}"], keepdims=0) for name in outputs]
    sums.append(onnx.helper.make_node("Sum", [f"sum_{name}" for name in outputs], ["loss"]))
    graph = onnx.helper.make_graph([node, *sums], "g", [x], [loss])
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid(schema.domain, schema.since_version)]
    with pytest.raises(ValueError, match=rf"node 'it' \({schema.name}\)"):
        gradient(onnx.helper.make_model(graph, opset_imports=imports), "loss", ["x"])


@not_of_old
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("mask", [False, True])
def test_a_body_that_depends_on_types_takes_absent_inputs_and_initializers(constant: bool, mask: bool) -> None:
    feeds = uniform({"q": (2, 2, 3, 4), "k": (2, 2, 5, 4), "v": (2, 2, 5, 4), "past": (2, 2, 1, 4), "mask": (3, 6)})
    constants = {name: feeds.pop(name) for name in (["mask"] if constant else [])}
    names = ["q", "k", "v", "mask" if mask else "", "past", "past"]
    wrt = [name for name in feeds if name in names]
    fed = {name: feeds[name] for name in wrt}
    outputs = ["y", "keys", "values"]
    made = node_model("Attention", fed, opened=True, opset=23, outputs=outputs, constants=constants, inputs=names)
    check(made, fed, wrt)
