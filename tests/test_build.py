# SPDX-License-Identifier: MIT
"""The builders' models: valid, complete, the same every time, and refused with an explanation where they cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import onnx
import pytest

import onnx_models
from onnx_models.collection import collection
from ortops.operators import BY_NAME, OPERATORS
from ortops.spec import DOMAIN, Attribute, Operator, Tensor
from processes import python

OPSETS = ", ".join(
    str(operator.standard[1]) for operator in OPERATORS if operator.standard and operator.standard[0] == "RoiAlign"
)


def shapes(values: Iterable[onnx.ValueInfoProto]) -> dict[str, list[int | str]]:
    return {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


def attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def test_axes_are_open_under_their_names_unless_given() -> None:
    model = onnx_models.roi_align(16, output_height=2, output_width=3)
    assert shapes(model.graph.input) == {
        "X": ["N", "C", "H", "W"],
        "rois": ["num_rois", 4],
        "batch_indices": ["num_rois"],
    }
    assert shapes(model.graph.output) == {"Y": ["num_rois", "C", 2, 3]}
    model = onnx_models.roi_align(16, axes={"N": 1, "C": "channels", "num_rois": 0}, output_height=2)
    assert shapes([*model.graph.input, *model.graph.output]) == {
        "X": [1, "channels", "H", "W"],
        "rois": [0, 4],
        "batch_indices": [0],
        "Y": [0, "channels", 2, 1],
    }


@pytest.mark.parametrize(
    ("outputs", "mode", "expected"),
    [
        (("dx",), "avg", (["dY", "rois", "batch_indices", "x_shape"], ["dX", ""])),
        (("dx",), "max", (["dY", "rois", "batch_indices", "x_shape", "X"], ["dX", ""])),
        (("drois",), "avg", (["dY", "rois", "batch_indices", "x_shape", "X"], ["", "drois"])),
        (("drois", "dx"), "avg", (["dY", "rois", "batch_indices", "x_shape", "X"], ["dX", "drois"])),
    ],
)
def test_the_gradient_names_both_outputs_and_has_x_where_it_needs_it(
    outputs: tuple[str, ...], mode: str, expected: tuple[list[str], list[str]]
) -> None:
    model = onnx_models.roi_align_grad(outputs=outputs, mode=mode)
    (node,) = model.graph.node
    assert (list(node.input), list(node.output)) == expected
    assert [v.name for v in model.graph.input] == [name for name in expected[0] if name]
    assert [v.name for v in model.graph.output] == [name for name in expected[1] if name]


def test_the_index_type_and_the_ranks_are_chosen() -> None:
    model = onnx_models.dml_roi_align(element_type="float16", index_type="uint32", roi_rank=4, batch_indices_rank=3)
    assert shapes([*model.graph.input, *model.graph.output]) == {
        "InputTensor": ["N", "C", "H", "W"],
        "ROITensor": [1, 1, "num_rois", 4],
        "BatchIndicesTensor": [1, 1, "num_rois"],
        "OutputTensor": ["num_rois", "C", 1, 1],
    }
    kinds = [v.type.tensor_type.elem_type for v in model.graph.input]
    assert list(map(onnx.TensorProto.DataType.Name, kinds)) == ["FLOAT16", "FLOAT16", "UINT32"]
    model = onnx_models.dml_roi_align_grad(roi_rank=3)
    assert shapes(model.graph.output)["OutputROIGradientTensor"] == [1, "num_rois", 4]
    assert model.graph.input[2].type.tensor_type.elem_type == onnx.TensorProto.INT64


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            onnx_models.dml_resample(scales=(1, 1, 2, 2)),
            {"InputTensor": ["N0", "N1", "N2", "N3"], "OutputTensor": ["M0", "M1", "M2", "M3"]},
        ),
        (
            onnx_models.dml_resample(scales=(1, 1.5), axes={"N1": 5, "N0": "batch"}),
            {"InputTensor": ["batch", 5], "OutputTensor": ["M0", 7]},
        ),
        (onnx_models.dml_resample(output_sizes=(3,)), {"InputTensor": ["N0"], "OutputTensor": [3]}),
        (
            onnx_models.dml_resample_grad(rank=2, axes={"N1": 4, "M0": 2}),
            {"InputGradientTensor": [2, "M1"], "x_shape": [2], "OutputGradientTensor": ["N0", 4]},
        ),
    ],
)
def test_an_open_rank_is_that_of_a_list_or_as_given_or_four(
    model: onnx.ModelProto, expected: dict[str, list[int | str]]
) -> None:
    assert shapes([*model.graph.input, *model.graph.output]) == expected


def test_the_builder_needs_only_the_definition() -> None:
    other = Operator(
        name="SomethingElse",
        family="",
        function="",
        doc="",
        attributes=(Attribute("length", "INT", 2),),
        inputs=(Tensor("bias", "T", ("L",), optional=True), Tensor("data", "T", ("L", 3))),
        outputs=(Tensor("Sum", "T", ("length",)), Tensor("Count", "int64", (), optional=True)),
        types={"T": ("double",)},
    )
    model = onnx_models.model(other, omit=("bias",), outputs=("sum",), attributes={"length": 5}, axes={"L": 6})
    assert shapes([*model.graph.input, *model.graph.output]) == {"data": [6, 3], "Sum": [5]}
    (node,) = model.graph.node
    assert (list(node.input), list(node.output)) == (["", "data"], ["Sum", ""])
    with pytest.raises(ValueError, match="SomethingElse always has Sum"):
        onnx_models.model(other, outputs=("count",))


@pytest.mark.parametrize(
    ("operator", "standard"),
    [(one, standard) for one in OPERATORS for standard in (False, True) if one.standard or not standard],
    ids=lambda one: getattr(one, "name", str(one)),
)
def test_every_attribute_is_on_the_node_in_its_type(operator: Operator, standard: bool) -> None:
    given = {names[0]: (1.0, 2.0) for names in operator.needed_attributes}
    model = onnx_models.model(operator, standard=standard, attributes=given)
    (node,) = model.graph.node
    name, opset = operator.standard or ("", 0)
    assert (node.domain, node.op_type) == (("", name) if standard else (DOMAIN, operator.name))
    # Runtimes read no opset before 7.
    versions = {item.domain: item.version for item in model.opset_import}
    assert versions == ({"": max(opset, 7)} if standard else {"": 21, DOMAIN: 1})
    defaults = {a.name: a.default for a in operator.attributes} | given
    expected = {
        key: value.encode() if isinstance(value, str) else [*value] if isinstance(value, tuple) else value
        for key, value in defaults.items()
        if value != ()
    }
    assert attributes(node) == expected
    types = {a.name: onnx.AttributeProto.AttributeType.Name(a.type) for a in node.attribute}
    assert types == {a.name: a.type for a in operator.attributes if a.name in expected}


@pytest.mark.parametrize(("name", "kind", "model"), [pytest.param(*row, id="_".join(row[:2])) for row in collection()])
def test_every_model_of_the_collection_passes_the_full_check(name: str, kind: str, model: onnx.ModelProto) -> None:
    onnx_models.register_schemas()
    onnx.checker.check_model(model, full_check=True, check_custom_domain=True)
    undeclared = onnx.ModelProto()
    undeclared.CopyFrom(model)
    for output in undeclared.graph.output:
        output.ClearField("type")
    found = onnx.shape_inference.infer_shapes(undeclared, strict_mode=True, data_prop=True)
    for output, declared in zip(found.graph.output, model.graph.output, strict=True):
        for dim, wanted in zip(output.type.tensor_type.shape.dim, declared.type.tensor_type.shape.dim, strict=True):
            # ONNX invents names for lengths that follow from data alone, or from a length that is not known.
            if dim.dim_param.startswith("unk__") and name.startswith(
                ("dml_resample", "ps_roi_align", "ms_deform_attn")
            ):
                dim.dim_param = wanted.dim_param
        assert output == declared
    assert model.ir_version == 10
    floats = [v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)]
    assert onnx.TensorProto.DataType.Value(kind.upper()) in floats


def test_another_process_makes_the_same_bytes_and_loads_no_runtime_and_no_command_line() -> None:
    code = (
        "import onnx_models, sys; made = onnx_models.roi_align_grad(mode='max').SerializeToString().hex();"
        "print(made, {'numba', 'onnxruntime', 'click', 'rich'} & set(sys.modules))"
    )
    assert python(code) == f"{onnx_models.roi_align_grad(mode='max').SerializeToString().hex()} set()"


def build(name: str, **options: Any) -> Callable[[], object]:
    return lambda: onnx_models.model(BY_NAME[name], **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: onnx_models.roi_align(13), ValueError, f"opset = 13: must be one of {OPSETS}"),
        (
            build("RoiAlign_16", element_type="bfloat16"),
            ValueError,
            "element_type = 'bfloat16': RoiAlign_16 has float16, float, double",
        ),
        (
            build("RoiAlign_16", standard=True, attributes={"mode": "max_interpolated"}),
            ValueError,
            "mode = 'max_interpolated': only RoiAlign_16 of ai.onnx.contrib has it",
        ),
        (
            build("RoiAlignGrad", standard=True),
            ValueError,
            "standard = True: ONNX has no operator that computes RoiAlignGrad",
        ),
        (build("RoiAlign_16", axes={"R": 3}), ValueError, "axes has 'R': must be one of N, C, H, W, num_rois"),
        (build("RoiAlign_16", axes={"N": True}), TypeError, r"axes\['N'\] = True: must be a length or a"),
        (build("RoiAlign_16", axes={"N": -1}), ValueError, r"axes\['N'\] = -1: must be >= 0"),
        (build("RoiAlignGrad", outputs=("dw",)), ValueError, r"outputs = \('dw',\): must be one or more"),
        (build("RoiAlign_16", omit=("rois",)), ValueError, r"omit = \('rois',\): RoiAlign_16 has the optional inputs"),
        (build("RoiAlign_16", index_type="uint32"), ValueError, "index_type = 'uint32': RoiAlign_16 has int64"),
        (lambda: onnx_models.dml_roi_align(roi_rank=1), ValueError, "rank of ROITensor = 1: must be 2 or 3 or 4"),
        (
            build("DmlRoiAlign", ranks={"rois": 3}),
            ValueError,
            "ranks has 'rois': must be one of InputTensor, ROITensor, BatchIndicesTensor",
        ),
        (
            lambda: onnx_models.dml_resample(scales=(2, 2), rank=3),
            ValueError,
            "rank of InputTensor = 3: must be 2, that of scales",
        ),
        (
            build("DmlResampleGrad", ranks={"OutputGradientTensor": 2}),
            ValueError,
            "ranks has 'OutputGradientTensor': must be one of InputGradientTensor, x_shape",
        ),
        (
            lambda: onnx_models.dml_resample(scales=(2, 2), axes={"N1": 3, "M1": 6}),
            ValueError,
            "axes has 'M1': must be one of N0, N1, M0",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_its_value_and_its_rule(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
