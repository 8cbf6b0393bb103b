# SPDX-License-Identifier: MIT OR Apache-2.0
"""DmlResample and its gradient on tensors of every rank with every interpolation and rounding direction.

The reference computes the expected values. Pixel offsets alternate from case to case. They keep samples away from where
rounding decides: the middle between two pixels, or the pixels themselves with a directed rounding. Where those of an axis's
turn do not, a scene names later ones. Any pair will do if the scale is a power of two, since coordinates are then exact, and
for linear interpolation, which is continuous. An axis of scale 1 is copied and keeps the default offsets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from conformance.case import Array, Case, Source
from conformance.cases.every_attribute import OFFSETS
from conformance.cases.make import NO_ARRAYS, NONE, RESAMPLE, Attributes, make
from conformance.cases.scenes import load, scatter
from conformance.cases.sessions import TWO_THREADS, in_one_session
from ortops.operators.dml_resample import DML_RESAMPLE, INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.shapes import output_shapes
from ortops.spec import AttributeValue

DOCUMENTATION = Source(
    "Microsoft's documentation of DML_RESAMPLE1_OPERATOR_DESC", "MicrosoftDocs/sdk-api 2db4b020", "tensors and edges"
)

DIRECTIONS = next(a.choices for a in DML_RESAMPLE.attributes if a.name == "rounding_direction")


@dataclass(frozen=True, slots=True)
class ResampleScene:
    """The shape of a tensor, and how it is resampled: by scales, to sizes, or by scales and then cut or extended to sizes.

    note: what the scene tests, in words.
    seed: the seed of the tensor's numbers; those of the gradient have `seed + 100`.
    later: by rounding direction and axis, how many turns later its offsets are taken, so that rounding decides nothing.
    """

    name: str
    note: str
    x_shape: tuple[int, ...]
    scales: tuple[float, ...] = ()
    output_sizes: tuple[int, ...] = ()
    seed: int = 0
    later: Mapping[str, int] = field(default_factory=dict)

    @property
    def scaling(self) -> dict[str, AttributeValue]:
        """The attributes of scaling; the gradient has only the scales."""
        return {"scales": self.scales, "output_sizes": self.output_sizes}

    @property
    def y_shape(self) -> tuple[int, ...]:
        """The shape of the output."""
        attributes = DML_RESAMPLE.check_attributes(self.scaling)
        return output_shapes(DML_RESAMPLE, {"InputTensor": self.x_shape}, {}, attributes)[0]


SCENES = load("resample.json", ResampleScene)


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for turn, (scene, (interpolation, direction)) in enumerate(itertools.product(SCENES, _ways())):
        chosen: dict[str, AttributeValue] = {"interpolation_mode": interpolation, "rounding_direction": direction}
        chosen |= _offsets(scene, turn, direction if interpolation == "nearest_neighbor" else None)
        yield from _of_scene("matrix", scene, chosen, variant=f"{interpolation}/{direction}")
    yield from _fine_coordinates()
    yield from _derived()
    yield from _sessions()


def _ways() -> list[tuple[str, str]]:
    """The pairs of interpolation mode and rounding direction; linear gets a direction that must have no effect."""
    return [("linear", DIRECTIONS[-1]), *(("nearest_neighbor", direction) for direction in DIRECTIONS)]


def _of_scene(
    family: str, scene: ResampleScene, attributes: Attributes, expected: Mapping[str, Array] = NO_ARRAYS, **rest: Any
) -> Iterator[Case]:
    """The cases of one scene.

    Args:
        family: the first part of the ids after the function.
        scene: the shapes.
        attributes: in addition to those of scaling.
        expected: y and dx, or only one of them, for tensors of ones; empty for quasi-random numbers and the reference.
        rest: further arguments of `make`.
    """
    x, dy = scatter(scene.x_shape, seed=scene.seed), scatter(scene.y_shape, seed=100 + scene.seed)
    tensors = {"x": np.ones(x.shape), "dy": np.ones(dy.shape)} if expected else {"x": x, "dy": dy}
    yield from make(
        f"{family}/{scene.name}",
        RESAMPLE,
        {**attributes, **scene.scaling},
        {**tensors, "x_shape": np.array(scene.x_shape)},
        () if expected else ("y", "dx"),
        expected=expected,
        note=scene.note,
        **rest,
    )


def _offsets(scene: ResampleScene, turn: int, direction: str | None) -> dict[str, AttributeValue]:
    """The pixel offsets of each axis; `direction` is None for linear interpolation."""
    pairs = [_pair(scene, axis, turn + 3 * axis, direction) for axis in range(len(scene.x_shape))]
    before, after = zip(*pairs, strict=True)
    return {"input_pixel_offsets": before, "output_pixel_offsets": after}


def _pair(scene: ResampleScene, axis: int, turn: int, direction: str | None) -> tuple[float, float]:
    if scene.scales[axis] == 1 if scene.scales else scene.y_shape[axis] == scene.x_shape[axis]:
        return INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
    return OFFSETS[(turn + scene.later.get(f"{direction}/{axis}", 0)) % len(OFFSETS)]


def _fine_coordinates() -> Iterator[Case]:
    """Coordinates that float16 cannot represent, on a tensor whose neighbouring elements differ."""
    note = "coordinates have more digits than the tensors' type: float16 cannot represent 300.3"
    scene = ResampleScene("fine_coordinates", note, (640,), (0.15,), seed=16, later={"half_up/0": 1})
    for interpolation, offsets in (("linear", {}), ("nearest_neighbor", _offsets(scene, 0, "half_up"))):
        attributes = {"interpolation_mode": interpolation, **offsets}
        yield from _of_scene("matrix", scene, attributes, variant=interpolation)


def _derived() -> Iterator[Case]:
    """Empty tensors, which are valid, and sums of many ones, which stop at 2048 in float16."""
    for row in load("resample_derived.json", dict[str, Any]):
        scene = ResampleScene(row["name"], row["note"], row["x_shape"], row.get("scales", ()), row["output_sizes"])
        nothing = {"y": np.zeros(scene.y_shape), "dx": np.zeros(scene.x_shape)}
        expected = {"dx": np.array(row["dx"], np.float64)} if "dx" in row else nothing
        yield from _of_scene(row["family"], scene, row.get("attributes", NONE), expected, source=DOCUMENTATION)


def _sessions() -> Iterator[Case]:
    """A call of a session after earlier calls with other data, with the same sizes, other sizes, or both."""
    note = "a later call of a session, after calls with other data"
    asked = ResampleScene("asked", note, (2, 3, 5, 6), (1, 1, 1.75, 0.625), seed=31)
    others = {
        "of_the_same_sizes": [replace(asked, seed=32)],
        "smaller": [replace(asked, x_shape=(1, 2, 3, 4))],
        "larger": [replace(asked, x_shape=(3, 20, 9, 17))],
    }
    others["all_of_these"] = [other for calls in others.values() for other in calls]
    for (scenario, calls), (interpolation, direction) in itertools.product(others.items(), _ways()[:2]):
        chosen = {"interpolation_mode": interpolation, "rounding_direction": direction, **_offsets(asked, 0, "half_up")}
        yield from _in_one_session(f"after_{scenario}", (asked, *calls), chosen)
    chosen = {"interpolation_mode": "linear", **_offsets(asked, 0, None)}
    one_at_a_time = [asked]
    for turn, step in enumerate((1, 1, 1, 1, -1, -1, -1, -1)):
        shape = [*one_at_a_time[-1].x_shape]
        shape[turn % 4] += step
        one_at_a_time.append(replace(asked, x_shape=tuple(shape), seed=33 + turn))
    equal = [replace(asked, seed=42 + turn) for turn in range(8)]
    yield from _in_one_session("four_of_the_same_sizes", equal[:4], chosen)
    yield from _in_one_session("lengths_one_at_a_time", one_at_a_time, chosen)
    yield from _in_one_session(TWO_THREADS, equal, chosen)
    for interpolation in ("linear", "nearest_neighbor"):
        note = "sizes without scales: in every call of a session, the ratio is that of its own lengths"
        shapes = ((5, 6), (9, 3), (2, 8), (5, 5))
        by_sizes = [ResampleScene("", note, shape, (), (7, 4), seed=50 + n) for n, shape in enumerate(shapes)]
        yield from _in_one_session("sizes_alone", by_sizes, {"interpolation_mode": interpolation})


def _in_one_session(name: str, calls: Sequence[ResampleScene], attributes: Attributes) -> Iterator[Case]:
    """The cases of the first scene after those of the others, in one session."""
    variant = str(attributes["interpolation_mode"])
    calls_of_session = (
        _of_scene("session", replace(call, name=name), attributes, variant=variant, types=["float"]) for call in calls
    )
    yield from in_one_session(next(calls_of_session), calls_of_session)
