"""Grad-CAM: the parts of a picture that speak for a class, from the derivative of its score by the last feature map."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import onnx_models
from examples.classifier import Array, Classifier, draw, load, page, run, seen


def grad_cam(network: Classifier, image: Array, label: int) -> Array:
    """Return the map of class `label`, [H, W] of the features, for an image [1, 3, ...]."""
    model = onnx_models.vjp(network.model, {network.scores: "which"}, {network.features: "by_features"})
    model.graph.output.add(name=network.features)
    feeds = {"x": image, "which": np.eye(len(network.labels), dtype=np.float32)[[label]]}
    features, slopes = run(model, [network.features, "by_features"], feeds)
    return np.asarray(np.maximum((features * slopes.mean(axis=(2, 3), keepdims=True)).sum(axis=1)[0], 0))


def main(out: Path = Path("grad_cam.png")) -> None:
    """Draw what tells the network which way up a page is."""
    image = page()
    print(draw(out, {"page": seen(image), "Grad-CAM of 0°": seen(image)}, grad_cam(load(), image, 0)))


if __name__ == "__main__":
    main()
