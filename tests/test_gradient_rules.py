"""Gradient rules of operators against finite differences, with all shapes known and with as few as the rule takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gradient_calls import IS_OLD, Call
from gradient_checks import check, run, with_loss
from gradient_samples import GRADIENTS_OF_REGIONS, HALVES, SAMPLES, opened
from onnx_models.gradient import gradient
from ortops.spec import ELEMENT_DTYPES


@pytest.mark.filterwarnings("ignore::onnx_models.gradient.ZeroGradientWarning")
@pytest.mark.parametrize("sample", [*SAMPLES, *GRADIENTS_OF_REGIONS], ids=str)
def test_gradients_are_those_of_differences(sample: Call) -> None:
    if IS_OLD and (sample.needs_new or sample.opset > 21):
        pytest.skip("ONNX Runtime 1.20 computes this wrong or not at all")
    for shapes in dict.fromkeys(["lengths", sample.opened]):
        made = sample.model(shapes)
        feeds = {value.name: sample.feeds[value.name] for value in made.graph.input}
        check(made, feeds, sample.wrt)


ALONE = [
    one for one in SAMPLES if one.lines.startswith(("TensorScatter<", "y = BatchNormalization(", "GroupNormalization<"))
]


@pytest.mark.parametrize("sample", ALONE, ids=str)
def test_a_gradient_with_respect_to_one_input_needs_no_other(sample: Call) -> None:
    if IS_OLD and (sample.needs_new or sample.opset > 21):
        pytest.skip("ONNX Runtime 1.20 computes this wrong or not at all")
    for name in sample.wrt:
        check(sample.model("names"), sample.feeds, [name])


@pytest.mark.parametrize("sample", HALVES, ids=str)
def test_gradients_in_float16_are_those_in_float_rounded(sample: Call) -> None:
    feeds = replace(sample, kind="float16").feeds
    found = []
    for kind in ("float16", "float"):
        made = opened(replace(sample, kind=kind))
        dtype = ELEMENT_DTYPES[kind]
        fed = {name: value.astype(dtype) if name in sample.wrt else value for name, value in feeds.items()}
        y = run(made, fed)["y"]
        cotangent = np.asarray(np.random.default_rng(2).uniform(-1, 1, y.shape), np.float16)
        by = run(gradient(with_loss(made, {"y": cotangent.astype(dtype)}), "loss", sample.wrt), fed)
        assert {by[f"{name}_grad"].dtype for name in sample.wrt} == {np.dtype(dtype)}
        found.append([by[f"{name}_grad"].astype(np.float64) for name in sample.wrt])
    for half, single in zip(*found, strict=True):
        np.testing.assert_allclose(half, single, rtol=0.02, atol=0.02)
