# SPDX-License-Identifier: MIT
"""RoI operators of mmcv, mmdeploy and detectron2's caffe2 become this project's, in graphs as their exporters write them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner

import onnx_models
import ortops
from gradient_checks import Array
from onnx_models import convert
from onnx_models.__main__ import main
from ortops.spec import DOMAIN

OPSETS = (9, 13, onnx.defs.onnx_opset_version())
CAFFE2 = "org.pytorch._caffe2"

RAMP = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
TWO_BY_TWO = np.array([[[[1, 2], [3, 4]]]], np.float32)
ALIGNED_RAMP = np.array([[4.5, 5, 5.5, 6], [7, 7.5, 8, 8.5], [9.5, 10, 10.5, 11], [12, 12.5, 13, 13.5]])

MMCV = "output_height = 2, output_width = 2, spatial_scale = 1.0, sampling_ratio = 2, aligned = 1"
MMCV_ALIGN = f'mmcv.MMCVRoiAlign <{MMCV}, mode = "avg"> (x, rois)'
MMCV_ROTATED = f"mmcv.MMCVRoIAlignRotated <{MMCV}, clockwise = 0> (x, rois)"
CAFFE2_ATTRIBUTES = 'order = "NCHW", spatial_scale = 1.0, pooled_h = 4, pooled_w = 4, sampling_ratio = 0'
CAFFE2_ALIGN = f"{CAFFE2}.RoIAlign <{CAFFE2_ATTRIBUTES}, aligned = 1> (x, rois)"
CAFFE2_ROTATED = f"{CAFFE2}.RoIAlignRotated <{CAFFE2_ATTRIBUTES}, aligned = 1> (x, rois)"


def parse(
    body: str,
    *,
    opset: int = 16,
    columns: int | str = 5,
    element_type: str = "float",
    more: str = "",
    imports: str = f'"mmcv": 1, "mmdeploy": 1, "{CAFFE2}": 1, "_caffe2": 1',
    functions: str = "",
) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}, {imports}]> '
        f"g ({more} {element_type}[N, C, H, W] x, {element_type}[R, {columns}] rois) => ({element_type}[R, C, P, Q] y)"
        f" {{ {body} }} {functions}"
    )


def run(model: onnx.ModelProto, *inputs: Any) -> Array:
    names = [value.name for value in model.graph.input]
    kinds = [onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in model.graph.input]
    feeds = {name: np.asarray(one, kind) for name, one, kind in zip(names, inputs, kinds, strict=True)}
    (y,) = ortops.InferenceSession(convert(model).SerializeToString()).run(None, feeds)
    return np.asarray(y)


def parts(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """All nodes, from the outside in."""
    graphs: list[Any] = [model.graph, *model.functions]
    for graph in graphs:
        for node in graph.node:
            yield node
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def ours(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in parts(convert(model)) if node.domain == DOMAIN]


def imports_of(proto: onnx.ModelProto | onnx.FunctionProto) -> set[str]:
    return {item.domain for item in proto.opset_import}


# Numbers of mmcv's tests/test_ops/test_roi_align.py and test_roi_align_rotated.py, and of detectron2's
# tests/layers/test_roi_align.py and test_roi_align_rotated.py.
@pytest.mark.parametrize(
    ("node", "x", "roi", "expected"),
    [
        (MMCV_ALIGN, TWO_BY_TWO, [0, 0, 0, 1, 1], [[1, 1.25], [1.5, 1.75]]),
        (MMCV_ROTATED, TWO_BY_TWO, [0, 0.5, 0.5, 1, 1, 0], [[1, 1.25], [1.5, 1.75]]),
        (MMCV_ROTATED, TWO_BY_TWO, [0, 0.5, 0.5, 1, 1, math.pi / 2], [[1.5, 1], [1.75, 1.25]]),
        (
            MMCV_ROTATED.replace("clockwise = 0", "clockwise = 1"),
            TWO_BY_TWO,
            [0, 0.5, 0.5, 1, 1, -math.pi / 2],
            [[1.5, 1], [1.75, 1.25]],
        ),
        (CAFFE2_ALIGN, RAMP, [0, 1, 1, 3, 3], ALIGNED_RAMP),
        (CAFFE2_ALIGN.replace("aligned = 1", "aligned = 0"), RAMP, [0, 1, 1, 3, 3], ALIGNED_RAMP + 3),
        (CAFFE2_ALIGN.replace(", aligned = 1", ""), RAMP, [0, 1, 1, 3, 3], ALIGNED_RAMP + 3),
        (CAFFE2_ALIGN, RAMP, [1, 1, 3, 3], ALIGNED_RAMP),
        (CAFFE2_ROTATED, RAMP, [0, 2, 2, 2, 2, 0], ALIGNED_RAMP),
        (CAFFE2_ROTATED, RAMP, [0, 2, 2, 2, 2, 90], np.rot90(ALIGNED_RAMP, -1)),
        (CAFFE2_ROTATED, RAMP, [0, 2, 2, 2, 2, 180], np.rot90(ALIGNED_RAMP, 2)),
        (CAFFE2_ROTATED, RAMP, [2, 2, 2, 2, -90], np.rot90(ALIGNED_RAMP)),
    ],
)
@pytest.mark.parametrize("element_type", ["float16", "float", "double"])
def test_a_node_gives_the_numbers_of_the_tests_of_its_project(
    node: str, x: Array, roi: list[float], expected: Any, element_type: str
) -> None:
    model = parse(f"y = {node}", columns=len(roi), element_type=element_type)
    tolerance = 5e-3 if element_type == "float16" else 1e-5
    np.testing.assert_allclose(run(model, x, [roi])[0, 0], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(
    ("node", "columns"),
    [
        (MMCV_ALIGN, 5),
        (MMCV_ROTATED, 6),
        (CAFFE2_ALIGN, 5),
        (CAFFE2_ALIGN, 4),
        (CAFFE2_ROTATED, 6),
        (CAFFE2_ROTATED, 5),
    ],
)
def test_what_is_written_is_valid_at_every_opset(opset: int, node: str, columns: int) -> None:
    domain, _, _ = node.rpartition(".RoI") if node.startswith(CAFFE2) else node.partition(".")
    converted = convert(parse(f"y = {node}", opset=opset, columns=columns))
    onnx_models.register_schemas()
    onnx.checker.check_model(converted, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(converted, strict_mode=True, data_prop=True)
    kinds = {value.name: value.type.tensor_type for value in inferred.graph.value_info}
    (ours,) = (one for one in inferred.graph.node if one.domain == DOMAIN)
    _, _, batch_indices = ours.input
    assert kinds[batch_indices].elem_type == onnx.TensorProto.INT64
    assert len(kinds[batch_indices].shape.dim) == 1
    assert imports_of(convert(converted)) == {"", DOMAIN, "mmcv", "mmdeploy", CAFFE2, "_caffe2"} - {domain}


SLICE = """
    first{number} = Constant <value = int64[1] {{{first}}}> ()
    last{number} = Constant <value = int64[1] {{9}}> ()
    axis{number} = Constant <value = int64[1] {{1}}> ()
    boxes = Slice(rois, first{number}, last{number}, axis{number})
"""


def unknown(node: str) -> onnx.ModelProto:
    """A model in which inference does not tell how many columns RoIs have."""
    text = f"boxes = Reshape(rois, shape) y = {node.replace('rois', 'boxes')}"
    return parse(text, columns="K", more="int64[2] shape,")


@pytest.mark.parametrize(("node", "columns"), [(CAFFE2_ALIGN, 4), (CAFFE2_ROTATED, 5), (MMCV_ROTATED, 5)])
def test_rois_that_turn_out_to_lack_the_image_end_with_an_error(node: str, columns: int) -> None:
    with pytest.raises(Exception, match="running Gather node"):
        run(unknown(node), [-1, columns], RAMP, [[0] * columns])


@pytest.mark.parametrize(
    ("node", "columns", "says"),
    [
        (MMCV_ALIGN, 4, "rois has 4 columns: must have 5"),
        (CAFFE2_ROTATED, 4, "rois has 4 columns: must have 5 or 6"),
        (MMCV_ALIGN, "5, 1", "rois has 3 axes: must have 2"),
        (MMCV_ALIGN.replace("(x, rois)", "(x)"), 5, r"has the inputs \['x'\]: must have X and rois"),
        (
            MMCV_ALIGN.replace(", aligned = 1", ""),
            5,
            "aligned is missing: mmcv::MMCVRoiAlign requires it",
        ),
        (MMCV_ROTATED.replace(", clockwise = 0", ""), 6, "clockwise is missing: mmcv::MMCVRoIAlignRotated requires it"),
        (
            MMCV_ALIGN.replace('"avg"', '"max_interpolated"'),
            5,
            "mode = 'max_interpolated': must be one of 'avg', 'max'",
        ),
        (
            MMCV_ROTATED.replace("ratio = 2", "ratio = 65"),
            6,
            "sampling_ratio = 65: must be >= -2147483648 and <= 64",
        ),
        (CAFFE2_ALIGN.replace('"NCHW"', '"NHWC"'), 5, "order = 'NHWC': must be one of 'NCHW'"),
        (CAFFE2_ALIGN.replace("pooled_w = 4", "pooled_w = -4"), 5, "pooled_w = -4: must be >= 1"),
    ],
)
def test_a_node_that_cannot_be_converted_is_refused_by_name(node: str, columns: int | str, says: str) -> None:
    model = parse(f"y = {node}", columns=columns)
    model.graph.node[0].name = "head"
    with pytest.raises(ValueError, match=rf"^node 'head' \({model.graph.node[0].op_type}\): {says}"):
        convert(model)


def test_an_opset_without_the_operators_that_take_rois_apart_is_refused() -> None:
    with pytest.raises(ValueError, match=r"node of 'y' \(MMCVRoiAlign\) at opset 8: must be at 9 or a later one"):
        convert(parse(f"y = {MMCV_ALIGN}", opset=8))
    model = parse(f"y = {MMCV_ALIGN}")
    del model.opset_import[0]
    with pytest.raises(ValueError, match=r"node of 'y' \(MMCVRoiAlign\): must have an opset import of ONNX's domain"):
        convert(model)


def test_branches_with_rois_of_one_name_are_converted_each() -> None:
    turned, upright = CAFFE2_ROTATED.replace("rois", "boxes"), CAFFE2_ALIGN.replace("rois", "boxes")
    text = f"""y = If (c) <
        then_branch = t () => (u) {{ {SLICE.format(number=0, first=0)} u = {turned} }},
        else_branch = e () => (v) {{ {SLICE.format(number=1, first=2)} v = {upright} }}
    >"""
    # What one branch calls boxes has six columns, and what the other does has four.
    model = parse(text, columns=6, more="bool c,")
    np.testing.assert_allclose(run(model, True, RAMP, [[0, 2, 2, 2, 2, 0]])[0, 0], ALIGNED_RAMP, rtol=1e-5)
    np.testing.assert_allclose(run(model, False, RAMP, [[7, 7, 1, 1, 3, 3]])[0, 0], ALIGNED_RAMP, rtol=1e-5)


FUNCTION = f"""
    <domain: "f", opset_import: ["": 16, "mmcv": 1]>
    Head <height, scale: float = 1.0> (x, rois) => (y) {{
        y = mmcv.MMCVRoiAlign <output_height: int = @height, output_width = 2, spatial_scale: float = @scale,
            sampling_ratio = 2, mode = "avg", aligned = 1> (x, rois)
    }}
    <domain: "f", opset_import: ["{CAFFE2}": 1]>
    Alone (x, rois) => (y) {{ y = {CAFFE2_ALIGN} }}
"""


def with_function(call: str) -> onnx.ModelProto:
    return parse(f"y = {call} (x, rois)", functions=FUNCTION, imports=f'"f": 1, "mmcv": 1, "{CAFFE2}": 1')


def test_nodes_in_functions_are_converted_and_their_references_stay() -> None:
    model = with_function("f.Head <height = 2>")
    np.testing.assert_allclose(run(model, TWO_BY_TWO, [[0, 0, 0, 1, 1]])[0, 0], [[1, 1.25], [1.5, 1.75]])
    head, alone = convert(model).functions
    (node,) = (node for node in head.node if node.domain == DOMAIN)
    references = {a.name: a.ref_attr_name for a in node.attribute if a.ref_attr_name}
    assert references == {"output_height": "height", "spatial_scale": "scale"}
    assert imports_of(head) == imports_of(alone) == {"", DOMAIN}
    assert imports_of(convert(model)) == {"", "f", DOMAIN}


def test_a_function_of_one_node_is_given_the_opset_of_its_model() -> None:
    model = with_function("f.Alone")
    np.testing.assert_allclose(run(model, RAMP, [[0, 1, 1, 3, 3]])[0, 0], ALIGNED_RAMP)
    assert {item.domain: item.version for item in convert(model).functions[1].opset_import} == {"": 16, DOMAIN: 1}


@pytest.mark.parametrize("name", ["aligned", "sampling_ratio", "mode"])
def test_a_reference_to_a_value_that_changes_is_refused(name: str) -> None:
    model = with_function("f.Head <height = 2>")
    function = model.functions[0]
    function.attribute.append("given")
    (attribute,) = (a for a in function.node[0].attribute if a.name == name)
    attribute.CopyFrom(onnx.AttributeProto(name=name, type=attribute.type, ref_attr_name="given"))
    says = rf"{name} refers to 'given' of the function around it: must be a value, since RoiAlign_22 has it in another form"
    with pytest.raises(ValueError, match=says):
        convert(model)


@pytest.mark.parametrize(
    "text",
    [
        "y = mmcv.MMCVCornerPool (x)",
        "y = mmdeploy.MMCVMultiLevelRoiAlign (rois, x)",
        f"y = {CAFFE2}.AliasWithName (x)",
        "y = RoIAlignRotated (x, rois)",
    ],
)
def test_other_nodes_stay_with_their_imports(text: str) -> None:
    model = parse(text)
    assert convert(model).SerializeToString() == model.SerializeToString()
    both = parse(f"{text.replace('y =', 'z =')} y = {MMCV_ALIGN}")
    converted = convert(both)
    assert converted.graph.node[0] == both.graph.node[0]
    gone = set() if text.startswith("y = mmcv.") else {"mmcv"}
    assert imports_of(converted) == (imports_of(both) | {DOMAIN}) - gone


def test_a_domain_that_the_model_does_not_import_is_known_all_the_same() -> None:
    model = parse(f"y = {MMCV_ALIGN}")
    del model.opset_import[1:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(RAMP, "unused"))
    np.testing.assert_allclose(run(model, TWO_BY_TWO, [[0, 0, 0, 1, 1]])[0, 0], [[1, 1.25], [1.5, 1.75]])
    assert imports_of(convert(model)) == {"", DOMAIN}


def test_the_command_says_how_many_of_which_it_converted(tmp_path: Path) -> None:
    pools = "a = MaxRoiPool <pooled_shape = [2, 2]> (x, rois) b = MaxRoiPool <pooled_shape = [2, 2]> (x, rois)"
    model = parse(f"{pools} c = {CAFFE2_ALIGN} d = {MMCV_ALIGN} y = {MMCV_ALIGN} e = Relu(x)")
    onnx.save(model, tmp_path / "model.onnx")
    out = tmp_path / "ours.onnx"
    done = CliRunner().invoke(main, ["convert", str(tmp_path / "model.onnx"), "--out", str(out)])
    assert (done.exit_code, done.output.splitlines()) == (
        0,
        [
            f"5 nodes converted: {out}",
            "2 MaxRoiPool to MaxRoiPool_1",
            "2 mmcv::MMCVRoiAlign to RoiAlign_22",
            f"1 {CAFFE2}::RoIAlign to RoiAlign_22",
        ],
    )
    assert onnx.load(out) == convert(model)
    shown = CliRunner().invoke(main, ["convert", "--help"]).output
    for name in ("RoiAlign", "MaxRoiPool", "MMCVRoiAlign", "MMCVRoIAlignRotated", "RoIAlignRotated"):
        assert name in shown
