# SPDX-License-Identifier: MIT
"""What no session would notice: attributes that are unknown, or of a type that no kernel reads, are refused in models."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx.checker
import pytest

import onnx_models
from onnx_models import convert, gradient
from onnx_models.portable import attach
from ortops.spec import DOMAIN

Kind = onnx.AttributeProto

CHANGES: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "convert": convert,
    "attach": attach,
    "gradient": lambda before: gradient(before, "loss", ["X"]),
}

LAWFUL = "coordinate_transformation_mode, mode, output_height, output_width, sampling_ratio, spatial_scale"

WRONG: dict[str, tuple[list[onnx.AttributeProto], type[Exception], str]] = {
    "misspelled": (
        [Kind(name="sampling_ration", type=Kind.INT, i=7)],
        TypeError,
        rf"RoiAlign_16 has no attribute 'sampling_ration' \(sampling_ratio\?\): must be one of {LAWFUL}$",
    ),
    "strings": (
        [Kind(name="mode", type=Kind.STRINGS, strings=[b"max"])],
        TypeError,
        "mode is of type STRINGS: STRING attribute, must be one of 'avg', 'max', 'max_interpolated'$",
    ),
    "float for an int": (
        [Kind(name="sampling_ratio", type=Kind.FLOAT, f=2)],
        TypeError,
        "sampling_ratio is of type FLOAT: INT attribute, must be >= 0",
    ),
    "no type": ([Kind(name="sampling_ratio", i=2)], TypeError, "sampling_ratio is of type UNDEFINED: INT attribute"),
    "value elsewhere": (
        [Kind(name="sampling_ratio", type=Kind.INT, f=2)],
        ValueError,
        "sampling_ratio has a value in f: INT attribute, must have it in i",
    ),
    "zero byte": (
        [Kind(name="mode", type=Kind.STRING, s=b"avg\0max")],
        ValueError,
        r"mode = 'avg\\x00max': must be one of 'avg', 'max', 'max_interpolated'",
    ),
    "no UTF-8": ([Kind(name="mode", type=Kind.STRING, s=b"\xff")], ValueError, r"mode = '\\udcff': must be one of"),
    "no choice": ([Kind(name="mode", type=Kind.STRING, s=b"AVG")], ValueError, "mode = 'AVG': must be one of 'avg'"),
    "long": (
        [Kind(name="mode", type=Kind.STRING, s=b"avg" * 10**6)],
        ValueError,
        rf"mode = '{'avg' * 26}av\.\.\.': must be one of",
    ),
    "number": ([Kind(name="spatial_scale", type=Kind.FLOAT, f=-1)], ValueError, r"spatial_scale = -1\.0: must be fin"),
    "twice": (
        [Kind(name="sampling_ratio", type=Kind.INT, i=value) for value in (1, 2)],
        ValueError,
        "sampling_ratio occurs 2 times: must occur once",
    ),
    "a reference to nothing": (
        [Kind(name="sampling_ratio", type=Kind.INT, ref_attr_name="way")],
        ValueError,
        "sampling_ratio refers to 'way': must be an attribute of a function around the node",
    ),
}

INPUTS = ["X", "rois", "batch_indices"]


def model(place: str, given: list[onnx.AttributeProto], *, standard: bool = False) -> onnx.ModelProto:
    """The sum of a RoiAlign node in the graph, in a branch or in a function."""
    make, value, opset = onnx.helper.make_node, onnx.helper.make_tensor_value_info, onnx.helper.make_opsetid
    node = make(
        "RoiAlign" if standard else "RoiAlign_16", INPUTS, ["Y"], name="head", domain="" if standard else DOMAIN
    )
    node.attribute.extend(given)
    opsets, functions, nodes = [opset("", 18), opset(DOMAIN, 1), opset("f", 1)], [], [node]
    if place == "branch":
        other = make(node.op_type, INPUTS, ["Z"], domain=node.domain)
        branches = {
            f"{name}_branch": onnx.helper.make_graph([one], name, [], [value(one.output[0], 1, None)])
            for name, one in (("then", node), ("else", other))
        }
        nodes = [make("If", ["c"], ["Y2"], **branches)]
    elif place == "function":
        functions = [onnx.helper.make_function("f", "pool", INPUTS, ["Y"], [node], opsets)]
        nodes = [make("pool", INPUTS, ["Y2"], domain="f")]
    nodes.append(make("ReduceSum", [nodes[0].output[0]], ["loss"], keepdims=0))
    inputs = [value("X", 1, [1, 2, 8, 8]), value("rois", 1, [3, 4]), value("batch_indices", 7, [3]), value("c", 9, [])]
    graph = onnx.helper.make_graph(nodes, "g", inputs, [value("loss", 1, [])])
    return onnx.helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    ("change", "place"),
    [("convert", "graph"), ("convert", "branch"), ("convert", "function"), ("attach", "graph"), ("gradient", "graph")],
)
def test_a_wrong_attribute_is_refused(change: str, place: str, wrong: str) -> None:
    given, error, message = WRONG[wrong]
    where = " in function 'f::pool'" if place == "function" else ""
    with pytest.raises(error, match=rf"^node 'head' \(RoiAlign_16\){where}: {message}"):
        CHANGES[change](model(place, given))
    if change == "convert":
        with pytest.raises(error, match=rf"^node 'head' \(RoiAlign\){where}: {message}"):
            convert(model(place, given, standard=True))


def test_what_onnx_does_not_have_is_not_converted() -> None:
    mode = onnx.helper.make_attribute("mode", "max_interpolated")
    with pytest.raises(
        ValueError, match=r"^node 'head' \(RoiAlign\): mode = 'max_interpolated': only RoiAlign_16 of ai"
    ):
        convert(model("graph", [mode], standard=True))
    ratio = onnx.helper.make_attribute("coordinate_transformation_mode", "half_pixel")
    old = model("graph", [ratio], standard=True)
    old.opset_import[0].version = 15
    with pytest.raises(TypeError, match=r"\(RoiAlign\): RoiAlign_10 has no attribute 'coordinate_transformation_mode'"):
        convert(old)


def referring(*, default: onnx.AttributeProto | None = None) -> onnx.ModelProto:
    """A function whose attribute `ratio` is handed through another one to RoiAlign."""
    outer = Kind(name="inner_ratio", type=Kind.INT, ref_attr_name="ratio")
    made = model("function", [Kind(name="sampling_ratio", type=Kind.INT, ref_attr_name="inner_ratio")])
    made.functions[0].attribute.append("inner_ratio")
    call = onnx.helper.make_node("pool", INPUTS, ["Y"], domain="f", name="middle")
    call.attribute.append(outer)
    made.functions.append(onnx.helper.make_function("f", "outer", INPUTS, ["Y"], [call], made.opset_import))
    if default is None:
        made.functions[1].attribute.append("ratio")
    else:
        made.functions[1].attribute_proto.append(default)
    made.graph.node[0].op_type, made.graph.node[0].name = "outer", "call"
    return made


def test_a_reference_is_kept_by_convert_and_resolved_by_gradient() -> None:
    made = referring()
    made.graph.node[0].attribute.append(onnx.helper.make_attribute("ratio", 3))
    assert convert(made) == made
    (node,) = (node for node in gradient(made, "loss", ["X"]).graph.node if node.op_type == "RoiAlignGrad")
    assert {attribute.name: attribute.i for attribute in node.attribute}["sampling_ratio"] == 3
    made = referring(default=onnx.helper.make_attribute("ratio", 3))
    assert convert(made) == made


@pytest.mark.parametrize("change", ["convert", "gradient", "attach"])
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (-1, ValueError, "sampling_ratio = -1: must be >= 0"),
        (["3"], TypeError, "sampling_ratio is of type STRINGS: INT"),
    ],
)
def test_what_is_handed_to_a_node_by_reference_is_checked(
    change: str, value: object, error: type[Exception], message: str
) -> None:
    made = referring()
    made.graph.node[0].attribute.append(onnx.helper.make_attribute("ratio", value))
    given = r"gives 'ratio' to node 'head' \(RoiAlign_16\) in function 'f::pool'"
    with pytest.raises(error, match=rf"^node 'call' \(outer\) {given}: {message}"):
        CHANGES[change](made)
    with pytest.raises(error, match=rf"^default in function 'f::outer' {given}: {message}"):
        CHANGES[change](referring(default=onnx.helper.make_attribute("ratio", value)))


def test_rules_of_several_attributes_count() -> None:
    made = onnx_models.dml_roi_align()
    (low,) = (node for node in made.graph.node[0].attribute if node.name == "minimum_samples_per_output")
    low.i = 2**32
    with pytest.raises(ValueError, match="minimum_samples_per_output = 4294967296: must be"):
        convert(made)
    made = onnx_models.dml_resample(scales=(1.0, 2.0))
    made.graph.node[0].attribute.append(onnx.helper.make_attribute("input_pixel_offsets", [0.5]))
    with pytest.raises(
        ValueError, match=r"^node 'DmlResample' \(DmlResample\): scales has 2, input_pixel_offsets has 1"
    ):
        convert(made)
