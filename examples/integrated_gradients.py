"""Integrated gradients: how much each pixel adds to a score, between a blank page and the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import onnx_models
from examples.classifier import Array, Classifier, draw, load, page, run, seen


def integrated_gradients(network: Classifier, image: Array, baseline: Array, label: int, steps: int) -> Array:
    """Return what each element of an image [1, 3, H, W] adds to the score of class `label`; all steps are one batch."""
    model = onnx_models.vjp(network.model, {network.scores: "which"}, {"x": "by_x"})
    path = baseline + (np.arange(steps, dtype=np.float32)[:, None, None, None] + 0.5) / steps * (image - baseline)
    which = np.eye(len(network.labels), dtype=np.float32)[[label] * steps]
    (slopes,) = run(model, ["by_x"], {"x": path, "which": which})
    return np.asarray(np.mean(slopes, axis=0, keepdims=True) * (image - baseline))


def main(out: Path = Path("integrated_gradients.png")) -> None:
    """Draw which pixels tell the network which way up a page is."""
    added = integrated_gradients(load(), image := page(), np.full_like(image, image.max()), 0, 64)
    pictures = {"page": seen(image), f"what adds {added.sum():.2f} to the score of 0°": seen(image)}
    print(draw(out, pictures, added.sum(axis=(0, 1))))


if __name__ == "__main__":
    main()
