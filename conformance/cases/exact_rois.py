# SPDX-License-Identifier: MIT OR Apache-2.0
"""RoIs whose results have a closed form, for any number of RoIs and any size of the map.

Every bin has one sample, in the middle between four pixels, each of which has the weight 1/4. Pixels are distinct multiples
of 1/16. So all intermediate numbers are exact in every element type, and reading a wrong pixel, channel, image, RoI or bin
changes the result. Numbers of double have a factor that float32 rounds to 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import ortops
from conformance.case import Array, Case, Source
from conformance.cases.every_attribute import basis_of
from conformance.cases.large.repeating import FINE
from conformance.cases.make import BOTH, FLOATS, Rule, make

Inputs = dict[str, Array]

SOURCE = Source("conformance/cases/exact_rois.py", f"ortops {ortops.__version__}", "one sample between four pixels")
CORNERS = tuple(itertools.product((0, 1), repeat=2))


@dataclass(frozen=True, slots=True)
class ExactRois:
    """RoIs on a map.

    x_shape: [N, C, H, W].
    windows: for each RoI, its image and the row and column of the pixel before its first sample.
    bins: output height and width; a window has one more pixel along either axis.
    mode, coordinates: RoiAlign's mode and coordinate_transformation_mode.
    scale: spatial_scale, a power of two.
    turn: which numbers the map and the gradient have.
    """

    x_shape: tuple[int, int, int, int]
    windows: tuple[tuple[int, int, int], ...]
    bins: tuple[int, int] = (2, 2)
    mode: str = "avg"
    coordinates: str = "output_half_pixel"
    scale: float = 1.0
    turn: int = 0

    @property
    def x(self) -> Array:
        """The map, [N, C, H, W]."""
        return sixteenths(self.x_shape, self.turn)

    @property
    def dy(self) -> Array:
        """The gradient with respect to the output, [R, C, PH, PW]."""
        return sixteenths((len(self.windows), self.x_shape[1], *self.bins), 5 + self.turn)

    @property
    def rois(self) -> Array:
        """The stored RoIs, [R, 4]."""
        corner = np.array([(column, row) for _, row, column in self.windows], np.float64).reshape(-1, 2)
        corner += 0.5 if self.coordinates == "half_pixel" else 0.0
        return np.concatenate([corner, corner + self.bins[::-1]], axis=1) / self.scale

    @property
    def indices(self) -> Array:
        """The image of each RoI, [R]."""
        return np.array([image for image, _, _ in self.windows], np.int64)

    def pixels(self, x: Array) -> Array:
        """The four pixels around each sample, [R, 4, C, PH, PW], in the order of `CORNERS`."""
        return x.ravel()[self._places(x.shape)]

    def scattered(self, shares: Array, x_shape: Sequence[int]) -> Array:
        """The sum of what each pixel gets, [N, C, H, W], from shares of the shape of `pixels`."""
        places = self._places(x_shape).ravel()
        return np.bincount(places, shares.ravel(), math.prod(x_shape)).reshape(x_shape)

    def _places(self, x_shape: Sequence[int]) -> Array:
        windows = np.array(self.windows, np.int64).reshape(-1, 3).T.reshape(3, -1, 1, 1, 1, 1)
        below, beside = np.array(CORNERS).T.reshape(2, 4, 1, 1, 1)
        rows = windows[1] + below + np.arange(self.bins[0])[:, None]
        columns = windows[2] + beside + np.arange(self.bins[1])
        channels = np.arange(x_shape[1])[:, None, None]
        return np.ravel_multi_index(np.broadcast_arrays(windows[0], channels, rows, columns), tuple(x_shape))

    def answers(self, x: Array, dy: Array, outputs: Sequence[str]) -> dict[str, Array]:
        """The expected Y, dX and drois for a map and a gradient, those of `outputs`, by their roles: y, dx and drois."""
        pixels, is_read = self.pixels(x), np.ones((), bool)
        if self.mode == "max":  # the weighted winner only
            is_read = np.arange(4)[:, None, None, None] == pixels.argmax(axis=1)[:, None]
            pixels = np.where(is_read, pixels, 0.0)
        answers = {"y": pixels.sum(axis=1) / 4}
        if "dx" in outputs:
            answers["dx"] = self.scattered(np.where(is_read, dy[:, None] / 4, np.zeros(pixels.shape)), x.shape)
        if "drois" in outputs:
            t_y, t_x = ((np.arange(n) + 0.5) / n for n in self.bins)
            signs = 2 * np.array(CORNERS) - 1
            by_y, by_x = (dy * np.tensordot(sign / 2, pixels, (0, 1)) for sign in signs.T)
            by_ends = (by_x * (1 - t_x), by_y * (1 - t_y)[:, None], by_x * t_x, by_y * t_y[:, None])
            # Along one axis at a time: the order of a sum along several differs between releases of NumPy.
            sums = [by_end.sum(axis=3).sum(axis=2).sum(axis=1) for by_end in by_ends]
            answers["drois"] = self.scale * np.stack(sums, axis=1)
        return {role: answers[role] for role in ("y", "dx", "drois") if role in outputs}


def sixteenths(shape: Sequence[int], turn: int = 0) -> Array:
    """Multiples of 1/16 between -4 and 4: 127 numbers in an order that does not repeat within 16,129 elements."""
    i = np.arange(int(np.prod(shape))) + 31 * turn
    return ((7919 * i + 104729 * (i // 127)) % 127 - 63.0).reshape(shape) / 16


def cases(
    scenario: str,
    note: str,
    crop: ExactRois,
    *,
    types: Sequence[str] = FLOATS,
    outputs: Sequence[str] = ("y", "dx", "drois"),
    change: Callable[[Inputs], Inputs] = lambda inputs: inputs,
    operators: Sequence[str] = BOTH,
    **rest: Any,
) -> Iterator[Case]:
    """Make the cases of a crop for RoiAlign, DmlRoiAlign and their gradients.

    Args:
        scenario: the part `family/scenario` of the ids.
        note: a description of what the cases test.
        crop: the RoIs.
        types: see `make`.
        outputs: the roles of the outputs.
        change: a function that changes x and dy, by their roles, before the expected values are computed.
        operators: the functions of the operators.
        rest: further fields of `Case`.
    """
    # DirectML has no maximum of weighted pixels.
    known = [operator for operator in operators if operator == "roi_align" or crop.mode != "max"]
    for alike, factor in by_precision(types):
        data = change({"x": factor * crop.x, "dy": factor * crop.dy})
        with np.errstate(invalid="ignore"):
            answers = crop.answers(data["x"], data["dy"], outputs)
        data |= {"rois": crop.rois, "indices": crop.indices, "x_shape": np.array(crop.x_shape)}
        rule = Rule(crop.mode, crop.coordinates, crop.scale, ratio=1)
        for operator in known:
            given = {"basis": basis_of(crop.mode, operator), "source": SOURCE, "note": note, **rest}
            yield from make(scenario, operator, rule, data, outputs, expected=answers, types=alike, **given)


def by_precision(types: Sequence[str]) -> Iterator[tuple[list[str], float]]:
    """Yield the types whose cases have the same numbers, and the factor of these."""
    for is_double, factor in ((False, 1.0), (True, FINE)):
        if alike := [name for name in types if (name == "double") == is_double]:
            yield alike, factor


def filled(inputs: Inputs, role: str, value: float) -> Inputs:
    """Set all elements of x or dy to this value."""
    return {**inputs, role: np.full(inputs[role].shape, value)}


def with_element(inputs: Inputs, role: str, place: tuple[int, ...], value: float) -> Inputs:
    """Set one element of x or dy to this value."""
    array = inputs[role].copy()
    array[place] = value
    return {**inputs, role: array}


def reversed_channels(inputs: Inputs) -> Inputs:
    """Reverse the channels of x and dy, which are of the same sizes then."""
    return {role: array[:, ::-1] for role, array in inputs.items()}
