# SPDX-License-Identifier: MIT OR Apache-2.0
"""Maps and RoIs that the generated cases share. Each scene tests one property of the sampling geometry.

Those of upright RoIs are in `data/roi_align.json`; rotated RoIs, MaxRoiPool and DmlResample have others.
Coordinates are short binary fractions, which are exact in every element type, so the type rounds only values. Samples keep
away from where rounding of a coordinate decides: borders, pixels, ties between samples, and whole numbers of samples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, TypeVar

import numpy as np

from conformance.case import Array, Basis

OF_30, OF_45, OF_90, OF_135 = 67 / 128, 201 / 256, 201 / 128, 151 / 64
"""Angles in radians, close to the degrees in their names, that are exact in bfloat16."""

MORE_THAN_A_TURN = 29 / 4


@dataclass(frozen=True, slots=True)
class Scene:
    """A feature map, RoIs on it, and how they are sampled.

    seed: the seed of the map's numbers; those of dY have `seed + 100`.
    note: a description of what the scene tests.
    x_shape: [N, C, H, W].
    rois: the numbers of each RoI, x1, y1, x2 and y2 or those of a rotated one, and the index of its image.
    bins: output height and width.
    basis: the authority for the samples of these RoIs.
    levels: the number of distinct pixel values; 0 if all pixels are distinct.
    later: by values of DmlRoiAlign's attributes, how many turns later its offsets are taken, lest rounding decides.
    """

    name: str
    seed: int
    note: str
    x_shape: tuple[int, int, int, int]
    rois: tuple[tuple[float, ...], ...]
    bins: tuple[int, int]
    sampling_ratio: int = 0
    spatial_scale: float = 1.0
    basis: Basis = Basis.TEXT
    levels: int = 0
    later: Mapping[str, int] = field(default_factory=dict)

    @property
    def tensors(self) -> dict[str, Array]:
        """The tensors by role: x, rois, indices, dy and x_shape, in float64 and int64."""
        x, y_shape = scatter(self.x_shape, seed=self.seed), (len(self.rois), self.x_shape[1], *self.bins)
        return {
            "x": np.floor((x + 2) * self.levels / 5) if self.levels else x,
            "rois": np.array([roi[:-1] for roi in self.rois], np.float64),
            "indices": np.array([roi[-1] for roi in self.rois], np.int64),
            "dy": scatter(y_shape, seed=100 + self.seed),
            "x_shape": np.array(self.x_shape),
        }


AnyScene = TypeVar("AnyScene")


def load(file: str, kind: type[AnyScene]) -> tuple[AnyScene, ...]:
    """The scenes of a JSON file in the folder `data`, whose entries are the fields of `kind`."""
    entries = json.loads((resources.files(__package__) / "data" / file).read_text("utf-8"))
    return tuple(
        kind(**{name: Basis(value) if name == "basis" else tuples(value) for name, value in entry.items()})
        for entry in entries
    )


def tuples(value: Any) -> Any:
    """A value of a JSON file, with tuples instead of lists."""
    if isinstance(value, dict):
        return {name: tuples(element) for name, element in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def scatter(shape: tuple[int, ...], *, seed: int) -> Array:
    """Quasi-random numbers between -2 and 3, the same on every machine and with every release of NumPy."""
    i = np.arange(1.0, 1.0 + np.prod(shape)) + 1000.0 * seed
    values: Array = 5.0 * np.mod(i * (np.sqrt(5.0) - 1) / 2 + i * i * (np.sqrt(2.0) - 1), 1.0) - 2.0
    return values.reshape(shape)


SCENES = load("roi_align.json", Scene)
