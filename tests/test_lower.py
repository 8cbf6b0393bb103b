"""Models without this project's operators, functions and loops: what they compute, and which models can be lowered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest

import onnx_models
from onnx_models import lower
from ortops.operators import BY_NAME, OPERATORS
from samples import Sample, every, samples
from test_portable import assert_close, calls, expected, run, with_opset

_CONTROL = {"Loop", "Scan", "If"}


def check(model: onnx.ModelProto, sample: Sample) -> onnx.ModelProto:
    """The lowered model has standard nodes alone, ONNX's checker accepts it, and it agrees with the reference."""
    made = lower(model)
    onnx.checker.check_model(made, full_check=True)
    assert not made.functions
    assert {item.domain for item in made.opset_import} == {""}
    assert {node.domain for node in made.graph.node} == {""}
    assert not _CONTROL & {node.op_type for node in made.graph.node}
    assert_close(run(made, dict(sample.inputs)), expected(sample), next(iter(sample.inputs.values())).dtype)
    return made


@pytest.mark.parametrize(**every(calls))
def test_a_lowered_node_computes_the_reference(sample: Sample) -> None:
    check(sample.model(), sample)


@pytest.mark.parametrize("ratio", [1, 2, 5])
@pytest.mark.parametrize("mode", ["avg", "max", "max_interpolated"])
@pytest.mark.parametrize("name", ["RoiAlign_16", "RoiAlignGrad"])
def test_the_number_of_samples_may_be_known(name: str, mode: str, ratio: int) -> None:
    given = samples(BY_NAME[name])[0]
    attributes = {**given.attributes, "mode": mode, "sampling_ratio": ratio}
    sample = Sample(given.operator, "known", given.inputs, attributes)
    check(sample.model(), sample)


def test_a_dml_roi_align_may_have_a_known_number_of_samples() -> None:
    given = samples(BY_NAME["DmlRoiAlign"])[0]
    known = {"minimum_samples_per_output": 2, "maximum_samples_per_output": 2, "out_of_bounds_input_value": 3.0}
    for function in ("average", "max"):
        attributes = {**given.attributes, **known, "reduction_function": function}
        sample = Sample(given.operator, "known", given.inputs, attributes)
        check(sample.model(), sample)


@pytest.mark.parametrize("opset", [10, 16, 22])
def test_nodes_of_onnx_are_lowered(opset: int) -> None:
    given = samples(BY_NAME[f"RoiAlign_{opset}"])[0]
    model = onnx_models.roi_align(opset, standard=True, **given.attributes)
    assert lower(model).graph.node == check(onnx_models.convert(model), given).graph.node


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda one: one.name)
def test_models_of_newer_opsets_keep_theirs(operator: str) -> None:
    for opset in (20, 22):
        made = lower(with_opset(samples(BY_NAME[getattr(operator, "name", "")])[0].model(), opset))
        onnx.checker.check_model(made, full_check=True)
        assert made.opset_import[0].version == opset


def test_a_lowered_model_runs_in_onnx_reference_evaluator() -> None:
    for name in ("RoiAlign_16", "RoIAlignRotated", "MaxRoiPool_22"):
        sample = samples(BY_NAME[name])[0]
        found = onnx.reference.ReferenceEvaluator(lower(sample.model())).run(None, dict(sample.inputs))
        assert_close([np.asarray(one) for one in found], expected(sample), np.dtype(np.float32))


_INSIDE = """
<ir_version: 10, opset_import: ["" : 16, "f": 1]>
a (bool c, float[N, C, H, W] x, float[R, 4] rois, int64[R] i) => (y) {
  y = If (c) <then_branch = g () => (float[R, C, P, Q] t) { t = f.pool (x, rois, i) },
              else_branch = h () => (float[R, C, P, Q] e) {
                e = RoiAlign <output_height = 2, output_width = 2, mode = "max"> (x, rois, i) }>
}
<domain: "f", opset_import: ["" : 16]>
pool (x, rois, i) => (y) { y = RoiAlign <output_height = 2, output_width = 2, sampling_ratio = 2> (x, rois, i) }
"""


def test_nodes_in_functions_and_branches_are_lowered() -> None:
    text = _INSIDE.replace("=> (y) {\n  y = If", "=> (float[R, C, P, Q] y) {\n  y = If")
    model = onnx.parser.parse_model(text)
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


def test_what_cannot_be_lowered_is_named(tmp_path: Path) -> None:  # noqa: ARG001
    node = onnx.helper.make_node("RoiAlignGrad", ["dY", "rois", "i", "s"], ["", "drois"], name="n", domain="ortops")
    model = samples(BY_NAME["RoiAlignGrad"])[0].model()
    node.domain = model.graph.node[0].domain
    node.input[:] = [*model.graph.node[0].input[:4]]
    node.output[:] = ["", model.graph.output[-1].name]
    model.graph.node[0].CopyFrom(node)
    del model.graph.output[:-1]
    with pytest.raises(ValueError, match=r"node 'n' \(RoiAlignGrad\): X is missing"):
        lower(model)


def test_a_model_without_roi_nodes_stays() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> a (float[N] x) => (float[N] y) { y = Neg (x) }'
    )
    assert lower(model) == model
