# SPDX-License-Identifier: MIT
"""Any model's standard RoiAlign and MaxRoiPool nodes become this project's; nothing else changes."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import onnx_models
import ortops
from onnx_models import convert
from ortops.operators import BY_NAME
from ortops.spec import DOMAIN

INPUTS = "float[N, C, H, W] x, float[R, 4] r, int64[R] b"
INPUTS_OF_POOL = "float[N, C, H, W] x, float[R, 5] r"


def parse(
    body: str, *, opset: int = 16, inputs: str = INPUTS, imports: str = "", functions: str = ""
) -> onnx.ModelProto:
    imports = imports or f'"": {opset}'
    return onnx.parser.parse_model(
        f"<ir_version: 8, opset_import: [{imports}]> g ({inputs}) => (float[R, C, ?, ?] y) {{ {body} }} {functions}"
    )


def operators(model: onnx.ModelProto) -> list[tuple[str, str]]:
    return [(node.domain, node.op_type) for node in model.graph.node]


def imports_of(proto: onnx.ModelProto | onnx.FunctionProto) -> list[tuple[str, int]]:
    return [(item.domain, item.version) for item in proto.opset_import]


def attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


@pytest.mark.parametrize(
    ("opset", "expected"),
    [(10, 10), (11, 10), (15, 10), (16, 16), (17, 16), (21, 16), (22, 22), (23, 22), (99, 22)],
)
@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_a_node_keeps_the_meaning_of_its_opset(opset: int, expected: int, domain: str) -> None:
    model = parse("y = RoiAlign(x, r, b)", imports=f'"{domain}": {opset}')
    model.graph.node[0].domain = domain
    converted = convert(model)
    assert operators(converted) == [(DOMAIN, f"RoiAlign_{expected}")]
    assert imports_of(converted) == [(domain, opset), (DOMAIN, 1)]


def test_an_attribute_that_onnx_requires_is_not_made_up() -> None:
    model = parse("y = MaxRoiPool(x, r)", inputs=INPUTS_OF_POOL)
    with pytest.raises(ValueError, match=r"node of 'y' \(MaxRoiPool\): has no pooled_shape: must have it"):
        convert(model)


@pytest.mark.parametrize("opset", [10, 16, 22])
def test_missing_attributes_are_written_and_the_others_kept(opset: int) -> None:
    (before,) = parse("y = RoiAlign<spatial_scale = 0.1, output_height = 7>(x, r, b)", opset=opset).graph.node
    (after,) = convert(parse("y = RoiAlign<spatial_scale = 0.1, output_height = 7>(x, r, b)", opset=opset)).graph.node
    assert list(after.attribute)[:2] == list(before.attribute)
    operator = BY_NAME[f"RoiAlign_{opset}"]
    defaults = {a.name: a.default.encode() if isinstance(a.default, str) else a.default for a in operator.attributes}
    assert attributes(after) == defaults | attributes(before)


def rich_model() -> onnx.ModelProto:
    """A model with everything that a model can have besides nodes."""
    model = parse(
        "z = Relu(x) y = RoiAlign(z, r, b)", functions='<domain: "f", opset_import: ["": 16]> F(a) => (c) {c = Abs(a)}'
    )
    model.producer_name, model.doc_string, model.graph.doc_string = "someone", "about", "of the graph"
    model.metadata_props.add(key="author", value="someone")
    model.graph.metadata_props.add(key="graph", value="1")
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    node = model.graph.node[1]
    node.name, node.doc_string = "head", "the node"
    node.metadata_props.add(key="node", value="2")
    external = model.graph.initializer.add(name="w", data_type=onnx.TensorProto.FLOAT, dims=[3])
    external.data_location = onnx.TensorProto.EXTERNAL
    external.external_data.add(key="location", value="absent.bin")
    model.graph.initializer.append(onnx.helper.make_tensor("v", onnx.TensorProto.INT8, [2], b"\1\2", raw=True))
    model.graph.sparse_initializer.append(
        onnx.helper.make_sparse_tensor(
            onnx.helper.make_tensor("s", onnx.TensorProto.FLOAT, [1], [1.5]),
            onnx.helper.make_tensor("i", onnx.TensorProto.INT64, [1], [2]),
            [4],
        )
    )
    model.graph.quantization_annotation.add(tensor_name="z").quant_parameter_tensor_names.add(key="SCALE", value="w")
    model.training_info.add().algorithm.CopyFrom(model.graph)
    # Field 1000 is none of ONNX's: a later version could have it.
    model.MergeFromString(b"\xc2\x3e\x03new")
    return model


def test_everything_else_stays_byte_for_byte() -> None:
    model = rich_model()
    before = model.SerializeToString()
    expected = onnx.ModelProto()
    expected.CopyFrom(model)
    for graph in (expected.graph, expected.training_info[0].algorithm):
        graph.node[1].op_type, graph.node[1].domain = "RoiAlign_16", DOMAIN
        (written,) = convert(parse("y = RoiAlign(x, r, b)")).graph.node
        graph.node[1].attribute.extend(written.attribute)
    expected.opset_import.add(domain=DOMAIN, version=1)
    converted = convert(model)
    assert converted.SerializeToString() == expected.SerializeToString()
    assert convert(converted).SerializeToString() == converted.SerializeToString()
    assert model.SerializeToString() == before
    assert b"new" in before


NESTED = """
    y = If (c) <
        then_branch = t () => (u) {
            n = Constant <value_int = 1> ()
            yes = Constant <value = bool {1}> ()
            u, w = Loop (n, yes, x) <body = l (int64 i, bool go, float[N, C, H, W] z) => (bool on, next, each) {
                on = Identity(go)
                next = RoiAlign <output_height = 2> (z, r, b)
                each = Identity(i)
            }>
        },
        else_branch = e () => (v) { v = RoiAlign <output_height = 2> (x, r, b) }
    >
"""


def nested() -> onnx.ModelProto:
    return parse(NESTED, inputs=f"bool c, {INPUTS}")


def test_nodes_in_subgraphs_are_converted_at_any_depth() -> None:
    converted = convert(nested())
    then_branch, else_branch = (attribute.g for attribute in converted.graph.node[0].attribute)
    assert else_branch.node[0].op_type == "RoiAlign_16"
    assert then_branch.node[2].attribute[0].g.node[1].op_type == "RoiAlign_16"
    assert converted.SerializeToString().count(b"RoiAlign") == converted.SerializeToString().count(b"RoiAlign_16") == 2
    assert imports_of(converted) == [("", 16), (DOMAIN, 1)]


FUNCTIONS = """
    <domain: "f", opset_import: ["": 11]>
    Old(x, r, b) => (y) { y = RoiAlign <output_height = 2> (x, r, b) }
    <domain: "f", opset_import: ["": 16, "ai.onnx.contrib": 1]>
    New<height, mode: string = "max">(x, r, b) => (y)
    { y = RoiAlign <output_height: int = @height, mode: string = @mode> (x, r, b) }
    <domain: "f", opset_import: ["": 16]>
    Plain(x) => (y) { y = Relu(x) }
"""


def with_functions(call: str = "y = f.New <height = 2> (p, r, b)") -> onnx.ModelProto:
    return parse(f"p = f.Plain(x) {call}", imports='"": 16, "f": 1', functions=FUNCTIONS)


def test_a_function_counts_by_its_own_opset() -> None:
    old, new, plain = convert(with_functions()).functions
    assert [(f.node[0].domain, f.node[0].op_type) for f in (old, new, plain)] == [
        (DOMAIN, "RoiAlign_10"),
        (DOMAIN, "RoiAlign_16"),
        ("", "Relu"),
    ]
    assert imports_of(old) == [("", 11), (DOMAIN, 1)]
    assert imports_of(new) == [("", 16), (DOMAIN, 1)]
    assert imports_of(plain) == [("", 16)]
    assert imports_of(convert(with_functions())) == [("", 16), ("f", 1), (DOMAIN, 1)]


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_a_call_of_a_function_named_roi_align_is_left(domain: str) -> None:
    function = f'<domain: "{domain}", opset_import: ["": 16]> RoiAlign(x, r, b) => (y) {{ y = Identity(x) }}'
    model = parse("y = RoiAlign(x, r, b)", functions=function)
    assert convert(model).SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("model", [rich_model(), nested(), with_functions()], ids=["rich", "nested", "functions"])
def test_what_the_checker_accepts_it_accepts_converted(model: onnx.ModelProto) -> None:
    del model.training_info[:], model.graph.initializer[:], model.graph.sparse_initializer[:]
    del model.graph.quantization_annotation[:]
    # The checker wants a function to have its model's opset.
    del model.functions[:-2]
    onnx_models.register_schemas()
    onnx.checker.check_model(model, full_check=True)
    converted = convert(model)
    onnx.checker.check_model(converted, full_check=True)
    before, after = (onnx.shape_inference.infer_shapes(m, strict_mode=True, data_prop=True) for m in (model, converted))
    assert list(after.graph.output) == list(before.graph.output)


@pytest.mark.parametrize(
    ("imports", "message"),
    [
        ('"": 9', r"node 'head' \(RoiAlign\) at opset 9: ONNX has no RoiAlign there"),
        ('"f": 1', r"node 'head' \(RoiAlign\): must have an opset import of ONNX's domain"),
    ],
)
def test_a_node_without_a_meaning_is_refused(imports: str, message: str) -> None:
    model = parse("y = RoiAlign(x, r, b)", imports=imports)
    model.graph.node[0].name = "head"
    with pytest.raises(ValueError, match=message):
        convert(model)


def test_a_version_that_is_not_known_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx.defs, "get_schema", lambda *_: onnx.defs.OpSchema("RoiAlign", "", 31))
    with pytest.raises(ValueError, match="at opset 32: is version 31, must be one of 10, 16, "):
        convert(parse("y = RoiAlign(x, r, b)", opset=32))


def test_our_nodes_may_get_another_domain() -> None:
    model = parse("z = RoiAlign(x, r, b) y = Relu(z)")
    for source in (model, convert(model)):
        converted = convert(source, "com.example")
        assert operators(converted) == [("com.example", "RoiAlign_16"), ("", "Relu")]
        assert imports_of(converted) == [("", 16), ("com.example", 1)]
    attached = convert(onnx_models.portable.attach(convert(model)), "com.example")
    assert {function.domain for function in attached.functions} == {"com.example"}
    onnx.checker.check_model(attached, full_check=True)
    options = onnxruntime.SessionOptions()
    ortops.register(options, domain="com.example")
    feeds = {
        "x": np.ones((1, 1, 4, 4), np.float32),
        "r": np.array([[0, 0, 3, 3]], np.float32),
        "b": np.zeros(1, np.int64),
    }
    converted = convert(model, "com.example").SerializeToString()
    for session in (onnxruntime.InferenceSession(converted, options), ortops.InferenceSession(converted, options)):
        assert session.run(None, feeds)[0].item() == 1
    with pytest.raises(ValueError, match="domain = '': must be a name"):
        convert(model, "")
