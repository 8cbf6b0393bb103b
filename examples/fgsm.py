"""FGSM, the fast gradient sign method: a change of all pixels, too small to see, changes the answer of a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import onnx_models
from examples.classifier import Array, Classifier, draw, load, page, run, seen


def fgsm(network: Classifier, image: Array, label: int, step: float) -> Array:
    """Return the image with each element moved by `step` in the direction in which the loss of class `label` grows."""
    model = onnx_models.gradient(onnx_models.with_loss(network.model, "cross_entropy", network.scores), "loss", ["x"])
    slopes = run(model, ["x_grad"], {"x": image, "target": np.array([label])})[0]
    return np.asarray(image + np.float32(step) * np.sign(slopes))


def main(out: Path = Path("fgsm.png")) -> None:
    """Draw a page before and after the change, with the network's answers."""
    network, image, pictures = load(), page(), {}
    for title, one in (("page", image), ("changed", fgsm(network, image, 0, 0.1))):
        (shares,) = run(network.model, [network.shares], {"x": one})
        pictures[f"{title}: {network.labels[shares.argmax()]} with {shares.max():.0%}"] = seen(one)
    print(draw(out, pictures), *pictures, sep="\n")


if __name__ == "__main__":
    main()
