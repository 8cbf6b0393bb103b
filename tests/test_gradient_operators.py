"""Every operator of the installed onnx, at its newest opset, has a gradient, a zero, or a refusal that names it."""

from __future__ import annotations

import onnx
import pytest

from gradient_checks import check
from gradient_nodes import node_model, not_of_old, uniform
from onnx_models.gradient import gradient
from onnx_models.gradient.expand import has_body
from onnx_models.gradient.rules import FORMS, REFUSED, RULES, ZEROS

MISSING = {"GRU", "LSTM", "Loop", "RNN", "Scan"}
"""Operators that have no gradient yet."""

KNOWN = {name for domain, name in [*RULES, *FORMS, *ZEROS, *REFUSED] if domain == ""}

REALS = {"tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"}

SCHEMAS = [
    one for one in onnx.defs.get_all_schemas() if not one.deprecated and any(REALS & set(x.types) for x in one.inputs)
]
"""The operators that read floating-point tensors."""

OWN = {one.name: one for one in SCHEMAS if one.domain == ""}


def _has_body(schema: onnx.defs.OpSchema) -> bool:
    return has_body(onnx.helper.make_node(schema.name, [], [], domain=schema.domain), schema.since_version)


@pytest.mark.parametrize("name", sorted(OWN))
def test_every_operator_is_known_or_has_a_body_of_such_operators(name: str) -> None:
    schema = OWN[name]
    if name in MISSING:
        assert name not in KNOWN, f"{name} has a gradient: must not be in MISSING"
        return
    assert name in KNOWN or _has_body(schema), f"{name}: must have a rule, a form, a zero or a refusal"
    if name not in KNOWN:
        # A body that depends on types is not there; what it has is differentiated in the tests of nodes.
        read = {node.op_type for node in schema.function_body.node}
        unknown = {one for one in read - KNOWN if one in OWN and not _has_body(OWN[one])}
        assert not unknown, f"{name}: its body has {unknown}, which must be known"


def test_what_is_missing_are_operators() -> None:
    assert set(OWN) >= MISSING


@pytest.mark.parametrize(
    "schema", [one for one in SCHEMAS if one.domain and not _has_body(one)], ids=lambda one: f"{one.domain}.{one.name}"
)
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
