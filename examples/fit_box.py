# SPDX-License-Identifier: MIT
"""Fit a box to an object by gradient descent: the gradient of RoiAlign with respect to its RoIs moves the box.

A box is wrong by up to a fifth of its size on each side. The loss compares the features that RoiAlign computes in the box
with those in a picture of the object alone; one ONNX graph has the loss, its gradient and the step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import matplotlib.pyplot as plt
import numpy as np
import onnx
from matplotlib.patches import Rectangle
from rich.console import Console
from rich.progress import track

import onnx_models
import ortops
from examples.scenes import Array, digits, session

SIDE, SIZE = 96, 40
"""Height and width of the scene and of the object, in pixels."""

RATE = np.array(0.25, np.float32)

FORWARD = """
<ir_version: 10, opset_import: ["" : 21]>
step (float[1, 1, H, W] scene, float[1, 4] box, float[1, 1, h, w] object, float[1, 4] whole) => (float loss)
<int64[1] first = {0}>
{
  seen = RoiAlign <output_height = 14, output_width = 14, sampling_ratio = 3> (scene, box, first)
  wanted = RoiAlign <output_height = 14, output_width = 14, sampling_ratio = 3> (object, whole, first)
  difference = Sub (seen, wanted)
  square = Mul (difference, difference)
  loss = ReduceSum <keepdims = 0> (square)
}
"""


def step_model() -> onnx.ModelProto:
    """Build a model of one step of gradient descent: the loss, and the box and its momentum after the step."""
    model = onnx_models.gradient(onnx.parser.parse_model(FORWARD), "loss", ["box"])
    return onnx_models.with_optimizer(model, "sgd", momentum=0.8)


def overlap(a: Array, b: Array) -> float:
    """Return the intersection over union of two boxes."""
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    inside = float(np.prod(sides.clip(0)))
    return inside / (float(np.prod(a[2:] - a[:2])) + float(np.prod(b[2:] - b[:2])) - inside)


def fit(scene: Array, thing: Array, box: Array, steps: int, kernels: bool) -> list[Array]:
    """Return the box, [4], before the first step and after each; `thing` is the picture of the object alone."""
    step = session(step_model(), kernels)
    height, width = thing.shape
    whole = np.array([[0, 0, width, height]], np.float32)
    feeds = {"scene": scene[None, None], "object": thing[None, None], "whole": whole, "learning_rate": RATE}
    boxes, momentum = [box.astype(np.float32)], np.zeros((1, 4), np.float32)
    for _ in track(range(steps), "fitting", console=Console(stderr=True)):
        moving = {"box": boxes[-1][None], "box_momentum": momentum}
        moved, momentum = step.run(["box_next", "box_momentum_next"], feeds | moving)
        boxes.append(moved[0])
    return boxes


def draw(path: Path, scene: Array, boxes: list[Array], true: Array, overlaps: list[float]) -> None:
    """Draw the boxes of some steps, and the overlap of each with the true box."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    left.imshow(scene, cmap="gray")
    left.set(title="from red to green; true box dashed")
    chosen = sorted({int(step) for step in np.geomspace(1, len(boxes), 12) - 1})
    for step in chosen:
        colour = plt.get_cmap("RdYlGn")(chosen.index(step) / (len(chosen) - 1))
        left.add_patch(_rectangle(boxes[step], color=colour))
    left.add_patch(_rectangle(true, color="white", linestyle="--"))
    right.plot(overlaps)
    right.set(title="intersection over union with the true box", xlabel="step", ylim=(0, 1))
    figure.savefig(path)
    plt.close(figure)


def _rectangle(box: Array, **style: Any) -> Rectangle:
    return Rectangle((box[0], box[1]), box[2] - box[0], box[3] - box[1], fill=False, **style)


@click.command()
@click.option("--steps", default=200, show_default=True, type=click.IntRange(1))
@click.option("--kernels", is_flag=True, help="Use the compiled operators, not stock ONNX Runtime alone.")
@click.option("--out", default="fit_box.png", show_default=True, type=click.Path(dir_okay=False, path_type=Path))
def main(steps: int, kernels: bool, out: Path) -> None:
    """Fit a box to a digit in noise, print how well it fits, and draw the boxes of the steps."""
    rng = np.random.default_rng(0)
    thing = ortops.dml_resample(digits()[1].images[0], output_sizes=[SIZE, SIZE])
    scene = rng.normal(0, 0.1, (SIDE, SIDE)).astype(np.float32)
    left, top = rng.integers(SIZE // 3, SIDE - SIZE - SIZE // 3, 2)
    scene[top : top + SIZE, left : left + SIZE] += thing
    true = np.array([left, top, left + SIZE, top + SIZE], np.float32)
    boxes = fit(scene, thing, true + rng.uniform(-SIZE / 5, SIZE / 5, 4), steps, kernels)
    overlaps = [overlap(box, true) for box in boxes]
    draw(out, scene, boxes, true, overlaps)
    message = f"intersection over union {overlaps[0]:.2f} before, {overlaps[-1]:.2f} after {steps} steps: {out}"
    Console().print(message, highlight=False)


if __name__ == "__main__":
    main(prog_name="python -m examples.fit_box")
