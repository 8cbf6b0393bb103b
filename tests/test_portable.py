"""Bodies in standard operators: what they compute, where they are taken, and which models can have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest

import onnx_models
import ortops
from onnx_models.portable import attach
from ortops.operators import BY_NAME
from ortops.reference import evaluate
from ortops.spec import DOMAIN
from portable_checks import ALL_OPSETS, TYPES, check, expected, run, session, with_opset
from problems import Array, Problem, make_problem

RNG = np.random.default_rng(7)
KINDS = ("inside", "across", "mirrored", "flat", "point", "outside", "huge")


def problem(kind: str = "float", kinds: tuple[str, ...] = KINDS, **attributes: Any) -> Problem:
    values = {
        "output_height": 2,
        "output_width": 3,
        "sampling_ratio": 0,
        "spatial_scale": 0.5,
        "mode": "avg",
        "coordinate_transformation_mode": "half_pixel",
    }
    return make_problem(3, np.dtype(TYPES[kind]), values | attributes, kinds, (2, 3, 7, 6))


def onnx_feeds(of: Problem) -> dict[str, Array]:
    return {
        "X": of.x,
        "rois": of.rois,
        "batch_indices": of.batch_indices,
        "dY": of.dy,
        "x_shape": np.array(of.x.shape),
    }


def dml_feeds(of: Problem) -> dict[str, Array]:
    return {
        "InputTensor": of.x,
        "ROITensor": of.rois,
        "BatchIndicesTensor": of.batch_indices,
        "InputGradientTensor": of.dy,
        "x_shape": np.array(of.x.shape),
    }


COORDINATES = ("half_pixel", "output_half_pixel")
MODES = ("avg", "max", "max_interpolated")


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align_is_that_of_the_reference(mode: str, coordinates: str, kind: str, ratio: int) -> None:
    of = problem(kind, mode=mode, coordinate_transformation_mode=coordinates, sampling_ratio=ratio)
    check(onnx_models.roi_align(16, element_type=kind, **of.attributes), onnx_feeds(of))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("outputs", "ratio"), [(("dx",), 0), (("drois",), 2), (("dx", "drois"), 0)])
def test_roi_align_grad_is_that_of_the_reference(mode: str, kind: str, outputs: tuple[str, ...], ratio: int) -> None:
    coordinates = COORDINATES[ratio // 2]
    of = problem(kind, mode=mode, sampling_ratio=ratio, coordinate_transformation_mode=coordinates)
    check(onnx_models.roi_align_grad(element_type=kind, outputs=outputs, **of.gradient_attributes), onnx_feeds(of))


def dml_attributes(reduction: str, interpolation: str, corners: int) -> dict[str, Any]:
    return {
        "reduction_function": reduction,
        "interpolation_mode": interpolation,
        "align_regions_to_corners": corners,
        "spatial_scale_x": 0.5,
        "spatial_scale_y": 0.7,
        "input_pixel_offset": 0.25,
        "output_pixel_offset": -0.3,
        "minimum_samples_per_output": 2,
        "maximum_samples_per_output": 2**32 - 1 if corners else 3,
    }


DML = pytest.mark.parametrize("corners", [0, 1])
REDUCTION = pytest.mark.parametrize("reduction", ["average", "max"])
INTERPOLATION = pytest.mark.parametrize("interpolation", ["linear", "nearest_neighbor"])


@DML
@REDUCTION
@INTERPOLATION
def test_dml_roi_align_is_that_of_the_reference(reduction: str, interpolation: str, corners: int) -> None:
    of = problem(spatial_scale=0.6)
    attributes = dml_attributes(reduction, interpolation, corners)
    sizes: dict[str, Any] = {"output_height": 2, "output_width": 3, "out_of_bounds_input_value": 0.75}
    check(onnx_models.dml_roi_align(**attributes, **sizes), dml_feeds(of))


@DML
@REDUCTION
@INTERPOLATION
def test_dml_roi_align_grad_is_that_of_the_reference(reduction: str, interpolation: str, corners: int) -> None:
    of = problem("double", spatial_scale=0.6)
    attributes = dml_attributes(reduction, interpolation, corners)
    check(onnx_models.dml_roi_align_grad(element_type="double", **attributes), dml_feeds(of))


def test_dml_tensors_may_have_leading_axes_and_indices_of_uint32() -> None:
    of = problem()
    feeds = dml_feeds(of)
    feeds["ROITensor"] = of.rois[None, None]
    feeds["BatchIndicesTensor"] = of.batch_indices.astype(np.uint32)[None]
    ranks: dict[str, Any] = {"index_type": "uint32", "roi_rank": 4, "batch_indices_rank": 2}
    check(onnx_models.dml_roi_align(**ranks, output_height=2, output_width=3), feeds)
    check(onnx_models.dml_roi_align_grad(**ranks), feeds)


RESAMPLINGS: dict[str, dict[str, Any]] = {
    "both": {"scales": (1.0, 1.5, 2.0), "output_sizes": (2, 5, 9)},
    "scales": {
        "scales": (0.5, 1.0, 1.7),
        "input_pixel_offsets": (0.5, 0.5, 0.0),
        "output_pixel_offsets": (-0.5, -0.5, 0.0),
    },
    "sizes": {"output_sizes": (3, 2, 7)},
    "offsets": {"scales": (0.7, 2.0, 3.0), "input_pixel_offsets": (0.1, -1.0, 0.5)},
    "one axis": {"scales": (2.5,)},
    "four axes": {"scales": (1.0, 1.0, 2.0, 0.5)},
}


@pytest.mark.parametrize("name", RESAMPLINGS)
@pytest.mark.parametrize(
    ("interpolation", "rounding"),
    [("linear", "half_up"), *(("nearest_neighbor", rule) for rule in ("half_up", "increasing", "decreasing"))],
)
def test_resampling_is_that_of_the_reference(name: str, interpolation: str, rounding: str) -> None:
    attributes = {**RESAMPLINGS[name], "interpolation_mode": interpolation, "rounding_direction": rounding}
    rank = len(next(iter(RESAMPLINGS[name].values())))
    x = RNG.uniform(-1, 1, (2, 3, 5, 4)[-rank:]).astype(np.float32)
    forward = onnx_models.dml_resample(**attributes)
    check(forward, {"InputTensor": x})
    (y,) = run(session(attach(forward)), {"InputTensor": x})
    shared = {name: value for name, value in attributes.items() if name != "output_sizes"}
    backward = onnx_models.dml_resample_grad(rank=rank, **shared)
    check(backward, {"InputGradientTensor": y, "x_shape": np.array(x.shape)})


@pytest.mark.parametrize("opset", ALL_OPSETS)
def test_every_opset_from_18_on_has_bodies(opset: int) -> None:
    of = problem(mode="max")
    check(with_opset(onnx_models.roi_align(16, **of.attributes), opset), onnx_feeds(of))
    check(with_opset(onnx_models.roi_align_grad(**of.gradient_attributes), opset), onnx_feeds(of))
    of = problem()
    check(with_opset(onnx_models.roi_align(10, output_height=2, output_width=3), opset), onnx_feeds(of))
    check(with_opset(onnx_models.dml_roi_align_grad(), opset), dml_feeds(of))
    scaled = {"InputGradientTensor": of.dy, "x_shape": np.array([3, 3, 4, 4])}
    check(with_opset(onnx_models.dml_resample_grad(), opset), scaled)


def test_a_model_of_an_older_opset_is_converted() -> None:
    model = with_opset(onnx_models.roi_align(16), 17)
    assert attach(model) == attach(with_opset(model, 18))
    with pytest.raises(ValueError, match="opset 6 cannot be converted to 18: must be 7 or later"):
        attach(with_opset(model, 6))


@pytest.mark.parametrize("mode", MODES)
def test_no_rois_give_no_outputs_and_no_gradient(mode: str) -> None:
    of = problem(kinds=(), mode=mode)
    check(onnx_models.roi_align(22, **of.attributes), onnx_feeds(of))
    check(onnx_models.roi_align_grad(**of.gradient_attributes), onnx_feeds(of))


@pytest.mark.parametrize("mode", MODES)
def test_a_map_may_have_no_channels(mode: str) -> None:
    of = problem(mode=mode)
    feeds = onnx_feeds(of) | {"X": of.x[:, :0], "dY": of.dy[:, :0], "x_shape": np.array([2, 0, 7, 6])}
    check(onnx_models.roi_align(22, **of.attributes), feeds)
    check(onnx_models.roi_align_grad(**of.gradient_attributes), feeds)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_one_file_gives_the_same_numbers_with_and_without_kernels(mode: str) -> None:
    of = problem(mode=mode)
    model = attach(onnx_models.roi_align_with_grad(**of.attributes))
    kernels = ortops.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for body, kernel in zip(run(session(model), onnx_feeds(of)), run(kernels, onnx_feeds(of)), strict=True):
        np.testing.assert_allclose(body, kernel, rtol=1e-4, atol=1e-4)


def test_the_kernel_is_taken_where_it_is_registered() -> None:
    of = problem()
    attributes = of.attributes
    model = attach(onnx_models.roi_align(16, **attributes))
    feeds = onnx_feeds(of) | {"batch_indices": np.array([0, 1, 0, 1, 0, 1, 2])}
    kernels = ortops.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    # Only the kernel says what is wrong.
    with pytest.raises(Exception, match=r"batch_indices\[6\] = 2: must be >= 0 and < 2"):
        run(kernels, feeds)
    with pytest.raises(Exception, match="must be within the inclusive range"):
        run(session(model), feeds)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_indices", np.array([0, 0, 0, 0, 0, 0, -1])),
        ("batch_indices", np.zeros(8, np.int64)),
        ("rois", np.full((7, 4), np.nan, np.float32)),
        ("rois", np.full((7, 4), np.inf, np.float32)),
        ("rois", np.zeros((7, 5), np.float32)),
        ("x_shape", np.array([2, 3, 7, 7])),
        ("x_shape", np.array([2, 4, 7, 6])),
    ],
)
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_wrong_data_is_refused(mode: str, name: str, value: Array) -> None:
    of = problem(mode=mode)
    model = onnx_models.roi_align_grad(**of.gradient_attributes)
    for declared in model.graph.input:
        declared.type.tensor_type.ClearField("shape")
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        run(session(attach(model)), onnx_feeds(of) | {name: value})


def test_a_huge_roi_needs_no_more_memory_than_the_map() -> None:
    of = problem(mode="max_interpolated")
    feeds = onnx_feeds(of) | {"rois": np.array([[-1e9, -1e9, 1e9, 1e9]] * 7, np.float32)}
    for mode in MODES:
        attributes = of.attributes | {"mode": mode, "output_height": 1, "output_width": 1}
        check(onnx_models.roi_align(16, **attributes), feeds)


def two_levels(kind: int = onnx.TensorProto.FLOAT) -> onnx.ModelProto:
    """Two RoiAlign_16 of different scale and their sum, no defaults written; X is cast, so that its type is inferred."""
    make = onnx.helper.make_node
    nodes = [
        make("Cast", ["X0"], ["X"], to=kind),
        make("Cast", ["rois0"], ["rois"], to=kind),
        make("RoiAlign_16", ["X", "rois", "batch_indices"], ["A"], domain=DOMAIN, spatial_scale=0.5),
        make("RoiAlign_16", ["X", "rois", "batch_indices"], ["B"], domain=DOMAIN, spatial_scale=0.25),
        make("Add", ["A", "B"], ["Y"]),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "two levels",
        [value("X0", 1, None), value("rois0", 1, None), value("batch_indices", onnx.TensorProto.INT64, None)],
        [value("Y", kind, None)],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=8)


def sum_of_levels(*inputs: Array) -> Array:
    found = [evaluate(BY_NAME["RoiAlign_16"], inputs, {"spatial_scale": scale})[0] for scale in (0.5, 0.25)]
    total: Array = np.sum(np.array(found), axis=0)
    return total


def test_nodes_that_differ_in_numbers_share_a_body_and_have_all_attributes() -> None:
    model = two_levels()
    made = attach(model)
    assert model.functions == []
    assert [function.name for function in made.functions] == ["RoiAlign_16"]
    ours = [node for node in made.graph.node if node.domain == DOMAIN]
    assert all(len(node.attribute) == len(BY_NAME["RoiAlign_16"].attributes) for node in ours)
    assert {entry.domain: entry.version for entry in made.opset_import} == {"": 20, DOMAIN: 1}
    of = problem()
    feeds = {"X0": of.x, "rois0": of.rois, "batch_indices": of.batch_indices}
    (y,) = run(session(made), feeds)
    inputs = (of.x, of.rois, of.batch_indices)
    right = sum_of_levels(*inputs)
    np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-5)
    kernels = ortops.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(run(kernels, feeds)[0], y, rtol=1e-4, atol=1e-5)


def test_attaching_twice_changes_nothing() -> None:
    made = attach(two_levels())
    assert attach(made) == made


def test_an_inferred_type_of_double_is_computed_in_double() -> None:
    of = problem("double")
    (y,) = run(session(attach(two_levels(onnx.TensorProto.DOUBLE))), {
        "X0": of.x.astype(np.float32), "rois0": of.rois.astype(np.float32), "batch_indices": of.batch_indices
    })  # fmt: skip
    inputs = (of.x, of.rois.astype(np.float32).astype(np.float64), of.batch_indices)
    right = sum_of_levels(*inputs)
    np.testing.assert_allclose(y, right, rtol=0, atol=1e-12)


def in_a_branch() -> onnx.ModelProto:
    """RoiAlign_16 in both branches of an If, one of them through a function."""
    make, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    inner = make("RoiAlign_16", ["X", "rois", "batch_indices"], ["Y"], domain=DOMAIN)
    function = onnx.helper.make_function(
        "own", "Pool", ["X", "rois", "batch_indices"], ["Y"], [inner], [onnx.helper.make_opsetid("", 20)]
    )
    then = onnx.helper.make_graph(
        [make("RoiAlign_16", ["X", "rois", "batch_indices"], ["Y1"], domain=DOMAIN, sampling_ratio=3)],
        "then", [], [value("Y1", 1, None)],
    )  # fmt: skip
    other = onnx.helper.make_graph(
        [make("Pool", ["X", "rois", "batch_indices"], ["Y2"], domain="own")], "else", [], [value("Y2", 1, None)]
    )
    graph = onnx.helper.make_graph(
        [make("If", ["flag"], ["Y"], then_branch=then, else_branch=other)],
        "branches",
        [value("flag", 9, []), value("X", 1, [2, 3, 7, 6]), value("rois", 1, [7, 4]), value("batch_indices", 7, [7])],
        [value("Y", 1, [7, 3, 1, 1])],
    )
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("own", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)


def test_nodes_in_branches_and_functions_have_bodies_too() -> None:
    made = attach(in_a_branch())
    onnx.checker.check_model(made, full_check=True)
    of = problem()
    for flag, ratio in ((True, 3), (False, 0)):
        feeds = {"flag": np.array(flag), "X": of.x, "rois": of.rois, "batch_indices": of.batch_indices}
        (y,) = run(session(made), feeds)
        right = evaluate(BY_NAME["RoiAlign_16"], (of.x, of.rois, of.batch_indices), {"sampling_ratio": ratio})[0]
        assert right is not None
        np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["numbers", "lists"])
def test_numbers_that_differ_are_read_from_the_node(name: str) -> None:
    of = problem()
    if name == "numbers":
        operator, feeds = BY_NAME["DmlRoiAlign"], dml_feeds(of)
        given: list[dict[str, Any]] = [
            dml_attributes("max", "linear", corners)
            | {"output_height": 2 + corners, "output_width": 3, "out_of_bounds_input_value": corners / 2}
            | ({"spatial_scale_x": 0.3, "output_pixel_offset": 0.0} if corners else {})
            for corners in (0, 1)
        ]
        feeds = {tensor.name: feeds[tensor.name] for tensor in operator.inputs}
    else:
        operator, feeds = BY_NAME["DmlResample"], {"InputTensor": of.x}
        given = [{"scales": scales, "input_pixel_offsets": (0.5,) * 4} for scales in ((1, 1, 2, 2), (1, 2, 0.7, 1.5))]
    nodes = [
        onnx.helper.make_node(operator.name, list(feeds), [f"Y{i}"], domain=DOMAIN, **attributes)
        for i, attributes in enumerate(given)
    ]
    value = onnx.helper.make_tensor_value_info
    kinds = {name: onnx.helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feeds.items()}
    graph = onnx.helper.make_graph(
        nodes,
        name,
        [value(name, kind, None) for name, kind in kinds.items()],
        [value(f"Y{i}", 1, None) for i in range(2)],
    )
    # An integer in a list of floats would make it one of integers.
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.INTS:
                attribute.CopyFrom(onnx.helper.make_attribute(attribute.name, [float(one) for one in attribute.ints]))
    model = attach(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10))
    for got, attributes in zip(run(session(model), feeds), given, strict=True):
        (right,) = evaluate(operator, list(feeds.values()), attributes)
        assert right is not None
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)


def test_nodes_that_differ_in_a_string_or_in_inputs_are_refused() -> None:
    model = two_levels()
    model.graph.node[2].attribute.append(onnx.helper.make_attribute("mode", "max"))
    with pytest.raises(ValueError, match="mode = avg and max: must be the same for all nodes"):
        attach(model)
    model = onnx_models.roi_align_with_grad()
    gradient = model.graph.node[2]
    other = onnx.NodeProto()
    other.CopyFrom(gradient)
    del other.input[4:]
    other.output[:] = ["dX2", ""]
    model.graph.node.append(other)
    with pytest.raises(
        ValueError, match=r"inputs dY, rois, batch_indices, x_shape and dY, rois, .*, X: must be the same"
    ):
        attach(model)


def test_a_model_without_these_operators_is_left_as_it_is() -> None:
    model = onnx_models.roi_align(16, standard=True)
    assert attach(model) == model


def test_what_attributes_and_inputs_lack_is_said() -> None:
    model = two_levels()
    model.graph.node[2].attribute.append(onnx.helper.make_attribute("mode", "median"))
    with pytest.raises(ValueError, match="mode = 'median': must be one of"):
        attach(model)
    model = onnx_models.roi_align_grad(mode="max")
    del model.graph.node[0].input[4:]
    with pytest.raises(ValueError, match="X is missing: RoiAlignGrad needs it for mode = 'max'"):
        attach(model)
    model = onnx_models.roi_align(16)
    for count in (0, 1, 2):
        del model.graph.node[0].input[count:]
        model.graph.node[0].input.extend(["", "X"][: count and 1])
        with pytest.raises(ValueError, match=r"\(RoiAlign_16\): .*(has input size|is marked single)"):
            attach(model)
    model = two_levels(onnx.TensorProto.INT64)
    with pytest.raises(ValueError, match=r"RoiAlign_16.*: X has element type int64: must be float16 or"):
        attach(model)
    model = in_a_branch()
    reference_to = onnx.AttributeProto(name="mode", ref_attr_name="way", type=onnx.AttributeProto.STRING)
    model.functions[0].node[0].attribute.append(reference_to)
    model.functions[0].attribute.append("way")
    with pytest.raises(ValueError, match=r"\(RoiAlign_16\): mode refers to way of the function around it"):
        attach(model)


def test_a_body_runs_in_onnx_reference_evaluator() -> None:
    of = problem("float", ("inside", "across"))
    for mode in ("avg", "max"):
        model = attach(onnx_models.roi_align_grad(outputs=("dx",), mode=mode, spatial_scale=0.5))
        (dx,) = onnx.reference.ReferenceEvaluator(model).run(
            None, {value.name: onnx_feeds(of)[value.name] for value in model.graph.input}
        )
        (right,) = expected(BY_NAME["RoiAlignGrad"], onnx_feeds(of), {"mode": mode, "spatial_scale": 0.5}, ["dX"])
        np.testing.assert_allclose(np.asarray(dx), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "build",
    [
        lambda **options: onnx_models.roi_align(16, **options),
        onnx_models.roi_align_grad,
        onnx_models.roi_align_with_grad,
        onnx_models.dml_roi_align,
        onnx_models.dml_roi_align_grad,
        lambda **options: onnx_models.dml_resample(scales=[1.0, 2.0], **options),
        onnx_models.dml_resample_grad,
        lambda **options: onnx_models.resize_grad(
            onnx.helper.make_node("Resize", ["x", "", "s"], ["y"]), [3, 4], scales=[2.0, 1.0], **options
        ),
    ],
)
def test_builders_attach_bodies(build: Callable[..., onnx.ModelProto]) -> None:
    made = build(portable=True)
    assert made == attach(build())
    onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
