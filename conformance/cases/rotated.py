# SPDX-License-Identifier: MIT OR Apache-2.0
"""RoIAlignRotated and its gradient: scenes of rotated RoIs, sizes as in practice, unusual values, and sessions.

The reference computes the expected values. The numbers of RoIs are short binary fractions, which are exact in every element
type. Centres are such that samples keep away from where rounding of a coordinate decides: borders, pixels, whole numbers of
samples, and the minimum size. Sizes are beyond the powers of two at which blocked,
vectorised and threaded code branches, and mostly prime or odd, so that no block divides them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from conformance.case import Array, Case
from conformance.cases.every_attribute import WANTED
from conformance.cases.exact_rois import ExactRois
from conformance.cases.make import ROTATED, of_scene
from conformance.cases.scenes import (
    MORE_THAN_A_TURN,
    OF_30,
    OF_45,
    OF_90,
    OF_135,
    Scene,
    load,
)
from conformance.cases.sessions import in_one_session, several_calls, single_calls
from conformance.cases.values import OF_A_KINK


@dataclass(frozen=True, slots=True)
class RotatedScene(Scene):
    """A scene with rotated RoIs: cx, cy, w, h, angle, and the index of the image.

    variants: the values of aligned and clockwise.
    shifts: values of aligned and clockwise, the number of a RoI, and how far its centre moves then along x and y, so that
        samples keep away from where rounding decides.
    types: element types; if empty, float, double and one of the 16-bit types. Only double has sums of very many samples,
        which in float may round too far to tell.
    outputs: the roles of the outputs; if empty, y and alternating outputs of the gradient.
    """

    variants: tuple[tuple[int, int], ...] = ((1, 0), (0, 1))
    shifts: tuple[tuple[int, int, int, float, float], ...] = ()
    types: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def tensors_of(self, aligned: int, clockwise: int) -> dict[str, Array]:
        """The tensors by role, with the centres of the RoIs shifted for one of the variants."""
        tensors = self.tensors
        tensors["rois"] = tensors["rois"].reshape(-1, 5)
        for *variant, r, right, down in self.shifts:
            if variant == [aligned, clockwise]:
                tensors["rois"][int(r), :2] += right, down
        return tensors


def of_rotated(family: str, scene: RotatedScene, aligned: int, clockwise: int, **rest: Any) -> Iterator[Case]:
    """The cases of one variant of a scene; `rest` has further arguments of `make`."""
    words = f"{'aligned' if aligned else 'not_aligned'}/{'clockwise' if clockwise else 'counter_clockwise'}"
    yield from of_scene(
        family,
        scene,
        scene.outputs,
        tensors=scene.tensors_of(aligned, clockwise),
        more={"aligned": aligned, "clockwise": clockwise},
        operators=ROTATED,
        **{"types": scene.types, "variant": words, **rest},
    )


SCENES = load("rotated.json", RotatedScene)

ANGLES = (OF_30, -OF_45, OF_90, OF_135, 0.0, MORE_THAN_A_TURN)

SMALL = RotatedScene(
    "small",
    23,
    "two RoIs on two images of three channels",
    (2, 3, 6, 7),
    ((2.625, 3.1875, 3.375, 2.25, OF_30, 1), (3.6875, 2.625, 2.125, 3.5, -OF_45, 0)),
    (2, 2),
    1,
    types=("float",),
    outputs=("y", "dx", "drois"),
)


READ = "....... ...###. ..####. ..##... ..##... .......", "....... ..##... .####.. .####.. .##.... ......."
"""The pixels of each image that samples of `SMALL` read."""

OF_SMALL: dict[str, Any] = {"operators": ROTATED, "types": ["float"], "variant": ""}


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for turn, (scene, variant) in enumerate((each, variant) for each in SCENES for variant in each.variants):
        types = scene.types or ("float", "double", ("float16", "bfloat16")[turn % 2])
        outputs = scene.outputs or ("y", *WANTED[turn % len(WANTED)])
        yield from of_rotated("matrix", replace(scene, types=types, outputs=outputs), *variant)
    # In each scene of sizes, one length is large and the others are small.
    for scene in (*load("rotated_sizes.json", RotatedScene), *MANY_ROIS):
        given = replace(scene, outputs=scene.outputs or SMALL.outputs, types=scene.types or SMALL.types)
        yield from of_rotated("sizes", given, *scene.variants[0], variant="")
    yield from _odd_values()
    yield from _on_pixels()
    yield from _sessions()


def _around(count: int, cx: float, cy: float, images: Sequence[int] = (0,)) -> tuple[tuple[float, ...], ...]:
    """Distinct RoIs of a few pixels around a point."""
    return tuple(
        (
            cx + (r % 7 - 3) / 16,
            cy + (r // 7 % 5 - 2) / 16,
            2.125 + r % 11 / 16,
            1.625 + r % 13 / 16,
            ANGLES[r % len(ANGLES)],
            images[r % len(images)],
        )
        for r in range(count)
    )


def _odd_values() -> Iterator[Case]:
    """NaN and infinite pixels and gradients, which change only the results that read them."""
    tensors = SMALL.tensors
    unread = np.array([[[*row] for row in image.split()] for image in READ])[:, None] == "."
    for scenario, value in (("nan", np.nan), ("infinity", np.inf)):
        changed = {"x": np.where(unread, value, tensors["x"])}
        note = f"pixels that no sample reads are {scenario}, and change nothing"
        beside = replace(SMALL, name=f"{scenario}_beside_the_samples", note=note)
        yield from of_scene("values", beside, SMALL.outputs, tensors=changed, **OF_SMALL)
        for role, outputs, place in (("x", ["y"], (1, 1, 2, 3)), ("dy", ["dx"], (0, 1, 1, 1))):
            odd = tensors[role].copy()
            odd[place] = value
            where = "in a sample" if role == "x" else "in a gradient"
            note = f"{scenario} {where} changes only the results that depend on it"
            within = replace(SMALL, name=f"{scenario}_{where.replace(' ', '_')}", note=note)
            yield from of_scene("values", within, outputs, tensors={role: odd}, **OF_SMALL)


def _on_pixels() -> Iterator[Case]:
    """The gradient by a RoI whose only sample lies exactly on a pixel: the slope of the cell that starts there."""
    note = "drois of a sample on a pixel has the slope of the cell that starts there, or 0 if none does"
    for scenario, c in (("at_the_first_pixel", 0.0), ("on_a_pixel", 2.0), ("on_the_last_pixel", 4.0)):
        for along, centre in (("x", (c, 1.5)), ("y", (1.5, c))):
            scene = Scene(f"sample_{scenario}", 40, note, (1, 1, 5, 5), ((*centre, 2, 2, 0, 0),), (1, 1), 1)
            yield from of_scene(
                "values",
                scene,
                ["drois"],
                tensors={"dy": np.ones((1, 1, 1, 1))},
                more={"aligned": 0},
                operators=ROTATED,
                variant=f"along_{along}",
                types=("float", "double"),
                basis=OF_A_KINK[scenario],
            )


MANY_ROIS = (
    RotatedScene(
        "rois_299",
        31,
        "299 RoIs on three images",
        (3, 2, 6, 7),
        _around(299, 3.25, 2.75, (2, 0, 1)),
        (1, 2),
        1,
        variants=((1, 1),),
        shifts=(
            *((1, 1, r, 0.0, 1 / 16) for r in (33, 99, 164, 270)),
            *((1, 1, r, 1 / 16, 0.0) for r in (112, 142, 253)),
        ),
        types=("float", "double"),
    ),
    RotatedScene(
        "rois_1025_channels_65",
        41,
        "1025 RoIs of 65 channels",
        (2, 65, 6, 7),
        tuple((3.25, 2.75, 2.125 + r % 16 / 16, 1.625, 0.0, r % 2) for r in range(1025)),
        (1, 1),
        1,
        variants=((1, 1),),
        outputs=("y", "dx"),
    ),
)
SAME_SIZES = {
    "of_the_same_sizes": replace(SMALL, rois=SMALL.rois[::-1]),
    "another_map": replace(SMALL, seed=24),
}
OTHERS = {
    "smaller": replace(SMALL, x_shape=(1, 2, 4, 5), rois=_around(1, 2.25, 2.0)),
    "larger": replace(SMALL, x_shape=(3, 40, 9, 20), rois=_around(5, 4.25, 4.0, (2, 0, 1))),
    "no_rois": replace(SMALL, x_shape=(1, 3, 6, 7), rois=()),
}


def _sessions() -> Iterator[Case]:
    """How a session is created and run: several times, with symbolic dimensions, and with constant inputs."""
    alone = {f"after_{scenario}": (other,) for scenario, other in {**OTHERS, **SAME_SIZES}.items()}
    for scenario, others in {**alone, "again": (SMALL, *OTHERS.values())}.items():
        sizes = "the same" if scenario.removeprefix("after_") in SAME_SIZES else "other"
        note = f"a later call of a session, after calls with tensors of {sizes} sizes"
        yield from in_one_session(_small(scenario, note), (_small(scenario, note, other) for other in others))
    yield from several_calls(_of_crop)
    # Rounded to float16, these RoIs would move.
    fine = tuple((*(number + 2**-10 for number in numbers), image) for *numbers, image in SMALL.rois)
    scene = replace(SMALL, rois=fine)
    yield from single_calls(partial(_small, scene=scene), "inputs that are constants of the model")


def _of_crop(scenario: str, note: str, crop: ExactRois) -> Iterator[Case]:
    rois = (
        (column + 1.5625, row + 1.4375, 2.125 + r / 16, 1.625, ANGLES[r % len(ANGLES)], image)
        for r, (image, row, column) in enumerate(crop.windows)
    )
    family, _, name = scenario.partition("/")
    scene = replace(SMALL, name=name, note=note, seed=60 + crop.turn, x_shape=crop.x_shape, rois=tuple(rois))
    yield from of_rotated(family, scene, 1, 0, variant="")


def _small(scenario: str, note: str, scene: RotatedScene = SMALL, **rest: Any) -> Iterator[Case]:
    return of_rotated("session", replace(scene, name=scenario), 1, 0, note=note, variant="", **rest)
