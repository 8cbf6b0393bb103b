# SPDX-License-Identifier: MIT
"""Standard operators in place of nodes, in bodies or without functions: what they compute, and for which models."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from onnx_models.portable import attach, lower
from ortops.operators import BY_NAME, OPERATORS
from ortops.reference import evaluate
from ortops.spec import DOMAIN, Operator
from problems import Array
from samples import Refusal, Sample, edges, every, open_ranks, refusals, right, samples

# One rounding to the type, and sums in float.
TOLERANCES = {np.float16: 8e-3, np.float32: 2e-5, np.float64: 1e-11}
OPSETS = (18, 20, 22)


@functools.cache
def session(model: bytes) -> onnxruntime.InferenceSession:
    """A session without this project's kernels."""
    return onnxruntime.InferenceSession(model, options(), providers=[CPU])


@functools.cache
def check_body(model: bytes) -> None:
    onnx.checker.check_model(model, full_check=True)


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """Run, and do not log what a node refuses before it raises."""
    quiet = onnxruntime.RunOptions()
    quiet.log_severity_level = 4
    outputs: list[Array] = session(model.SerializeToString(deterministic=True)).run(None, feeds, quiet)
    return outputs


def expected(sample: Sample) -> list[Array]:
    return [value for value in evaluate(sample.operator, sample.arrays, sample.attributes) if value is not None]


def assert_close(got: Sequence[Array], wanted: Sequence[Array], dtype: np.dtype[Any]) -> None:
    for found, exact in zip(got, wanted, strict=True):
        assert (found.dtype, found.shape) == (dtype, exact.shape)
        scale = max(1.0, float(np.abs(exact).max(initial=0)))
        np.testing.assert_allclose(found, exact, rtol=0, atol=TOLERANCES[dtype.type] * scale)


def check(sample: Sample, model: onnx.ModelProto | None = None) -> None:
    """The body agrees with the reference, and ONNX's checker with the body."""
    made = attach(model or sample.model())
    check_body(made.SerializeToString(deterministic=True))
    assert_close(run(made, dict(sample.inputs)), expected(sample), next(iter(sample.inputs.values())).dtype)


def check_lowered(sample: Sample, model: onnx.ModelProto | None = None) -> onnx.ModelProto:
    """The lowered model has standard nodes alone, and as `check`."""
    made = lower(model or sample.model())
    onnx.checker.check_model(made, full_check=True)
    assert not made.functions
    assert {item.domain for item in made.opset_import} == {node.domain for node in made.graph.node} == {""}
    assert not {"Loop", "Scan", "If"} & {node.op_type for node in made.graph.node}
    assert_close(run(made, dict(sample.inputs)), expected(sample), next(iter(sample.inputs.values())).dtype)
    return made


def with_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    for entry in model.opset_import:
        if not entry.domain:
            entry.version = opset
    return model


NEWEST = {operator.function: operator.name for operator in OPERATORS}.values()
"""Operators that differ in their types alone have the same bodies."""


def calls(operator: Operator) -> list[Sample]:
    """Ordinary calls in float and one in other types, and edges but for pixels that are no numbers, which spread."""
    if operator.name not in NEWEST:
        return []
    others = [samples(operator, kind)[0] for kind in ("float16", "double")]
    return [*samples(operator), *others, *(sample for sample in edges(operator) if "NaN" not in sample.name)]


@pytest.mark.parametrize("way", [check, check_lowered])
@pytest.mark.parametrize(**every(calls))
def test_standard_operators_compute_the_reference(way: Callable[[Sample], object], sample: Sample) -> None:
    way(sample)


@pytest.mark.parametrize("name", ["RoiAlign_22", "DmlRoiAlign", "RoIAlignRotated", "MaxRoiPool_22"])
def test_rows_of_bins_are_pooled_in_parts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for pixels in (1, 500):  # a row for each part, or several of which the last part has fewer
        monkeypatch.setattr("onnx_models.portable.samples.MAX_PIXELS", pixels)
        for operator in (BY_NAME[name], BY_NAME[BY_NAME[name].gradient or ""]):
            for sample in samples(operator):
                check(sample)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda one: one.name)
def test_every_opset_from_18_on_has_bodies_and_keeps_its_version(operator: Operator) -> None:
    sample = samples(operator)[1]
    check(sample, with_opset(sample.model(), OPSETS[0]))
    for opset in OPSETS[1:]:
        for way in (attach, lower):
            made = way(with_opset(sample.model(), opset))
            onnx.checker.check_model(made, full_check=True)
            assert made.opset_import[0].version == opset


def test_a_model_of_an_older_opset_is_converted() -> None:
    model = with_opset(onnx_models.roi_align(16), 17)
    assert attach(model) == attach(with_opset(model, 18))
    with pytest.raises(ValueError, match="opset 6 cannot be converted to 18: must be 7 or later"):
        attach(with_opset(model, 6))


@pytest.mark.parametrize("operator", [one for one in OPERATORS if len(one.outputs) == 2], ids=lambda one: one.name)
@pytest.mark.parametrize("output", [0, 1])
def test_either_gradient_is_computed_alone(operator: Operator, output: int) -> None:
    of = [*samples(operator)[:2]]
    if operator.name == "DmlRoiAlignGrad":
        nearest = {"reduction_function": "max", "interpolation_mode": "nearest_neighbor"}
        of.append(Sample(operator, "nearest", of[0].inputs, nearest))
    for sample in of:
        made = attach(sample.model(outputs=[operator.outputs[output].name]))
        assert_close(run(made, dict(sample.inputs)), [expected(sample)[output]], np.dtype(np.float32))


HUGE = {
    "RoiAlign_16": [[-1e9, -1e9, 1e9, 1e9]],
    "RoIAlignRotated": [[6, 6, size, size, 0.3] for size in (1e9, 1e18, 1.7e308)] + [[1e18, 6, 1e15, 2, 1.1]],
    "MaxRoiPool_1": [[0, -1e308, -1e308, 1e308, 1e308], [1, -1e9, 2, 1e9, 2], [1, 1e300, 2, -1e300, 3]],
}


@pytest.mark.parametrize("name", HUGE)
def test_a_huge_roi_needs_no_more_memory_than_the_map(name: str) -> None:
    rois, forward = np.array(HUGE[name], np.float64), BY_NAME[name]
    for operator in (forward, BY_NAME[forward.gradient or ""]):
        for sample in samples(operator, "double")[: 1 if name == "MaxRoiPool_1" else 3]:
            changed = {"rois": rois, "batch_indices": np.zeros(len(rois), np.int64)}
            if operator.is_gradient:
                changed["dY"] = np.ones((len(rois), *sample.inputs["dY"].shape[1:]))
            inputs = {key: changed.get(key, array) for key, array in sample.inputs.items()}
            check(Sample(operator, "huge", inputs, sample.attributes))


def wrong_data(operator: Operator) -> list[Refusal]:
    return [refusal for refusal in refusals(operator) if refusal.by == "data" and operator.name in NEWEST]


@pytest.mark.parametrize(**every(wrong_data))
def test_wrong_data_is_refused(sample: Refusal) -> None:
    absent = [tensor.name for tensor in sample.operator.inputs if tensor.name not in sample.inputs]
    with pytest.raises(Exception, match=r"ONNXRuntimeError|is missing: .* needs it"):
        run(attach(open_ranks(right(sample).model(omit=absent))), dict(sample.inputs))


@pytest.mark.parametrize(("index_type", "lead"), [("uint32", 0), ("int64", 1), ("uint32", 2)])
def test_tensors_of_directml_may_have_leading_axes_and_indices_of_uint32(index_type: str, lead: int) -> None:
    for operator in (BY_NAME["DmlRoiAlign"], BY_NAME["DmlRoiAlignGrad"]):
        of = samples(operator)[0]
        inputs = dict(of.inputs)
        inputs["ROITensor"] = inputs["ROITensor"].reshape((1,) * lead + inputs["ROITensor"].shape)
        indices = inputs["BatchIndicesTensor"]
        inputs["BatchIndicesTensor"] = indices.reshape((1,) * lead + indices.shape).astype(index_type)
        ranks = {"ROITensor": 2 + lead, "BatchIndicesTensor": 1 + lead}
        sample = Sample(operator, "leading axes", inputs, of.attributes)
        check(sample, of.model(index_type=index_type, ranks=ranks))


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 5, 4)])
def test_resampling_works_in_every_rank(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(7).uniform(-1, 1, shape).astype(np.float32)
    for given in ({"scales": (0.5, 1.7, 2.0)[: x.ndim]}, {"output_sizes": (3, 2, 7)[: x.ndim]}):
        forward = Sample(BY_NAME["DmlResample"], "", {"InputTensor": x}, given)
        check(forward)
        shared = {name: values for name, values in given.items() if name == "scales"}
        inputs = {"InputGradientTensor": expected(forward)[0].astype(np.float32), "x_shape": np.array(x.shape)}
        check(Sample(BY_NAME["DmlResampleGrad"], "", inputs, shared))


def test_the_kernel_is_taken_where_it_is_registered() -> None:
    sample = samples(BY_NAME["RoiAlignGrad"])[1]
    made = attach(sample.model())
    kernels = ortops.InferenceSession(made.SerializeToString(), options(), providers=[CPU])
    assert_close(kernels.run(None, dict(sample.inputs)), expected(sample), np.dtype(np.float32))
    wrong = {**sample.inputs, "batch_indices": sample.inputs["batch_indices"] + 2}
    # Only the kernel says what is wrong.
    with pytest.raises(Exception, match=r"batch_indices\[0\] = \d: must be >= 0 and < 2"):
        kernels.run(None, wrong)
    with pytest.raises(Exception, match="must be within the inclusive range"):
        run(made, wrong)


TWO_LEVELS = """<ir_version: 8, opset_import: ["": 20, "ai.onnx.contrib": 1]>
    g (float[N, C, H, W] X0, float[R, 4] rois0, int64[R] batch_indices) => (KIND[R, C, P, Q] A, KIND[R, C, P, Q] B) {
        X = Cast <to = NUMBER> (X0)
        rois = Cast <to = NUMBER> (rois0)
        A = ai.onnx.contrib.RoiAlign_16 <spatial_scale = 0.5> (X, rois, batch_indices)
        B = ai.onnx.contrib.RoiAlign_16 <spatial_scale = 0.25> (X, rois, batch_indices)
    }"""
"""Nodes of different scale without the defaults; X is cast, so that its type is inferred."""


def two_levels(kind: str = "float") -> onnx.ModelProto:
    number = onnx.TensorProto.DataType.Value(kind.upper())
    model = onnx.parser.parse_model(TWO_LEVELS.replace("KIND", kind).replace("NUMBER", str(number)))
    del model.opset_import[1:]
    return model


@pytest.mark.parametrize(("kind", "dtype"), [("float", np.float32), ("double", np.float64)])
def test_nodes_that_differ_in_numbers_share_a_body_in_the_inferred_type(kind: str, dtype: type) -> None:
    made = attach(two_levels(kind))
    assert [function.name for function in made.functions] == ["RoiAlign_16"]
    nodes = [node for node in made.graph.node if node.domain == DOMAIN]
    assert all(len(node.attribute) == len(BY_NAME["RoiAlign_16"].attributes) for node in nodes)
    assert {entry.domain: entry.version for entry in made.opset_import} == {"": 20, DOMAIN: 1}
    assert attach(made) == made
    sample = samples(BY_NAME["RoiAlign_16"])[0]
    x, rois, of = sample.inputs.values()
    scales = [{"spatial_scale": scale} for scale in (0.5, 0.25)]
    wanted = [value for given in scales for value in expected(Sample(sample.operator, "", sample.inputs, given))]
    assert_close(run(made, {"X0": x, "rois0": rois, "batch_indices": of}), wanted, np.dtype(dtype))


DIFFERING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "DmlRoiAlign": (
        {"output_height": 2, "maximum_samples_per_output": 3},
        {"output_width": 3, "spatial_scale_x": 0.3, "output_pixel_offset": 0.0, "align_regions_to_corners": 1},
    ),
    "DmlResample": (
        {"scales": (1.0, 1.0, 2.0, 2.0), "input_pixel_offsets": (0.5,) * 4},
        {"scales": (1.0, 2.0, 0.7, 1.5), "input_pixel_offsets": (0.25,) * 4},
    ),
    "MaxRoiPool_22": ({"pooled_shape": (3, 2), "spatial_scale": 0.5}, {"pooled_shape": (1, 4), "spatial_scale": 1.5}),
    "RoIAlignRotated": ({"output_width": 3}, {"sampling_ratio": 2, "aligned": 0, "clockwise": 1}),
}


@pytest.mark.parametrize("name", DIFFERING)
def test_numbers_that_differ_are_read_from_the_node(name: str) -> None:
    sample = samples(BY_NAME[name])[0]
    both = [Sample(sample.operator, "", sample.inputs, given) for given in DIFFERING[name]]
    model, other = (each.model() for each in both)
    other.graph.node[0].name = other.graph.node[0].output[0] = other.graph.output[0].name = "other"
    model.graph.node.append(other.graph.node[0])
    model.graph.output.append(other.graph.output[0])
    made = attach(open_ranks(model))
    assert len(made.functions) == 1
    wanted = [value for each in both for value in expected(each)]
    assert_close(run(made, dict(sample.inputs)), wanted, np.dtype(np.float32))


BRANCHES = """<ir_version: 10, opset_import: ["": 20, "own": 1, "ai.onnx.contrib": 1]>
    g (bool flag, float[2, 3, 7, 9] X, float[R, 4] rois, int64[R] batch_indices) => (float[R, 3, 1, 1] Y) {
        Y = If (flag) <
            then_branch = t () => (A) { A = ai.onnx.contrib.RoiAlign_16 <sampling_ratio = 3> (X, rois, batch_indices) },
            else_branch = e () => (B) { B = own.Pool (X, rois, batch_indices) }
        >
    }
    <domain: "own", opset_import: ["": 20]> Pool (X, rois, batch_indices) => (Y)
    { Y = ai.onnx.contrib.RoiAlign_16 (X, rois, batch_indices) }"""


def test_nodes_in_branches_and_functions_have_bodies_too() -> None:
    made = attach(onnx.parser.parse_model(BRANCHES))
    check_body(made.SerializeToString())
    sample = samples(BY_NAME["RoiAlign_16"])[0]
    for flag, ratio in ((True, 3), (False, 0)):
        wanted = expected(Sample(sample.operator, "", sample.inputs, {"sampling_ratio": ratio}))
        assert_close(run(made, {**sample.inputs, "flag": np.array(flag)}), wanted, np.dtype(np.float32))


def differing(text: str) -> onnx.ModelProto:
    model = two_levels()
    model.graph.node[2].attribute.append(onnx.helper.make_attribute("mode", text))
    return model


def with_another_gradient() -> onnx.ModelProto:
    model = onnx_models.roi_align_grad()
    other = model.graph.node.add()
    other.CopyFrom(model.graph.node[0])
    del other.input[4:]
    other.output[:] = ["dX2", ""]
    return model


def without_map() -> onnx.ModelProto:
    model = onnx_models.roi_align_grad(mode="max")
    del model.graph.node[0].input[4:]
    return model


def with_inputs(*names: str) -> onnx.ModelProto:
    model = onnx_models.roi_align(16)
    model.graph.node[0].input[:] = names
    return model


def with_reference() -> onnx.ModelProto:
    model = onnx.parser.parse_model(BRANCHES)
    reference_to = onnx.AttributeProto(name="mode", ref_attr_name="way", type=onnx.AttributeProto.STRING)
    model.functions[0].node[0].attribute.append(reference_to)
    model.functions[0].attribute.append("way")
    return model


BY_SCHEMA = r"\(RoiAlign_16\): .*(has input size|is marked single)"
BODIES, BOTH = (attach,), (attach, lower)
REFUSED = [
    (BODIES, differing("max"), "mode = avg and max: must be the same for all nodes"),
    (BOTH, differing("median"), "mode = 'median': "),
    (BOTH, two_levels("int64"), r"RoiAlign_16.*: X has element type int64: must be float16 or"),
    (BODIES, with_another_gradient(), r"inputs dY, rois, batch_indices, x_shape and dY, rois, .*, X: must be the same"),
    (BOTH, without_map(), "X is missing: RoiAlignGrad needs it for mode = 'max'"),
    (BOTH, with_inputs(), BY_SCHEMA),
    (BOTH, with_inputs(""), BY_SCHEMA),
    (BODIES, with_inputs("", "X"), BY_SCHEMA),
    (BODIES, with_reference(), r"\(RoiAlign_16\): mode refers to way of the function around it"),
]
"""What bodies refuse since they are functions, and what cannot be lowered either."""


@pytest.mark.parametrize(("ways", "model", "says"), REFUSED)
def test_what_a_body_lacks_or_cannot_share_is_said(
    ways: tuple[Callable[[onnx.ModelProto], onnx.ModelProto], ...], model: onnx.ModelProto, says: str
) -> None:
    for way in ways:
        with pytest.raises(ValueError, match=says):
            way(model)


@pytest.mark.parametrize("way", [attach, lower])
def test_a_model_without_these_operators_is_left_as_it_is(way: Callable[[onnx.ModelProto], onnx.ModelProto]) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n] x) => (float[n] y) { y = Relu (x) }'
    )
    assert way(model) == model


def test_nodes_of_onnx_get_the_bodies_of_converted_ones() -> None:
    model = onnx_models.roi_align(22, standard=True)
    made = attach(model)
    assert made == attach(onnx_models.convert(model))
    assert [function.name for function in made.functions] == ["RoiAlign_22"]
    assert model == onnx_models.roi_align(22, standard=True)


@pytest.mark.parametrize("name", ["RoiAlignGrad", "MaxRoiPoolGrad", "RoIAlignRotated", "RoiAlign_16", "MaxRoiPool_22"])
def test_standard_operators_run_in_onnx_reference_evaluator(name: str) -> None:
    sample = samples(BY_NAME[name])[0]
    for way in (attach, lower):
        found = onnx.reference.ReferenceEvaluator(way(sample.model())).run(None, dict(sample.inputs))
        assert_close([np.asarray(output) for output in found], expected(sample), np.dtype(np.float32))


@pytest.mark.parametrize("ratio", [1, 2, 5])
@pytest.mark.parametrize("mode", ["avg", "max", "max_interpolated"])
@pytest.mark.parametrize("name", ["RoiAlign_16", "RoiAlignGrad"])
def test_the_number_of_samples_may_be_known(name: str, mode: str, ratio: int) -> None:
    given = samples(BY_NAME[name])[0]
    attributes = {**given.attributes, "mode": mode, "sampling_ratio": ratio}
    check_lowered(Sample(given.operator, "known", given.inputs, attributes))


def test_a_dml_roi_align_may_have_a_known_number_of_samples() -> None:
    given = samples(BY_NAME["DmlRoiAlign"])[0]
    known = {"minimum_samples_per_output": 2, "maximum_samples_per_output": 2, "out_of_bounds_input_value": 3.0}
    for function in ("average", "max"):
        attributes = {**given.attributes, **known, "reduction_function": function}
        check_lowered(Sample(given.operator, "known", given.inputs, attributes))


@pytest.mark.parametrize("opset", [10, 16, 22])
def test_nodes_of_onnx_are_lowered(opset: int) -> None:
    given = samples(BY_NAME[f"RoiAlign_{opset}"])[0]
    model = onnx_models.roi_align(opset, standard=True, **given.attributes)
    assert lower(model).graph.node == check_lowered(given, onnx_models.convert(model)).graph.node


INSIDE = """<ir_version: 10, opset_import: ["" : 16, "f": 1]>
    a (bool c, float[N, C, H, W] x, float[R, 4] rois, int64[R] i) => (float[R, C, P, Q] y) {
        y = If (c) <
            then_branch = g () => (float[R, C, P, Q] t) { t = f.pool (x, rois, i) },
            else_branch = h () => (float[R, C, P, Q] e) {
                e = RoiAlign <output_height = 2, output_width = 2, mode = "max"> (x, rois, i) }
        >
    }
    <domain: "f", opset_import: ["" : 16]> pool (x, rois, i) => (y)
    { y = RoiAlign <output_height = 2, output_width = 2, sampling_ratio = 2> (x, rois, i) }"""


def test_nodes_in_functions_and_branches_are_lowered() -> None:
    model = onnx.parser.parse_model(INSIDE)
    made = lower(model)
    onnx.checker.check_model(made, full_check=True)
    assert not made.functions
    x = np.random.default_rng(0).standard_normal((1, 2, 9, 9)).astype(np.float32)
    rois = np.array([[1, 1, 7, 6], [-2, 0, 3, 9]], np.float32)
    for condition in (True, False):
        feeds = {"c": np.array(condition), "x": x, "rois": rois, "i": np.zeros(2, np.int64)}
        np.testing.assert_allclose(run(made, feeds)[0], run(model, feeds)[0], atol=1e-5)


def test_invalid_data_is_refused_by_onnx_runtime() -> None:
    sample = samples(BY_NAME["RoiAlign_16"])[0]
    indices = np.full_like(sample.inputs["batch_indices"], 99)
    with pytest.raises(Exception, match="indices element out of data bounds"):
        run(lower(sample.model()), {**sample.inputs, "batch_indices": indices})
