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
    feeds, wrt = sample.feeds, sample.wrt
    check(sample.model("lengths"), {name: feeds[name] for name in wrt}, wrt, step=step, tolerance=tolerance)
    check(sample.model(sample.opened), feeds, wrt, step=step, tolerance=tolerance)
