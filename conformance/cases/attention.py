# SPDX-License-Identifier: MIT OR Apache-2.0
"""MSDeformAttn and its gradient on quasi-random numbers, whose results the reference computes, and in sessions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.case import Array, Case
from conformance.cases.make import ATTENTION, expand
from conformance.cases.scenes import load, scatter
from conformance.cases.sessions import TWO_THREADS, in_one_session
from ortops.operators import BY_NAME

OUTPUTS = {
    ATTENTION: ("Y",),
    f"{ATTENTION}_grad": tuple(tensor.name for tensor in BY_NAME["MSDeformAttnGrad"].outputs),
}


@dataclass(frozen=True, slots=True)
class AttentionScene:
    """The sizes of a call.

    note: what the scene tests, in words.
    counts: the numbers of images, queries, heads, channels and points.
    shapes: the height and the width of each level.
    starts: the first pixel of each level; empty without level_start_index.
    seed: the seed of the first tensor's numbers.
    """

    name: str
    note: str
    counts: tuple[int, int, int, int, int]
    shapes: tuple[tuple[int, int], ...]
    starts: tuple[int, ...] = ()
    seed: int = 0

    @property
    def tensors(self) -> dict[str, Array]:
        """The inputs by name, in float64 and int64. Locations are odd multiples of 1/64 on and around the map."""
        images, queries, heads, channels, points = self.counts
        pixels = max((h * w + s for (h, w), s in zip(self.shapes, self.starts, strict=False)), default=0)
        pixels = pixels or sum(height * width for height, width in self.shapes)
        weights = images, queries, heads, len(self.shapes), points
        inputs = {
            "dY": scatter((images, queries, heads * channels), seed=self.seed),
            "value": scatter((images, pixels, heads, channels), seed=self.seed + 1),
            "spatial_shapes": np.array(self.shapes),
            "sampling_locations": (2 * np.floor(scatter((*weights, 2), seed=self.seed + 2) * 9) + 15) / 64,
            "attention_weights": np.floor(scatter(weights, seed=self.seed + 3) * 16) / 32,
        }
        return inputs | ({"level_start_index": np.array(self.starts)} if self.starts else {})


SCENES = load("attention.json", AttentionScene)


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for scene in SCENES:
        yield from _of_scene("matrix", scene)
    for output in OUTPUTS[f"{ATTENTION}_grad"]:
        yield from _of_scene("matrix", SCENES[0], outputs=(output,), variant=output)
    yield from _sums_of_many()
    yield from _sessions()


def _of_scene(family: str, scene: AttentionScene, outputs: tuple[str, ...] = (), **rest: Any) -> Iterator[Case]:
    """The cases of a scene, of the operator and of its gradient; or of some outputs of the latter."""
    for function, names in OUTPUTS.items():
        if outputs and not set(outputs) <= {*names}:
            continue
        tensors = {name: array for name, array in scene.tensors.items() if name != "dY" or function != ATTENTION}
        yield from expand(
            f"{family}/{scene.name}",
            function=function,
            note=scene.note,
            attributes={},
            inputs=tensors,
            outputs=outputs or names,
            **rest,
        )


def _sums_of_many() -> Iterator[Case]:
    """Sums of 4096 ones, and as many queries on one pixel: sums in 16 bits stop earlier."""
    locations, ones = np.full((1, 1, 1, 1, 4096, 2), 0.5), np.ones((1, 1, 1, 1, 4096))
    inputs = {"value": np.ones((1, 1, 1, 2)), "spatial_shapes": np.array([[1, 1]])}
    inputs |= {"sampling_locations": locations, "attention_weights": ones}
    for function, dy, (output, shape) in (
        (ATTENTION, {}, ("Y", (1, 1, 2))),
        (f"{ATTENTION}_grad", {"dY": np.ones((1, 1, 2))}, ("dvalue", (1, 1, 1, 2))),
    ):
        yield from expand(
            "matrix/many_ones",
            function=function,
            note="a sum of 4096 ones",
            attributes={},
            inputs={**dy, **inputs},
            outputs=[output],
            expected={output: np.full(shape, 4096.0)},
        )


def _sessions() -> Iterator[Case]:
    """A call of a session after earlier calls with other data, with the same sizes, other sizes, or both."""
    asked = replace(SCENES[0], name="asked", note="a later call of a session, after calls with other data", seed=131)
    others = {
        "of_the_same_sizes": [replace(asked, seed=141)],
        "smaller": [replace(asked, counts=(1, 2, 1, 2, 1), shapes=((2, 2), (1, 2)))],
        "larger": [replace(asked, counts=(3, 9, 4, 20, 3), shapes=((7, 5), (3, 4)))],
    }
    others["four_of_the_same_sizes"] = [replace(asked, seed=141 + 10 * turn) for turn in range(3)]
    others["numbers_of_images"] = [replace(asked, counts=(images, 3, 2, 4, 2)) for images in (5, 1, 3)]
    others["all_of_these"] = [other for calls in others.values() for other in calls]
    for scenario, calls in others.items():
        earlier = [list(_of_scene("session", call, types=["float"])) for call in calls]
        yield from in_one_session(_of_scene("session", replace(asked, name=scenario), types=["float"]), earlier)
    earlier = [list(_of_scene("session", replace(asked, seed=131 + 10 * turn), types=["float"])) for turn in range(8)]
    yield from in_one_session(_of_scene("session", replace(asked, name=TWO_THREADS), types=["float"]), earlier)
