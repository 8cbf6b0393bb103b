# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the bins of a RoI on a map of repeating numbers become: sequences, by where in the map's sequence a bin begins."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from conformance.case import Array
from conformance.cases.large.repeating import OF_X, PERIOD, neighbour, numbers
from conformance.error_terms import Floats

CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))


class Form(NamedTuple):
    """What the sequences of a RoI depend on.

    samples: those of a bin along the height and the width of the RoI.
    steps: the steps in the map's sequence from one sample to the next, along height and width.
    below, beside: the place of all samples between two pixels, along y and x.
    """

    element_type: str
    samples: tuple[int, int]
    steps: tuple[int, int]
    below: float
    beside: float

    @property
    def weights(self) -> Floats:
        """The weights of the four pixels around each sample, in the order of `CORNERS`."""
        return np.outer((1 - self.below, self.below), (1 - self.beside, self.beside)).ravel()

    @property
    def corners(self) -> list[Array]:
        """The weighted pixels around a sample, in the order of `CORNERS`, as sequences."""
        down, right = OF_X[2:]
        pixels = [neighbour(numbers(self.element_type), down * i + right * j) for i, j in CORNERS]
        return [weight * pixel for weight, pixel in zip(self.weights, pixels, strict=True)]

    def shift(self, a: int, b: int) -> int:
        """The number of steps from the first sample of a bin to another one."""
        return a * self.steps[0] + b * self.steps[1]


@functools.cache
def pooled(form: Form, mode: str) -> Array:
    """The output of the bin whose first sample's first pixel is each number of the map's sequence."""
    corners = np.array(form.corners)
    values = corners.max(axis=0) if mode == "max" else corners.sum(axis=0)
    values = numbers(form.element_type) if mode == "pixels" else values
    for count, step in zip(form.samples, form.steps, strict=True):
        along = [neighbour(values, step * k) for k in range(count)]
        values = np.mean(along, axis=0) if mode == "avg" else np.max(along, axis=0)
    return np.asarray(values, np.float64 if form.element_type == "double" else np.float32)


@functools.cache
def winners_of(form: Form, mode: str) -> Array:
    """The number of the winner of each bin: samples row by row, and for "max" the four corners of each."""
    corners = form.corners
    candidates = {"pixels": [numbers(form.element_type)], "max": corners}.get(mode, [np.add.reduce(corners)])
    shifts = [form.shift(*sample) for sample in np.ndindex(form.samples)]
    return np.asarray(np.argmax([neighbour(candidate, shift) for shift in shifts for candidate in candidates], axis=0))


@functools.cache
def slopes_of(form: Form, axis: int) -> tuple[Array, Array, Array]:
    """The mean slope along y or x of the bins that begin at each number, and the mean of slopes times positions in the bin.

    The positions are those along the height and the width of the bin, from 0 to 1.
    """
    down, right = OF_X[2:]
    x, (height, width) = numbers(form.element_type), form.samples
    step, other, weight = (down, right, form.beside) if axis == 0 else (right, down, form.below)
    rise = neighbour(x, step) - x
    slope = (1 - weight) * rise + weight * neighbour(rise, other)
    mean, of_height, of_width = np.zeros((3, PERIOD))
    for a, b in np.ndindex(form.samples):
        slope_of_sample = neighbour(slope, form.shift(a, b))
        mean += slope_of_sample / (height * width)
        of_height += slope_of_sample * (a + 0.5) / height / (height * width)
        of_width += slope_of_sample * (b + 0.5) / width / (height * width)
    return mean, of_height, of_width
