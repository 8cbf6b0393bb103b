# SPDX-License-Identifier: MIT
"""Train a small detector head in ONNX Runtime alone: forward pass, backward pass and SGD are one ONNX graph.

A scene holds up to four handwritten digits. Two convolutions compute a feature map, RoiAlign extracts the features in an
inexact box around a digit, and two layers classify the digit. `onnx_models.gradient` writes the backward pass.
"""

from __future__ import annotations

import time
from pathlib import Path

import click
import matplotlib.pyplot as plt
import numpy as np
import onnx
from matplotlib.patches import Rectangle
from rich.console import Console
from rich.progress import track

import onnx_models
from examples.scenes import Array, Digits, Scenes, compose, digits, session

DETECTOR = """
<ir_version: 10, opset_import: ["" : 21]>
detector (
  float[N, 1, H, W] images, float[R, 4] boxes, int64[R] batch_indices,
  float[16, 1, 3, 3] conv1_weight, float[16] conv1_bias, float[32, 16, 3, 3] conv2_weight, float[32] conv2_bias,
  float[64, 1568] hidden_weight, float[64] hidden_bias, float[10, 64] output_weight, float[10] output_bias
) => (float[R, 10] scores)
{
  wide = Conv <pads = [1, 1, 1, 1]> (images, conv1_weight, conv1_bias)
  wide_positive = Relu (wide)
  half = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (wide_positive, conv2_weight, conv2_bias)
  map = Relu (half)
  parts = RoiAlign <output_height = 7, output_width = 7, sampling_ratio = 2, spatial_scale = 0.5>
    (map, boxes, batch_indices)
  flat = Flatten (parts)
  hidden = Gemm <transB = 1> (flat, hidden_weight, hidden_bias)
  hidden_positive = Relu (hidden)
  scores = Gemm <transB = 1> (hidden_positive, output_weight, output_bias)
}
"""

MOMENTUM, FIRST_RATE, BATCH = 0.9, 0.02, 16


def detector() -> onnx.ModelProto:
    """Build the detector: scores of the digits from scenes, boxes and parameters."""
    return onnx.parser.parse_model(DETECTOR)


def shapes_of_parameters() -> dict[str, list[int]]:
    """Return the shape of each parameter of the detector, by name."""
    return {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in detector().graph.input
        if value.name.endswith(("_weight", "_bias"))
    }


def training_step() -> onnx.ModelProto:
    """Build the detector with its loss and a step of SGD, whose output NAME_next is the input NAME of the next step."""
    model = onnx_models.with_loss(detector(), "cross_entropy", "scores", "labels")
    model = onnx_models.gradient(model, "loss", list(shapes_of_parameters()))
    return onnx_models.with_optimizer(model, "sgd", momentum=MOMENTUM)


class Training:
    """Parameters, and the session that trains them.

    Args:
        kernels: True for the compiled operators of ortops, False for their bodies of standard operators.
    """

    def __init__(self, kernels: bool, rng: np.random.Generator) -> None:
        self._step, self._scorer = session(training_step(), kernels), session(detector(), kernels)
        self._names = [output.name for output in self._step.get_outputs()]
        self._state: dict[str, Array] = {}
        for name, shape in shapes_of_parameters().items():
            spread = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.0
            self._state[name] = rng.normal(0, spread, shape).astype(np.float32)
            self._state[f"{name}_momentum"] = np.zeros(shape, np.float32)

    def step(self, scenes: Scenes, rate: float) -> float:
        """Train on some scenes and return the loss before the step."""
        feeds = {**self._state, **scenes._asdict(), "learning_rate": np.array(rate, np.float32)}
        outputs = dict(zip(self._names, self._step.run(None, feeds), strict=True))
        self._state = {name: outputs[f"{name}_next"] for name in self._state}
        return float(outputs["loss"])

    def guesses(self, scenes: Scenes) -> Array:
        """Return the digit that the detector sees in each box."""
        inputs = {value.name for value in self._scorer.get_inputs()}
        feeds = {name: array for name, array in {**self._state, **scenes._asdict()}.items() if name in inputs}
        return np.asarray(self._scorer.run(["scores"], feeds)[0].argmax(axis=1))


def train(steps: int, kernels: bool, learn: Digits, held_out: Scenes) -> tuple[Training, list[float], float]:
    """Train a detector, and return it, the losses of the steps, and its accuracy on held-out digits."""
    rng = np.random.default_rng(0)
    training, losses = Training(kernels, rng), []
    for step in track(range(steps), "training", console=Console(stderr=True)):
        rate = FIRST_RATE * (1 + np.cos(np.pi * step / steps)) / 2
        losses.append(training.step(compose(learn, BATCH, rng), rate))
    return training, losses, float((training.guesses(held_out) == held_out.labels).mean())


def draw(path: Path, losses: list[float], scenes: Scenes, guesses: Array, title: str) -> None:
    """Draw the losses, and scenes with the digits that the detector sees in their boxes, mistakes in red."""
    figure, axes = plt.subplots(2, 4, figsize=(12, 6.5), layout="constrained")
    figure.suptitle(title)
    axes[0, 0].semilogy(np.convolve(losses, np.ones(20) / 20, "valid"))
    axes[0, 0].set(title="loss, mean of 20 steps", xlabel="step")
    for n, axis in enumerate(axes.flat[1:]):
        axis.imshow(scenes.images[n, 0], cmap="gray")
        axis.axis("off")
        for r in np.flatnonzero(scenes.batch_indices == n):
            colour = "tab:green" if guesses[r] == scenes.labels[r] else "tab:red"
            left, top, right, bottom = scenes.boxes[r]
            axis.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, color=colour))
            axis.text(left, top, str(guesses[r]), color=colour, va="bottom", weight="bold")
    figure.savefig(path)
    plt.close(figure)


@click.command()
@click.option("--steps", default=1200, show_default=True, type=click.IntRange(1))
@click.option("--kernels", is_flag=True, help="Use the compiled operators, not stock ONNX Runtime alone.")
@click.option("--out", default="train_detector.png", show_default=True, type=click.Path(dir_okay=False, path_type=Path))
def main(steps: int, kernels: bool, out: Path) -> None:
    """Train the detector, print its accuracy on held-out digits, and draw what it sees."""
    learn, unseen = digits()
    held_out = compose(unseen, 300, np.random.default_rng(1))
    start = time.perf_counter()
    training, losses, accuracy = train(steps, kernels, learn, held_out)
    seconds = time.perf_counter() - start
    title = f"{accuracy:.1%} of {len(held_out.labels)} held-out digits right after {steps} steps in {seconds:.0f} s"
    draw(out, losses, held_out, training.guesses(held_out), title)
    Console().print(f"{title}: {out}", highlight=False)


if __name__ == "__main__":
    main(prog_name="python -m examples.train_detector")
