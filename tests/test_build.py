"""The builders' models: valid, complete, the same every time, and refused with an explanation where they cannot be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

import onnx_models
import ortops
from onnx_models.collection import collection
from ortops.operators import BY_NAME
from ortops.reference import evaluate
from ortops.spec import DOMAIN, ELEMENT_DTYPES, Attribute, Operator, Tensor

Array = npt.NDArray[Any]

OPSETS = (10, 16, 22)


def shapes(values: Iterable[onnx.ValueInfoProto]) -> dict[str, list[int | str]]:
    return {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


def attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


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
            if dim.dim_param.startswith("unk__") and name.startswith("dml_resample"):
                dim.dim_param = wanted.dim_param
        assert output == declared
    assert model.ir_version == 10
    assert {i.domain: i.version for i in model.opset_import}.get("", 0) <= (22 if "standard" in name else 21)
    floats = [v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)]
    assert onnx.TensorProto.DataType.Value(kind.upper()) in floats


@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize("opset", OPSETS)
def test_every_attribute_is_on_the_node(opset: int, standard: bool) -> None:
    operator = BY_NAME[f"RoiAlign_{opset}"]
    (node,) = onnx_models.roi_align(opset, standard=standard, mode="max").graph.node
    assert (node.domain, node.op_type) == (("", "RoiAlign") if standard else (DOMAIN, operator.name))
    defaults = {a.name: a.default.encode() if isinstance(a.default, str) else a.default for a in operator.attributes}
    assert attributes(node) == defaults | {"mode": b"max"}
    types = {a.name: onnx.AttributeProto.AttributeType.Name(a.type) for a in node.attribute}
    assert types == {a.name: a.type for a in operator.attributes}


@pytest.mark.parametrize("opset", OPSETS)
def test_a_standard_model_imports_the_opset_it_is_named_after(opset: int) -> None:
    model = onnx_models.roi_align(opset, standard=True)
    assert [(i.domain, i.version) for i in model.opset_import] == [("", opset)]


def test_axes_are_open_under_their_names_unless_given() -> None:
    model = onnx_models.roi_align(16, output_height=2, output_width=3)
    assert shapes(model.graph.input) == {
        "X": ["N", "C", "H", "W"],
        "rois": ["num_rois", 4],
        "batch_indices": ["num_rois"],
    }
    assert shapes(model.graph.output) == {"Y": ["num_rois", "C", 2, 3]}
    model = onnx_models.roi_align_with_grad(axes={"N": 1, "C": "channels", "num_rois": 0}, output_height=2)
    assert shapes([*model.graph.input, *model.graph.output]) == {
        "X": [1, "channels", "H", "W"],
        "rois": [0, 4],
        "batch_indices": [0],
        "dY": [0, "channels", 2, 1],
        "Y": [0, "channels", 2, 1],
        "dX": [1, "channels", "H", "W"],
        "drois": [0, 4],
    }


def test_the_gradient_takes_its_output_size_from_dy() -> None:
    model = onnx_models.roi_align_grad(axes={"output_height": 7})
    assert shapes(model.graph.input)["dY"] == ["num_rois", "C", 7, "output_width"]


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


def test_both_nodes_of_the_joint_model_have_the_same_attributes() -> None:
    forward, shape, backward = onnx_models.roi_align_with_grad(mode="max", sampling_ratio=3, output_width=5).graph.node
    assert (forward.op_type, shape.op_type, backward.op_type) == ("RoiAlign_22", "Shape", "RoiAlignGrad")
    assert attributes(backward).items() < attributes(forward).items()
    assert attributes(backward)["sampling_ratio"] == 3


def test_a_model_of_directml_has_the_defaults_of_its_first_operator_on_the_node() -> None:
    (node,) = onnx_models.dml_roi_align(output_width=3).graph.node
    assert attributes(node) == {
        "output_height": 1,
        "output_width": 3,
        "reduction_function": b"average",
        "interpolation_mode": b"linear",
        "spatial_scale_x": 1.0,
        "spatial_scale_y": 1.0,
        "input_pixel_offset": 0.5,
        "output_pixel_offset": -0.5,
        "out_of_bounds_input_value": 0.0,
        "minimum_samples_per_output": 1,
        "maximum_samples_per_output": 2**32 - 1,
        "align_regions_to_corners": 0,
    }
    (node,) = onnx_models.dml_roi_align_grad(reduction_function="max").graph.node
    lacks = {"output_height", "output_width", "out_of_bounds_input_value"}
    assert set(attributes(onnx_models.dml_roi_align().graph.node[0])) - set(attributes(node)) == lacks


def test_a_model_of_rotated_regions_has_their_five_numbers() -> None:
    model = onnx_models.roi_align_rotated(output_width=3, clockwise=1)
    assert attributes(model.graph.node[0]) == {
        "output_height": 1,
        "output_width": 3,
        "aligned": 1,
        "clockwise": 1,
        "sampling_ratio": 0,
        "spatial_scale": 1.0,
    }
    tensors = {"X": ["N", "C", "H", "W"], "rois": ["num_rois", 5], "batch_indices": ["num_rois"]}
    assert shapes([*model.graph.input, *model.graph.output]) == tensors | {"Y": ["num_rois", "C", 1, 3]}
    model = onnx_models.roi_align_rotated_grad(outputs=("drois",), axes={"num_rois": 2})
    assert shapes(model.graph.input)["X"] == ["N", "C", "H", "W"]
    assert shapes(model.graph.output) == {"drois": [2, 5]}
    assert "X" not in shapes(onnx_models.roi_align_rotated_grad(outputs=("dx",)).graph.input)


def test_the_values_of_pooled_shape_are_lengths_of_the_output() -> None:
    model = onnx_models.max_roi_pool(22, pooled_shape=np.array([2, 3]))
    (node,) = model.graph.node
    assert attributes(node) == {"pooled_shape": [2, 3], "spatial_scale": 1.0}
    assert shapes(model.graph.output) == {"Y": ["num_rois", "C", 2, 3]}
    assert shapes(onnx_models.max_roi_pool(1).graph.output) == {"Y": ["num_rois", "C", 1, 1]}
    model = onnx_models.max_roi_pool_grad(axes={"output_height": 2})
    assert shapes([*model.graph.input, *model.graph.output]) == {
        "dY": ["num_rois", "C", 2, "output_width"],
        "X": ["N", "C", "H", "W"],
        "rois": ["num_rois", 5],
        "dX": ["N", "C", "H", "W"],
    }


@pytest.mark.parametrize(("opset", "imported"), [(1, 7), (22, 22)])
def test_a_standard_max_roi_pool_has_an_opset_that_runtimes_read(opset: int, imported: int) -> None:
    model = onnx_models.max_roi_pool(opset, standard=True)
    assert [(i.domain, i.version) for i in model.opset_import] == [("", imported)]
    assert onnx.defs.get_schema("MaxRoiPool", imported).since_version == opset


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
    ("outputs", "reduction", "has_x"),
    [
        (("OutputGradientTensor",), "average", False),
        (("outputgradienttensor",), "max", True),
        (("outputroigradienttensor",), "average", True),
    ],
)
def test_the_gradient_of_directml_has_its_map_where_it_needs_it(
    outputs: tuple[str, ...], reduction: str, has_x: bool
) -> None:
    model = onnx_models.dml_roi_align_grad(outputs=outputs, reduction_function=reduction)
    assert ("InputTensor" in shapes(model.graph.input)) == has_x
    assert [v.name.lower() for v in model.graph.output] == [name.lower() for name in outputs]


def test_lists_are_on_the_node_where_they_have_values() -> None:
    (node,) = onnx_models.dml_resample(scales=[2, 0.5], output_sizes=np.array([4, 4])).graph.node
    assert attributes(node) == {
        "interpolation_mode": b"linear",
        "scales": [2.0, 0.5],
        "rounding_direction": b"half_up",
        "output_sizes": [4, 4],
    }
    types = {a.name: onnx.AttributeProto.AttributeType.Name(a.type) for a in node.attribute}
    assert (types["scales"], types["output_sizes"]) == ("FLOATS", "INTS")
    (node,) = onnx_models.dml_resample_grad(input_pixel_offsets=(0,), output_pixel_offsets=()).graph.node
    assert attributes(node) == {
        "interpolation_mode": b"linear",
        "input_pixel_offsets": [0.0],
        "rounding_direction": b"half_up",
    }


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
        (
            onnx_models.dml_resample(scales=(1, 2), axes={"M0": "batch", "N0": "batch"}),
            {"InputTensor": ["batch", "N1"], "OutputTensor": ["batch", "M1"]},
        ),
        (onnx_models.dml_resample(output_sizes=(3,)), {"InputTensor": ["N0"], "OutputTensor": [3]}),
        (
            onnx_models.dml_resample_grad(rank=2, axes={"N1": 4, "M0": 2}),
            {"InputGradientTensor": [2, "M1"], "x_shape": [2], "OutputGradientTensor": ["N0", 4]},
        ),
        (
            onnx_models.dml_resample_grad(),
            {
                "InputGradientTensor": ["M0", "M1", "M2", "M3"],
                "x_shape": [4],
                "OutputGradientTensor": ["N0", "N1", "N2", "N3"],
            },
        ),
    ],
)
def test_an_open_rank_is_that_of_a_list_or_as_given_or_four(
    model: onnx.ModelProto, expected: dict[str, list[int | str]]
) -> None:
    assert shapes([*model.graph.input, *model.graph.output]) == expected


def test_the_same_call_makes_the_same_bytes_in_any_process() -> None:
    code = "import onnx_models, sys; sys.stdout.write(onnx_models.roi_align_with_grad(mode='max').SerializeToString().hex())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == onnx_models.roi_align_with_grad(mode="max").SerializeToString().hex()


def test_importing_the_package_loads_no_runtime_and_no_command_line() -> None:
    code = "import onnx_models, sys; print({'numba', 'onnxruntime', 'click', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: onnx_models.roi_align(13), ValueError, "opset = 13: must be one of 10, 16, 22"),
        (
            lambda: onnx_models.roi_align(16, element_type="bfloat16"),
            ValueError,
            "element_type = 'bfloat16': RoiAlign_16 has float16, float, double",
        ),
        (
            lambda: onnx_models.roi_align_with_grad(element_type="int8"),
            ValueError,
            "element_type = 'int8': RoiAlign_22 has ",
        ),
        (
            lambda: onnx_models.roi_align(10, coordinate_transformation_mode="half_pixel"),
            TypeError,
            "RoiAlign_10 has no attribute 'coordinate_transformation_mode': must be one of mode, output_height, ",
        ),
        (
            lambda: onnx_models.roi_align_grad(output_height=1),
            TypeError,
            "RoiAlignGrad has no attribute 'output_height'",
        ),
        (lambda: onnx_models.roi_align(16, mode="AVG"), ValueError, "mode = 'AVG': must be one of 'avg', 'max', "),
        (lambda: onnx_models.roi_align(16, sampling_ratio=0.5), TypeError, "sampling_ratio = 0.5: INT attribute"),
        (
            lambda: onnx_models.roi_align(16, standard=True, mode="max_interpolated"),
            ValueError,
            "mode = 'max_interpolated': only RoiAlign_16 of ai.onnx.contrib has it",
        ),
        (
            lambda: onnx_models.roi_align(16, axes={"R": 3}),
            ValueError,
            "axes has 'R': must be one of N, C, H, W, num_rois",
        ),
        (lambda: onnx_models.roi_align(16, axes={"output_height": 3}), ValueError, "axes has 'output_height'"),
        (lambda: onnx_models.roi_align(16, axes={"N": -1}), ValueError, r"axes\['N'\] = -1: must be >= 0"),
        (lambda: onnx_models.roi_align(16, axes={"N": True}), TypeError, r"axes\['N'\] = True: must be a length or a"),
        (
            lambda: onnx_models.roi_align_grad(outputs=()),
            ValueError,
            r"outputs = \(\): must be one or more of dx, drois",
        ),
        (lambda: onnx_models.roi_align_grad(outputs=("dw",)), ValueError, r"outputs = \('dw',\): must be one or more"),
        (
            lambda: onnx_models.model(BY_NAME["RoiAlign_16"], omit=("rois",)),
            ValueError,
            r"omit = \('rois',\): RoiAlign_16 has the optional inputs \[\]",
        ),
        (lambda: onnx_models.roi_align_rotated(aligned=2), ValueError, "aligned = 2: must be >= 0 and <= 1"),
        (
            lambda: onnx_models.roi_align_rotated(sampling_ratio=65),
            ValueError,
            "sampling_ratio = 65: must be >= 0 and <= 64",
        ),
        (lambda: onnx_models.max_roi_pool(16), ValueError, "opset = 16: must be 1 or 22, which define MaxRoiPool"),
        (
            lambda: onnx_models.max_roi_pool(1, pooled_shape=[2]),
            ValueError,
            r"pooled_shape = \[2\]: must have 2 values, output_height, output_width",
        ),
        (lambda: onnx_models.max_roi_pool(22, pooled_shape=[2, 0]), ValueError, r"pooled_shape\[1\] = 0: must be >= 1"),
        (
            lambda: onnx_models.max_roi_pool(22, axes={"output_height": 2}),
            ValueError,
            "axes has 'output_height': must be one of N, C, H, W, num_rois",
        ),
        (
            lambda: onnx_models.dml_roi_align(index_type="int32"),
            ValueError,
            "index_type = 'int32': DmlRoiAlign has uint32, int64",
        ),
        (
            lambda: onnx_models.model(BY_NAME["RoiAlign_16"], index_type="uint32"),
            ValueError,
            "index_type = 'uint32': RoiAlign_16 has int64",
        ),
        (lambda: onnx_models.dml_roi_align(roi_rank=1), ValueError, "rank of ROITensor = 1: must be 2 or 3 or 4"),
        (
            lambda: onnx_models.model(BY_NAME["DmlRoiAlign"], ranks={"rois": 3}),
            ValueError,
            "ranks has 'rois': must be one of InputTensor, ROITensor, BatchIndicesTensor",
        ),
        (
            lambda: onnx_models.dml_roi_align(minimum_samples_per_output=3, maximum_samples_per_output=2),
            ValueError,
            "minimum_samples_per_output = 3: must be <= maximum_samples_per_output = 2",
        ),
        (onnx_models.dml_resample, ValueError, "scales and output_sizes are empty: at least one must have values"),
        (lambda: onnx_models.dml_resample(scales=2.0), TypeError, "scales = 2.0: FLOATS attribute, must be a list"),
        (lambda: onnx_models.dml_resample(scales=(2, 0)), ValueError, r"scales\[1\] = 0: must be finite and > 0"),
        (lambda: onnx_models.dml_resample(scales=(1,) * 5), ValueError, "scales has 5 values: must have at most 4"),
        (
            lambda: onnx_models.dml_resample(scales=(2, 2), output_sizes=(4,)),
            ValueError,
            "scales has 2, output_sizes has 1 values: must have the same number, one for each axis",
        ),
        (
            lambda: onnx_models.dml_resample(scales=(2, 2), rank=3),
            ValueError,
            "rank of InputTensor = 3: must be 2, that of scales",
        ),
        (
            lambda: onnx_models.dml_resample_grad(rank=5),
            ValueError,
            "rank of InputGradientTensor = 5: must be 1 or 2 or 3 or 4",
        ),
        (
            lambda: onnx_models.model(BY_NAME["DmlResampleGrad"], ranks={"OutputGradientTensor": 2}),
            ValueError,
            "ranks has 'OutputGradientTensor': must be one of InputGradientTensor, x_shape",
        ),
        (
            lambda: onnx_models.dml_resample(scales=(2, 2), axes={"N1": 3, "M1": 6}),
            ValueError,
            "axes has 'M1': must be one of N0, N1, M0",
        ),
        (
            lambda: onnx_models.dml_resample_grad(rank=2, axes={"rank": 2}),
            ValueError,
            "axes has 'rank': must be one of M0, M1, N0, N1",
        ),
        (
            lambda: onnx_models.model(BY_NAME["RoiAlignGrad"], standard=True),
            ValueError,
            "standard = True: ONNX has no operator that computes RoiAlignGrad",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_its_value_and_its_rule(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


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


def feeds(element_type: str) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    kind = ELEMENT_DTYPES[element_type]
    return {
        "X": rng.normal(size=(2, 3, 8, 9)).astype(kind),
        "rois": np.array([[1, 0.5, 6, 7], [2, 2, 3.25, 9]], dtype=kind),
        "batch_indices": np.array([1, 0]),
        "dY": rng.normal(size=(2, 3, 2, 3)).astype(kind),
        "x_shape": np.array([2, 3, 8, 9]),
    }


def reference(operator: str, inputs: Sequence[Array | None], **attributes: object) -> list[Array]:
    return [result for result in evaluate(BY_NAME[operator], inputs, attributes) if result is not None]


@pytest.mark.parametrize("element_type", ["float", "double"])
@pytest.mark.parametrize("opset", OPSETS)
def test_a_session_computes_the_reference(opset: int, element_type: str) -> None:
    given = {"output_height": 2, "output_width": 3, "spatial_scale": 0.75}
    operator = BY_NAME[f"RoiAlign_{opset}"]
    model = onnx_models.model(operator, element_type=element_type, attributes=given)
    inputs = {tensor.name: feeds(element_type)[tensor.name] for tensor in operator.inputs}
    (y,) = ortops.InferenceSession(model.SerializeToString()).run(None, inputs)
    (expected,) = reference(operator.name, list(inputs.values()), **given)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_a_session_of_the_joint_model_computes_the_reference() -> None:
    inputs = {name: value for name, value in feeds("double").items() if name != "x_shape"}
    model = onnx_models.roi_align_with_grad(element_type="double", output_height=2, output_width=3)
    y, dx, drois = ortops.InferenceSession(model.SerializeToString()).run(["Y", "dX", "drois"], inputs)
    x, rois, batch_indices, dy, x_shape = feeds("double").values()
    expected = reference("RoiAlign_22", [x, rois, batch_indices], output_height=2, output_width=3)
    expected += reference("RoiAlignGrad", [dy, rois, batch_indices, x_shape, x])
    for found, wanted in zip((y, dx, drois), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("output", "index"), [("dx", 0), ("drois", 1)])
def test_a_session_runs_a_gradient_with_one_output(output: str, index: int) -> None:
    session = ortops.InferenceSession(onnx_models.roi_align_grad(outputs=(output,)).SerializeToString())
    given = feeds("float")
    (found,) = session.run(None, {i.name: given[i.name] for i in session.get_inputs()})
    both = reference("RoiAlignGrad", [given[name] for name in ("dY", "rois", "batch_indices", "x_shape", "X")])
    np.testing.assert_allclose(found, both[index], rtol=1e-4, atol=1e-4)


DML_NAMES = {"InputTensor": "X", "ROITensor": "rois", "BatchIndicesTensor": "batch_indices", "x_shape": "x_shape"}


def dml_feeds(operator: str, index_type: str, lead: int) -> dict[str, Array]:
    """By name, in the operator's order; regions and indices have `lead` axes of length 1 more."""
    found = {}
    for tensor in BY_NAME[operator].inputs:
        array = feeds("float")[DML_NAMES.get(tensor.name, "dY")]
        if tensor.max_leading_ones:
            array = array.reshape((1,) * lead + array.shape)
        found[tensor.name] = array.astype(index_type) if tensor.type == "I" else array
    return found


@pytest.mark.parametrize(("index_type", "lead"), [("uint32", 0), ("int64", 1), ("uint32", 2)])
def test_a_session_of_directml_models_computes_the_reference(index_type: str, lead: int) -> None:
    given: dict[str, Any] = {"spatial_scale_y": 0.75, "output_pixel_offset": -0.25, "maximum_samples_per_output": 2}
    ranks: dict[str, Any] = {"roi_rank": 2 + lead, "batch_indices_rank": 1 + lead}
    sizes: dict[str, Any] = {"output_height": 2, "output_width": 3}
    models = {
        "DmlRoiAlign": (onnx_models.dml_roi_align(index_type=index_type, **ranks, **given, **sizes), given | sizes),
        "DmlRoiAlignGrad": (onnx_models.dml_roi_align_grad(index_type=index_type, **ranks, **given), given),
    }
    for name, (model, written) in models.items():
        inputs = dml_feeds(name, index_type, lead)
        found = ortops.InferenceSession(model.SerializeToString()).run(None, inputs)
        expected = reference(name, list(inputs.values()), **written)
        for value, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-4)


def test_a_session_opens_every_model_of_the_operators() -> None:
    for name, kind, model in collection():
        if not name.startswith("standard"):
            session = ortops.InferenceSession(model.SerializeToString())
            assert len(session.get_outputs()) == len(model.graph.output), (name, kind)
