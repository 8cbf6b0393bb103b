# SPDX-License-Identifier: MIT
"""Sessions and scenes for both trainings. A scene is scikit-learn's handwritten digits on noise, with their boxes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from sklearn.datasets import load_digits

import onnx_models
import ortops

Array = np.ndarray[Any, Any]

SIDE = 48
"""Height and width of a scene, in pixels."""

NOISE = 0.1
"""Standard deviation of the background; a digit is between 0 and 1."""


class Digits(NamedTuple):
    """Images [n, 8, 8] between 0 and 1 and the number each shows [n]."""

    images: Array
    labels: Array


class Scenes(NamedTuple):
    """A batch of scenes.

    images: [N, 1, SIDE, SIDE]. boxes: [R, 4] as x1, y1, x2, y2 in pixels. batch_indices: [R], the scene of
    each box. labels: [R], the digit in each.
    """

    images: Array
    boxes: Array
    batch_indices: Array
    labels: Array


def digits() -> tuple[Digits, Digits]:
    """Return the digits for training, and the held-out ones, which are every fifth."""
    data = load_digits()
    images, labels = (data.images / 16).astype(np.float32), data.target.astype(np.int64)
    held_out = np.arange(len(labels)) % 5 == 0
    return Digits(images[~held_out], labels[~held_out]), Digits(images[held_out], labels[held_out])


def session(model: onnx.ModelProto, kernels: bool) -> Any:
    """Create a session with the compiled operators of ortops, or one of stock ONNX Runtime with their bodies of nodes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # without a warning for each momentum, an input that has a default
    kind = ortops.InferenceSession if kernels else onnxruntime.InferenceSession
    attached = onnx_models.portable.attach(model)
    return kind(attached.SerializeToString(), options, providers=["CPUExecutionProvider"])


def compose(source: Digits, count: int, rng: np.random.Generator) -> Scenes:
    """Make scenes of up to four digits of 14 to 20 pixels, one in each quarter, with boxes off by up to 2 pixels."""
    images = rng.normal(0, NOISE, (count, 1, SIDE, SIDE)).astype(np.float32)
    boxes, batch_indices, labels = [], [], []
    half = SIDE // 2
    for n in range(count):
        for quarter in rng.permutation(4)[: rng.integers(1, 5)]:
            size = int(rng.integers(14, 21))
            row, column = (half * corner + int(rng.integers(0, half - size + 1)) for corner in divmod(int(quarter), 2))
            chosen = int(rng.integers(len(source.labels)))
            digit = ortops.dml_resample(source.images[chosen], output_sizes=[size, size])
            images[n, 0, row : row + size, column : column + size] += digit
            boxes.append(np.array([column, row, column + size, row + size]) + rng.uniform(-2, 2, 4))
            batch_indices.append(n)
            labels.append(source.labels[chosen])
    return Scenes(images, np.array(boxes, np.float32), np.array(batch_indices), np.array(labels))
