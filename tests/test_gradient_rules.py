"""Gradient rules of operators against finite differences, with all shapes known and with as few as the rule takes."""

from __future__ import annotations

import pytest

from gradient_calls import Call
from gradient_checks import check
from gradient_nodes import IS_OLD
from gradient_samples import SAMPLES


@pytest.mark.filterwarnings("ignore::onnx_models.gradient.ZeroGradientWarning")
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_gradients_are_those_of_differences(sample: Call) -> None:
    if IS_OLD and (sample.needs_new or sample.opset > 21):
        pytest.skip("ONNX Runtime 1.20 computes this wrong or not at all")
    step, tolerance = sample.differences
    for shapes in dict.fromkeys(["lengths", sample.opened]):
        made = sample.model(shapes)
        feeds = {value.name: sample.feeds[value.name] for value in made.graph.input}
        check(made, feeds, sample.wrt, step=step, tolerance=tolerance)


ALONE = [
    one for one in SAMPLES if one.lines.startswith(("TensorScatter<", "y = BatchNormalization(", "GroupNormalization<"))
]


@pytest.mark.parametrize("sample", ALONE, ids=str)
def test_a_gradient_with_respect_to_one_input_needs_no_other(sample: Call) -> None:
    if IS_OLD and (sample.needs_new or sample.opset > 21):
        pytest.skip("ONNX Runtime 1.20 computes this wrong or not at all")
    for name in sample.wrt:
        check(sample.model("names"), sample.feeds, [name])
