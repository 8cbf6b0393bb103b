# SPDX-License-Identifier: MIT
"""The attributions and the attack of examples/, on a small network with random weights in place of the trained one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from examples import attribution
from examples.attribution import Array, Classifier, run

RNG = np.random.default_rng(3)
WEIGHTS = {"kernel": RNG.normal(size=(4, 3, 3, 3)), "head": RNG.normal(size=(4, 2))}
IMAGE, BLANK = (RNG.normal(size=(1, 3, 6, 7)).astype(np.float32), np.zeros((1, 3, 6, 7), np.float32))


@pytest.fixture(scope="module")
def network() -> Classifier:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
        g (float[n, 3, h, w] x) => (float[n, 2] shares, float[n, 2] scores) {
            filtered = Conv (x, kernel) features = Relu (filtered) pooled = GlobalAveragePool (features)
            flat = Flatten (pooled) scores = MatMul (flat, head) shares = Softmax (scores) }""")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v.astype(np.float32), n) for n, v in WEIGHTS.items())
    return Classifier(model, "features", "scores", "shares", ("this", "that"))


def answers(network: Classifier, image: Array) -> list[Array]:
    return run(network.model, ["shares", "scores"], {"x": image})


def test_grad_cam_weights_features_as_the_last_layer_does(network: Classifier) -> None:
    windows = np.lib.stride_tricks.sliding_window_view(IMAGE[0], (3, 3), (1, 2))
    features = np.einsum("chwij, kcij -> khw", windows, WEIGHTS["kernel"]).clip(0)
    wanted = np.tensordot(WEIGHTS["head"][:, 1], features, 1).clip(0) / features[0].size
    np.testing.assert_allclose(attribution.grad_cam(network, IMAGE, 1), wanted, rtol=1e-4, atol=1e-6)


def test_integrated_gradients_add_up_to_the_difference_of_scores(network: Classifier) -> None:
    added = attribution.integrated_gradients(network, IMAGE, BLANK, 0, 50)
    difference = (answers(network, IMAGE)[1] - answers(network, BLANK)[1])[0, 0]
    assert added.shape == IMAGE.shape
    assert added.sum() == pytest.approx(difference, rel=1e-3)


def test_fgsm_moves_each_element_by_the_step_and_lowers_the_share_of_the_class(network: Classifier) -> None:
    moved = attribution.fgsm(network, IMAGE, 0, 0.01)
    np.testing.assert_allclose(np.abs(moved - IMAGE), 0.01, rtol=1e-4)
    assert answers(network, moved)[0][0, 0] < answers(network, IMAGE)[0][0, 0]


def test_it_draws_a_picture(network: Classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribution, "load", lambda: network)
    attribution.main(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
